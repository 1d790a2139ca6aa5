//! What comes back of a session whose environment was put away.

use crate::rig::{Life, PATIENCE, Rig, whole};
use farshell_api::environment::RemoveRequest;
use farshell_api::run::{RunResult, StartRequest};
use farshell_keeper::Keeper;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A backend whose places can be put away.
const DAYTONA: (&str, &str) = ("TERMINAL_ENV", "daytona");
const SECRET: (&str, &str) = ("SECRET", "hunter2");

async fn run(
    rig: &Rig,
    keeper: &Keeper,
    session: &str,
    variables: &[(&str, &str)],
    command: &str,
) -> RunResult {
    let target = rig.target_with("default", &[&[DAYTONA], variables].concat());
    let start = StartRequest { target, session: session.into(), ..StartRequest::new(command) };
    keeper.run(whole(start)).await.unwrap()
}

async fn stop(keeper: &Keeper) {
    let request =
        RemoveRequest { names: vec!["daytona/default".into()], stop: true, ..RemoveRequest::default() };
    assert_eq!(keeper.remove(request).await.unwrap().removed, ["daytona/default"]);
}

/// Whether any file below has these bytes.
fn written(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => written(&entry.path(), text),
        kind if kind.is_file() => {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        }
        _ => false,
    })
}

#[test]
fn sessions_come_back_as_they_were_left_also_for_the_next_server() {
    let rig = Rig::new();
    rig.config("terminal:\n  env_passthrough: [SECRET]\n");
    let life = Life::begin(&rig);
    life.on(async {
        let first = "cd /usr; export A=$'1 2\\n\\'3'; export SECRET PATH=/opt/x:$PATH; unset CARGO_PKG_NAME; b=2; f() { :; }; echo ${#SECRET}";
        assert_eq!(run(&rig, &life.keeper, "main", &[SECRET], first).await.stdout, "7\n");
        run(&rig, &life.keeper, "other", &[], "cd /; export A=other").await;
        stop(&life.keeper).await;
        assert!(!written(rig.home(), "hunter2"), "what came with a call is written down nowhere");
    });
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        let look = "pwd; echo \"$A\"; echo ${SECRET-unset} ${CARGO_PKG_NAME-unset} ${b-unset} ${PATH%%:*}; type -t f";
        let back = run(&rig, &life.keeper, "main", &[], look).await;
        assert_eq!(back.stdout, "/usr\n1 2\n'3\nunset unset unset /opt/x\n");
        assert!(back.note.unwrap().ends_with("its directory and exported variables are as they were"));
        let again =
            run(&rig, &life.keeper, "main", &[SECRET], "echo ${#SECRET}; cd /tmp; export A=new").await;
        assert_eq!((again.stdout.as_str(), again.note), ("7\n", None));
        // Put away twice, and used by nobody in between.
        stop(&life.keeper).await;
        assert_eq!(run(&rig, &life.keeper, "main", &[], "pwd; echo $A").await.stdout, "/tmp\nnew\n");
        stop(&life.keeper).await;
        assert_eq!(run(&rig, &life.keeper, "other", &[], "pwd; echo $A").await.stdout, "/\nother\n");
        assert_eq!(run(&rig, &life.keeper, "third", &[], "echo ${A-unset}").await.stdout, "unset\n");
    });
    life.end(rig);
}

#[tokio::test]
async fn a_directory_that_is_gone_is_said_and_a_crash_brings_nothing_back() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let dir = rig.home().join("gone");
    std::fs::create_dir(&dir).unwrap();
    run(&rig, &keeper, "main", &[], &format!("cd {}; export A=1", dir.display())).await;
    stop(&keeper).await;
    std::fs::remove_dir(&dir).unwrap();
    let back = run(&rig, &keeper, "main", &[], "echo $A").await;
    assert_eq!(back.stdout, "1\n");
    let note = back.note.unwrap();
    assert!(
        note.contains("exported variables are as they were, and its directory")
            && note.contains("/gone is gone"),
        "{note}"
    );
    run(&rig, &keeper, "main", &[], "export A=2").await;
    rig.kill_outposts();
    // Whoever comes first may find out by an error.
    let _ = keeper
        .run(whole(StartRequest {
            target: rig.target_with("default", &[DAYTONA]),
            session: "first".into(),
            ..StartRequest::new("true")
        }))
        .await;
    let crashed = run(&rig, &keeper, "main", &[], "echo ${A-unset}").await;
    assert_eq!(crashed.stdout, "unset\n");
    assert!(!crashed.note.unwrap().contains("as they were"));
    rig.end(keeper).await;
}

/// Waits until this was written down, which no command has in its text.
async fn noted(rig: &Rig, text: &str) {
    let waiting = async {
        while !written(rig.home(), text) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

/// Whoever comes first after the end of an outpost may find out by an error.
async fn find_out(rig: &Rig, keeper: &Keeper) {
    let target = rig.target_with("default", &[DAYTONA]);
    let first = StartRequest { target, session: "first".into(), ..StartRequest::new("true") };
    let _ = keeper.run(whole(first)).await;
}

/// Runs a command again and again, until that takes another connection.
async fn by_another_connection(rig: &Rig, keeper: &Keeper, command: &str) -> RunResult {
    let connected = || rig.backends.story.connected.load(Ordering::SeqCst);
    let before = connected();
    let running = Box::pin(async {
        loop {
            let result = run(rig, keeper, "main", &[], command).await;
            if connected() > before {
                return result;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    tokio::time::timeout(PATIENCE, running).await.unwrap()
}

#[tokio::test]
async fn what_is_left_alone_is_noted_and_counts_only_if_its_outpost_is_gone() {
    let rig = Rig::new();
    let rests = |after| *rig.backends.story.rests.lock().unwrap() = after;
    rests(Some(Duration::from_millis(100)));
    let keeper = rig.open().await;
    let look = "pwd; echo $A ${b-unset}";
    run(&rig, &keeper, "main", &[], "cd /usr; export A=x$((40000 + 1)); b=2").await;
    noted(&rig, "x40001").await;
    // The same shell.
    let again = by_another_connection(&rig, &keeper, look).await;
    assert_eq!((again.stdout.as_str(), again.note), ("/usr\nx40001 2\n", None));
    run(&rig, &keeper, "main", &[], "export A=x$((40000 + 2))").await;
    noted(&rig, "x40002").await;
    rig.kill_outposts();
    find_out(&rig, &keeper).await;
    let back = run(&rig, &keeper, "main", &[], look).await;
    assert_eq!(back.stdout, "/usr\nx40002 unset\n");
    assert!(back.note.unwrap().ends_with("its directory and exported variables are as they were"));
    // It is used again, by a connection that stays: what was noted before does not count any more.
    run(&rig, &keeper, "main", &[], "export A=x$((40000 + 3))").await;
    noted(&rig, "x40003").await;
    rests(None);
    assert_eq!(by_another_connection(&rig, &keeper, look).await.stdout, "/usr\nx40003 unset\n");
    run(&rig, &keeper, "main", &[], "export A=x$((40000 + 4))").await;
    rig.kill_outposts();
    find_out(&rig, &keeper).await;
    let crashed = run(&rig, &keeper, "main", &[], "echo ${A-unset}").await;
    assert_eq!(crashed.stdout, "unset\n");
    rig.end(keeper).await;
}

/// The last command may have been a moment ago.
#[tokio::test]
async fn what_may_end_at_any_time_is_noted_when_the_server_ends() {
    let rig = Rig::new();
    *rig.backends.story.rests.lock().unwrap() = Some(Duration::from_secs(3600));
    let keeper = rig.open().await;
    run(&rig, &keeper, "main", &[], "cd /usr; export A=1").await;
    keeper.close(false).await.unwrap();
    drop(keeper);
    rig.kill_outposts();
    let keeper = rig.open().await;
    let back = run(&rig, &keeper, "main", &[], "pwd; echo $A").await;
    assert_eq!(back.stdout, "/usr\n1\n");
    assert!(back.note.unwrap().ends_with("its directory and exported variables are as they were"));
    rig.end(keeper).await;
}

/// A place that may end at any time is not left unnoted until its connection is closed, nor while something runs in it.
#[tokio::test]
async fn what_may_end_at_any_time_is_noted_soon_after_each_command() {
    let rig = Rig::new();
    *rig.backends.story.rests.lock().unwrap() = Some(Duration::from_secs(3600));
    let keeper = rig.open().await;
    let target = rig.target_with("default", &[DAYTONA]);
    run(&rig, &keeper, "main", &[], "cd /usr; export A=x$((50000 + 1))").await;
    let job = StartRequest { target: target.clone(), background: true, ..StartRequest::new("sleep 1000") };
    keeper.start(job).await.unwrap();
    noted(&rig, "x50001").await;
    // It ends in the middle of a command: as it was before that.
    let begun = rig.home().join("begun");
    let last = format!("export A=9; touch {}; sleep 1000", begun.display());
    let start = StartRequest { target: target.clone(), session: "main".into(), ..StartRequest::new(last) };
    let running = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.run(whole(start)).await.map(drop) }
    });
    let waiting = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    rig.kill_outposts();
    assert!(running.await.unwrap().is_err());
    // Whoever comes first may find out by an error.
    let first = StartRequest { target, session: "first".into(), ..StartRequest::new("true") };
    let _ = keeper.run(whole(first)).await;
    let back = run(&rig, &keeper, "main", &[], "pwd; echo $A").await;
    assert_eq!(back.stdout, "/usr\nx50001\n");
    assert!(back.note.unwrap().ends_with("its directory and exported variables are as they were"));
    rig.end(keeper).await;
}
