//! Nothing is left of an emulator, however it ended.

use crate::rig::{Emulator, PATIENCE};
use std::time::{Duration, Instant};

/// Processes with this among their arguments, and mounts below that directory.
fn left(mark: &str, dir: &str) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid.parse::<u32>().is_err() || pid == std::process::id().to_string() {
            continue;
        }
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        if String::from_utf8_lossy(&read("cmdline")).contains(mark) {
            all.push(format!("process {pid}"));
        }
        if String::from_utf8_lossy(&read("mountinfo")).contains(dir) {
            all.push(format!("mounts of {pid}"));
        }
    }
    all
}

async fn busy(emulator: &Emulator, mark: &str) {
    let modal = emulator.client().await;
    for definition in [modal.definition(&["sleep", mark]), modal.definition(&[])] {
        let sandbox = modal.create(definition).await;
        // One that hides in a session of its own, and hears nothing.
        let hide = format!(
            "trap '' HUP TERM; setsid sh -c 'trap \"\" HUP TERM; sleep {mark}' & echo begun; sleep {mark}"
        );
        let exec = sandbox.start(sandbox.shell(&hide)).await;
        let mut stream = {
            let wish = farshell_modal_proto::router::TaskExecStdioReadRequest {
                task_id: sandbox.task.clone(),
                exec_id: exec,
                ..Default::default()
            };
            sandbox.router.clone().task_exec_stdio_read(sandbox.ask(wish)).await.unwrap().into_inner()
        };
        assert_eq!(stream.message().await.unwrap().unwrap().data.as_ref(), b"begun\n");
    }
}

fn mark() -> String {
    format!("77{}{}", std::process::id(), Instant::now().elapsed().as_nanos())
}

#[tokio::test]
async fn of_one_that_ends() {
    let Some(mut emulator) = Emulator::start(&[]) else { return };
    let (mark, dir) = (mark(), emulator.dir.path().to_string_lossy().into_owned());
    busy(&emulator, &mark).await;
    assert!(!left(&mark, &dir).is_empty());
    emulator.end();
    assert_eq!(left(&mark, &dir), [""; 0]);
    assert_eq!(std::fs::read_dir(emulator.dir.path().join("emulator")).unwrap().count(), 0);
}

/// What is frozen does not die of a kill; nor does it stay.
#[tokio::test]
async fn of_one_that_is_killed_in_a_snapshot() {
    let Some(mut emulator) = Emulator::start(&[]) else { return };
    let (mark, dir) = (mark(), emulator.dir.path().to_string_lossy().into_owned());
    let sandbox = {
        let modal = emulator.client().await;
        modal.create(modal.definition(&["sleep", &mark])).await
    };
    sandbox.sh("true").await;
    let group = format!("/sys/fs/cgroup/freezer/farshell-modal-{}-{}", emulator.child.id(), sandbox.id);
    if !std::path::Path::new(&group).exists() {
        eprintln!("skipped: {group} could not be made; nothing is frozen here");
        return;
    }
    // So much that copying it takes a while.
    sandbox.sh("head -c 300000000 /dev/zero > /big").await;
    let take = || {
        let sandbox = sandbox.clone();
        tokio::spawn(async move { sandbox.snapshot(-1).await })
    };
    let (mut taking, before) = (take(), Instant::now());
    let frozen = || {
        std::fs::read_to_string(format!("{group}/freezer.state")).is_ok_and(|state| state.trim() == "FROZEN")
    };
    while !frozen() {
        assert!(before.elapsed() < PATIENCE);
        // It was not seen: again.
        if taking.is_finished() {
            taking = take();
        }
        tokio::task::yield_now().await;
    }
    emulator.child.kill().unwrap();
    emulator.child.wait().unwrap();
    let before = Instant::now();
    while !left(&mark, &dir).is_empty() {
        assert!(before.elapsed() < PATIENCE, "{:?}", left(&mark, &dir));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The next emulator takes its groups away.
    drop(Emulator::start(&[]));
    assert!(!std::path::Path::new(&group).exists());
}

#[tokio::test]
async fn of_one_that_is_killed() {
    let Some(mut emulator) = Emulator::start(&[]) else { return };
    let (mark, dir) = (mark(), emulator.dir.path().to_string_lossy().into_owned());
    busy(&emulator, &mark).await;
    assert!(!left(&mark, &dir).is_empty());
    emulator.child.kill().unwrap();
    emulator.child.wait().unwrap();
    let before = Instant::now();
    while !left(&mark, &dir).is_empty() {
        assert!(before.elapsed() < PATIENCE, "{:?}", left(&mark, &dir));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
