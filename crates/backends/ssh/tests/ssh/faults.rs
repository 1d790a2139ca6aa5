//! What breaks, and goes on.

use crate::rig::{OwnHost, Rig, late};
use farshell_engine::Kind;
use farshell_engine::backend::Backend;
use farshell_protocol::file::Write;
use serde_bytes::ByteBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_goes_on_at_the_byte_when_the_master_is_killed() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("true").await;
    let master = rig.master_pid();
    env.counts_through(30, "0.1", move || kill(&master)).await;
    assert_eq!(rig.masters().len(), 1);
    assert_eq!(env.place.epitaph(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_goes_on_at_the_byte_when_the_daemon_is_killed() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let env = rig.open().await;
    env.out("z=kept").await;
    let trouble = Arc::clone(&host);
    env.counts_through(40, "0.1", move || {
        trouble.act("kill", &[]);
        std::thread::sleep(Duration::from_secs(3));
        trouble.act("start", &[]);
    })
    .await;
    assert_eq!(env.out("echo $z").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_carries_the_stream_goes_on_too() {
    let Some(host) = OwnHost::start(&["DisableForwarding yes"]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let env = rig.open().await;
    env.out("z=kept").await;
    let trouble = Arc::clone(&host);
    env.counts_through(40, "0.1", move || {
        trouble.act("kill", &[]);
        trouble.act("start", &[]);
    })
    .await;
    assert_eq!(env.out("echo $z").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_cut_for_a_minute_loses_nothing() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let env = rig.open().await;
    env.out("true").await;
    let trouble = Arc::clone(&host);
    let begun = Instant::now();
    env.counts_through(350, "0.2", move || {
        trouble.act("line", &["cut"]);
        std::thread::sleep(Duration::from_secs(60));
        trouble.act("line", &[]);
    })
    .await;
    assert!(begun.elapsed() < Duration::from_secs(110), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_line_is_slow_and_loses_nothing() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    // 200 ms there and back, and one of twenty packets lost on the way.
    let port = late(format!("{}:2222", host.address), Duration::from_millis(100)).await;
    let rig = rig.with(|settings| {
        settings.host = "127.0.0.1".into();
        settings.port = port;
    });
    host.act("line", &["lossy", "5"]);
    let env = rig.open().await;
    env.counts_through(20, "0.1", || {}).await;
    let said = env.out("seq 100000 | tee ~/numbers | md5sum; md5sum <~/numbers; cat ~/numbers").await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines[0], lines.len(), lines[100_001]), (lines[1], 100_002, "100000"));
    // One round trip, if nothing of it is lost.
    let mut fastest = Duration::MAX;
    for _ in 0..10 {
        let begun = Instant::now();
        env.out("true").await;
        fastest = fastest.min(begun.elapsed());
    }
    assert!(fastest < Duration::from_millis(390), "{fastest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_line_is_noticed_within_thirty_seconds() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    rig.open().await.out("true").await;
    host.act("line", &["cut"]);
    let begun = Instant::now();
    while !rig.masters().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    host.act("line", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_host_is_told_as_such() {
    let Some(host) = OwnHost::start(&[]) else { return };
    restart(&host).await;
    // Where a session carries the stream.
    let Some(host) = OwnHost::start(&["DisableForwarding yes"]) else { return };
    restart(&host).await;
}

async fn restart(host: &Arc<OwnHost>) {
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let env = rig.open().await;
    env.out("true").await;
    let before = env.env.outpost().identity().await.unwrap();
    let running = env.try_run("sleep 100");
    let trouble = Arc::clone(host);
    let reboot = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_secs(1));
        trouble.act("reboot", &[]);
    });
    let error = running.await.unwrap_err();
    reboot.await.unwrap();
    assert_eq!(error.kind, Kind::UnknownOutcome, "{error}");
    assert!(env.place.epitaph().unwrap().ends_with("was restarted"), "{:?}", env.place.epitaph());
    assert_ne!(env.env.outpost().identity().await.unwrap().boot, before.boot);
    assert_eq!(env.out("echo new").await, "new");
    // What the earlier start left is listed, and can be removed.
    let backend = rig.backend();
    let all = backend.survey().await.unwrap();
    assert_eq!(all.len(), 2, "{all:?}");
    let old = all.iter().find(|found| found.task.is_none()).unwrap();
    assert!(!old.alive);
    backend.remove_found(old).await.unwrap();
    assert_eq!(backend.survey().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_under_the_same_name_is_an_error() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let env = rig.open().await;
    env.out("true").await;
    std::fs::remove_file(host.dir().join("machine-id")).unwrap();
    host.act("reboot", &[]);
    let error = env.try_run("true").await.unwrap_err();
    let told = error.kind == Kind::IdentityChanged || error.message.contains("another machine");
    assert!(told, "{error}");
}

#[tokio::test]
async fn a_stale_socket_is_no_obstacle() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("true").await;
    let control = rig.masters().remove(0);
    kill(&rig.master_pid());
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(&control).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(control.exists());
    rig.open().await.out("true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_outpost_is_replaced_and_what_it_left_is_ended() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("setsid sleep 12345 & echo $! >~/orphan").await;
    let before = env.env.outpost().identity().await.unwrap();
    let _ = env.try_run(&format!("kill -9 {}", before.pid)).await;
    let after = env.env.outpost().identity().await.unwrap();
    assert_ne!(before.instance, after.instance);
    assert_eq!(env.run("kill -0 $(cat ~/orphan)").await.code(), 1);
    env.env.destroy().await.unwrap();
    assert_eq!(rig.backend().survey().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_hangs_is_replaced() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("true").await;
    let master = rig.master_pid();
    assert!(Command::new("kill").args(["-STOP", &master]).status().unwrap().success());
    let again = rig.try_open("default").await;
    kill(&master);
    assert_eq!(again.unwrap().out("echo on").await, "on");
    assert_ne!(rig.master_pid(), master);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_costs_no_file_and_no_byte_of_output() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    // Logs are there, too.
    let dir = host.mounted("size=50m,mode=700", &rig.config.settings.user);
    let rig = rig.with(|settings| settings.outpost_dir = Some(dir.clone()));
    let env = rig.open().await;
    env.out(&format!("z=kept; cd {dir}; echo old >file")).await;
    let (filler, trouble, removal) = (format!("{dir}/filler"), Arc::clone(&host), Arc::clone(&host));
    let fill = move || {
        trouble.act("exec", &["sh", "-c", &format!("cat /dev/zero >{filler} 2>/dev/null; true")]);
    };
    env.counts_through(40, "0.1", fill).await;
    let said = env.out("seq 20000").await;
    assert!(said.lines().map(str::to_owned).eq((1..=20_000).map(|i: u32| i.to_string())), "{}", said.len());
    // No log can hold this; the command is slowed down to the pace of its reader.
    let ran = env.run("seq 3000000").await;
    assert_eq!(ran.lost, 0);
    assert!(ran.stdout.lines().map(str::to_owned).eq((1..=3_000_000).map(|i: u32| i.to_string())));
    assert!(ran.status.output.log_error.is_some_and(|why| why.contains("No space")));
    assert_eq!(env.run("echo new >new").await.code(), 1);
    let write = Write {
        path: ByteBuf::from(format!("{dir}/file").into_bytes()),
        mode: None,
        set_mode: false,
        parents: false,
        create_only: false,
        expect: None,
    };
    let error = env.env.outpost().write_file(None, write, &[b'x'; 1 << 20]).await.unwrap_err();
    assert_eq!(error.kind, Kind::Exhausted, "{error}");
    assert_eq!(env.out("cat file; echo $z").await, "old\nkept");
    removal.act("exec", &["rm", &format!("{dir}/filler")]);
    assert_eq!(env.out("echo new >new; cat new").await, "new");
    assert_eq!(env.out("ls -A | sort").await, "file\nnew\noutposts\nrun");
}
