//! The outpost's way to the host.

use crate::rig::{OwnHost, Rig};
use farshell_engine::Kind;
use farshell_engine::backend::{Backend, News, Progress};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test]
async fn first_uploads_at_the_same_time_are_safe() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let dir = format!("~/first-{}", std::process::id());
    // Homes of their own: nothing in this process keeps them from it.
    let rigs: Vec<Arc<Rig>> = (0..6)
        .map(|_| {
            let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
            Arc::new(rig.with(|settings| settings.outpost_dir = Some(dir.clone())))
        })
        .collect();
    let tasks: Vec<_> = rigs
        .iter()
        .map(|rig| {
            let rig = Arc::clone(rig);
            tokio::spawn(async move { rig.open().await.out("echo up").await })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), "up");
    }
    let env = rigs[0].open().await;
    assert_eq!(env.out(&format!("cd {dir}/outposts && ls | wc -l && ls -A * | wc -l")).await, "1\n1");
    assert_eq!(
        env.out(&format!("stat -c %a {dir} {dir}/outposts/* {dir}/outposts/*/*")).await,
        "700\n700\n700"
    );
    env.out(&format!("cd; mv {dir} {dir}.old")).await;
}

#[tokio::test]
async fn a_directory_from_which_nothing_can_run_is_told() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("noexec,size=50m,mode=700", &rig.config.settings.user);
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.message.contains("noexec") && error.message.contains(&dir), "{error}");
    assert!(error.hint.unwrap().contains("ssh_outpost_dir"));
}

#[tokio::test]
async fn a_full_directory_is_told_and_nothing_is_left() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("size=1m,mode=700", &rig.config.settings.user);
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::Exhausted, "{error}");
    assert!(error.message.contains("full") && error.hint.unwrap().contains("ssh_outpost_dir"));
    assert_eq!(host.act("exec", &["find", &dir, "-type", "f"]), "");
    host.act("exec", &["mount", "-o", "remount,size=50m", &dir]);
    rig.open().await.out("true").await;
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_refused() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("size=50m,mode=777", "root");
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::PermissionDenied, "{error}");
    assert!(error.message.contains("another user"), "{error}");
    host.act("exec", &["chmod", "755", &dir]);
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::PermissionDenied, "{error}");
}

#[tokio::test]
async fn a_damaged_outpost_is_put_there_anew() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("size=50m,mode=700", &rig.config.settings.user);
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    let env = rig.open().await;
    env.env.destroy().await.unwrap();
    // The same size, and nothing in it: what a crash of the host may leave.
    let damage =
        format!("f=$(echo {dir}/outposts/*/farshell-outpost); n=$(stat -c %s $f); : >$f; truncate -s $n $f");
    host.act("exec", &["sh", "-c", &damage]);
    rig.open().await.out("true").await;
}

#[tokio::test]
async fn a_slow_line_takes_its_time() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("size=50m,mode=700", &rig.config.settings.user);
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    host.act("line", &["slow", "1mbit"]);
    let begun = std::time::Instant::now();
    assert_eq!(rig.open().await.out("echo here").await, "here");
    // Three megabytes.
    assert!(begun.elapsed() > std::time::Duration::from_secs(15), "{:?}", begun.elapsed());
    host.act("line", &[]);
}

#[tokio::test]
async fn a_host_that_can_not_hash_is_read_back() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("size=50m,mode=700", &rig.config.settings.user);
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    let hide = "for p in sha256sum shasum busybox openssl; do f=$(command -v $p) || continue; \
                mount --bind /bin/false $(readlink -f $f); done";
    host.act("exec", &["sh", "-c", hide]);
    let env = rig.open().await;
    assert_eq!(env.run("echo x | sha256sum").await.code(), 1);
    assert_eq!(env.out(&format!("ls -A {dir}/outposts/*")).await, "farshell-outpost");
}

#[tokio::test]
async fn an_outpost_that_was_changed_is_not_run() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("size=50m,mode=700", &rig.config.settings.user);
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    rig.open().await.env.destroy().await.unwrap();
    // It runs, has the same size and owner, and is another program.
    let change = format!(
        "f=$(echo {dir}/outposts/*/farshell-outpost); n=$(stat -c %s $f); cat /bin/true >$f; truncate -s $n $f"
    );
    host.act("exec", &["sh", "-c", &change]);
    rig.open().await.out("true").await;
}

#[tokio::test]
async fn what_uploads_left_that_were_cut_off_goes_with_the_next_one() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("size=50m,mode=700", &rig.config.settings.user);
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    rig.open().await.env.destroy().await.unwrap();
    // What a host that lost its power keeps; and what another one is sending at this moment.
    let leave = format!(
        "cd {dir}/outposts/* && mv farshell-outpost .new-old && touch -d '3 days ago' .new-old && echo x >.new-now && chown {} .new-*",
        rig.config.settings.user
    );
    host.act("exec", &["sh", "-c", &leave]);
    rig.open().await.out("true").await;
    assert_eq!(
        host.act("exec", &["sh", "-c", &format!("ls -A {dir}/outposts/*")]),
        ".new-now\nfarshell-outpost"
    );
}

/// Counts uploads that begin.
#[derive(Default)]
struct Uploads(AtomicU32);

impl Progress for Uploads {
    fn say(&self, news: &News) {
        if matches!(news.part, Some((0, _))) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_share_an_upload_and_its_failure() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let dir = host.mounted("size=1m,mode=700", &rig.config.settings.user);
    let rig = Arc::new(rig.with(|settings| settings.outpost_dir = Some(dir.clone())));
    let uploads = Arc::new(Uploads::default());
    // So slow that all come while the first one is at it.
    host.act("line", &["slow", "1mbit"]);
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let (rig, uploads) = (Arc::clone(&rig), Arc::clone(&uploads));
            tokio::spawn(async move {
                rig.backend().provision(&rig.spec(&format!("t{n}")), &*uploads).await.unwrap_err()
            })
        })
        .collect();
    for task in tasks {
        let error = task.await.unwrap();
        assert_eq!(error.kind, Kind::Exhausted, "{error}");
        assert!(error.hint.is_some_and(|hint| hint.contains("ssh_outpost_dir")));
    }
    assert_eq!(uploads.0.load(Ordering::Relaxed), 1);
    host.act("line", &[]);
}
