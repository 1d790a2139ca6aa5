//! How sandboxes end, and what they leave.

use crate::rig::{Emulator, Modal, Sandbox};
use farshell_modal_proto::client::generic_result::GenericStatus;
use farshell_modal_proto::client::sandbox_get_exit_snapshot_response::Outcome;
use farshell_modal_proto::client::{self as proto, *};
use std::time::{Duration, Instant};
use tonic::Code;

/// A second of the emulator's lasts as long.
const SECOND: &[&str] = &["--second-ms", "100"];

async fn ended(sandbox: &Sandbox) -> (GenericStatus, i32) {
    let result = sandbox.result().await;
    (result.status(), result.exitcode)
}

#[tokio::test]
async fn the_entrypoint_decides() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let of = async |command| ended(&modal.create(modal.definition(&["sh", "-c", command])).await).await;
    assert_eq!(of("exit 0").await, (GenericStatus::Success, 0));
    assert_eq!(of("exit 7").await, (GenericStatus::Failure, 7));
    assert_eq!(of("kill -KILL $$").await, (GenericStatus::Failure, 137));
    assert_eq!(
        ended(&modal.create(modal.definition(&["no-such-program"])).await).await,
        (GenericStatus::Failure, 127)
    );
}

#[tokio::test]
async fn one_that_lives_has_no_result() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let sandbox = modal.sandbox().await;
    assert_eq!(modal.wait(&sandbox.id, 0.0).await, None);
    // A wait lasts as long as was asked for, and not less.
    let before = Instant::now();
    assert_eq!(modal.wait(&sandbox.id, 0.3).await, None);
    assert!(before.elapsed() >= Duration::from_millis(300));
    let exec = sandbox.start(sandbox.shell("echo begun; sleep 1000")).await;
    let waiting = tokio::spawn({
        let (sandbox, exec) = (sandbox.clone(), exec.clone());
        async move { sandbox.wait(&exec).await }
    });
    let long = tokio::spawn({
        let sandbox = sandbox.clone();
        async move { sandbox.result().await }
    });
    modal.terminate(&sandbox.id).await;
    assert_eq!(long.await.unwrap().status(), GenericStatus::Terminated);
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::NotFound);
    assert_eq!(sandbox.wait(&exec).await.unwrap_err().code(), Code::NotFound);
    let refused =
        sandbox.router.clone().task_exec_start(sandbox.ask(sandbox.shell("true"))).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(access(&modal, &sandbox).await.unwrap_err().code(), Code::FailedPrecondition);
    // Ending it again says how it ended.
    let wish = SandboxTerminateRequest { sandbox_id: sandbox.id.clone() };
    let again = modal.client.clone().sandbox_terminate_v2(modal.ask(wish)).await.unwrap().into_inner();
    assert_eq!(again.existing_result.unwrap().status(), GenericStatus::Terminated);
    let wish = SandboxGetTaskIdRequest { sandbox_id: sandbox.id.clone(), ..Default::default() };
    let task = modal.client.clone().sandbox_get_task_id_v2(modal.ask(wish)).await.unwrap().into_inner();
    assert_eq!((task.task_id, task.task_result.is_some()), (Some(sandbox.task), true));
}

async fn access(modal: &Modal, sandbox: &Sandbox) -> Result<(), tonic::Status> {
    let target = sandbox_get_command_router_access_request::Target::TaskId(sandbox.task.clone());
    let wish = SandboxGetCommandRouterAccessRequest { target: Some(target) };
    modal.client.clone().sandbox_get_command_router_access(modal.ask(wish)).await.map(|_| ())
}

#[tokio::test]
async fn idle_is_without_processes_and_input() {
    let Some(emulator) = Emulator::start(SECOND) else { return };
    let modal = emulator.client().await;
    let with = |idle| proto::Sandbox { idle_timeout_secs: idle, ..modal.definition(&["sleep", "infinity"]) };
    let (left, saved, used, written, off) = tokio::join!(
        modal.create(with(Some(30))),
        modal.create(with(Some(30))),
        modal.create(with(Some(30))),
        modal.create(with(Some(30))),
        modal.create(with(None)),
    );
    // A process that does nothing at all.
    let exec = used.start(used.shell("read line")).await;
    // Input of the entrypoint, again and again, for longer than it may be idle.
    let until = Instant::now() + Duration::from_secs(4);
    let mut offset = 0;
    while Instant::now() < until {
        let wish = farshell_modal_proto::router::SandboxStdinWriteV2Request {
            task_id: written.task.clone(),
            offset,
            data: b"x".as_slice().into(),
            eof: false,
        };
        written.router.clone().sandbox_stdin_write_v2(written.ask(wish)).await.unwrap();
        offset += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ended(&left).await, (GenericStatus::IdleTimeout, 137));
    // Snapshots, again and again, are no use of it.
    while modal.wait(&saved.id, 0.0).await.is_none() {
        let _ = saved.snapshot(-1).await;
    }
    assert_eq!(ended(&saved).await, (GenericStatus::IdleTimeout, 137));
    assert_eq!(modal.wait(&used.id, 0.0).await, None);
    assert_eq!(modal.wait(&off.id, 0.0).await, None);
    // With the process its reason is gone.
    used.write(&exec, 0, b"go\n", true).await.unwrap();
    assert_eq!(ended(&used).await, (GenericStatus::IdleTimeout, 137));
    assert_eq!(ended(&written).await, (GenericStatus::IdleTimeout, 137));
    assert_eq!(modal.wait(&off.id, 0.0).await, None);
}

#[tokio::test]
async fn a_lifetime_is_hard() {
    let Some(emulator) = Emulator::start(SECOND) else { return };
    let modal = emulator.client().await;
    let sandbox = modal.create(proto::Sandbox { timeout_secs: 20, ..modal.definition(&[]) }).await;
    let exec = sandbox.start(sandbox.shell("trap '' TERM; while :; do sleep 1; done")).await;
    let waiting = tokio::spawn({
        let (sandbox, exec) = (sandbox.clone(), exec.clone());
        async move { sandbox.wait(&exec).await }
    });
    assert_eq!(ended(&sandbox).await, (GenericStatus::Timeout, 124));
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn every_end_leaves_a_snapshot() {
    let Some(emulator) = Emulator::start(SECOND) else { return };
    let modal = emulator.client().await;
    let definition = |command| proto::Sandbox {
        experimental_options_v2: [("enable_exit_snapshot".to_owned(), "True".to_owned())].into(),
        ..modal.definition(&["sh", "-c", command])
    };
    let stay = "echo left > /left; exec sleep infinity";
    let (terminated, exited, idle, timeout, evicted) = tokio::join!(
        modal.create(definition(stay)),
        modal.create(definition("echo left > /left; exit 4")),
        modal.create(proto::Sandbox { idle_timeout_secs: Some(20), ..definition(stay) }),
        modal.create(proto::Sandbox { timeout_secs: 20, ..definition(stay) }),
        modal.create(definition(stay)),
    );
    for sandbox in [&terminated, &evicted] {
        assert_eq!(sandbox.sh("until test -e /left; do sleep 0.01; done").await, "");
    }
    // While it lives there is none yet.
    let wish = SandboxGetExitSnapshotRequest { sandbox_id: terminated.id.clone(), timeout: 0.0 };
    let now = modal.client.clone().sandbox_get_exit_snapshot_v2(modal.ask(wish)).await.unwrap().into_inner();
    assert!(matches!(now.outcome, Some(Outcome::Pending(_))), "{now:?}");
    modal.terminate(&terminated.id).await;
    emulator.http("POST", &format!("end/{}/GENERIC_STATUS_MEMORY_MANAGER_EVICTION", evicted.id), "");
    for (sandbox, expected) in [
        (terminated, GenericStatus::Terminated),
        (exited, GenericStatus::Failure),
        (idle, GenericStatus::IdleTimeout),
        (timeout, GenericStatus::Timeout),
        (evicted, GenericStatus::MemoryManagerEviction),
    ] {
        assert_eq!(ended(&sandbox).await.0, expected);
        let image_id = loop {
            match sandbox.exit_snapshot().await.unwrap() {
                Outcome::Success(success) => break success.image_id,
                Outcome::Pending(_) => {}
                Outcome::Error(error) => panic!("{expected:?}: {error:?}"),
            }
        };
        let restored = modal.create(proto::Sandbox { image_id, ..modal.definition(&[]) }).await;
        assert_eq!(restored.sh("cat /left").await, "left\n", "{expected:?}");
    }
    let plain = modal.sandbox().await;
    modal.terminate(&plain.id).await;
    assert_eq!(plain.exit_snapshot().await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn limits_hold_where_groups_can_be_made() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let pid = emulator.child.id();
    let of = |resources| proto::Sandbox {
        resources: Some(resources),
        experimental_options_v2: [("enable_exit_snapshot".to_owned(), "true".to_owned())].into(),
        ..modal.definition(&[])
    };
    let limited =
        modal.create(of(Resources { memory_mb_max: 64, milli_cpu_max: 500, ..Default::default() })).await;
    let asked = modal.create(of(Resources { memory_mb: 64, milli_cpu: 500, ..Default::default() })).await;
    limited.sh("echo here > /left").await;
    let group = |controller: &str, id: &str| {
        let all = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let line = all.lines().find(|line| line.split(':').nth(1) == Some(controller))?;
        let at = format!("/sys/fs/cgroup/{controller}/{}", line.splitn(3, ':').nth(2)?.trim_matches('/'));
        Some(std::path::PathBuf::from(at).join(format!("farshell-modal-{pid}-{id}")))
    };
    // A limit that nobody has seen hold is not one that was tested.
    let skipped = |why: &str| {
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("skipped: {why}");
    };
    let (Some(memory), Some(cpu)) = (group("memory", &limited.id), group("cpu", &limited.id)) else {
        return skipped("no control groups of version 1 here; the emulator says that it enforces nothing");
    };
    if !memory.exists() {
        return skipped(&format!("{} could not be made", memory.display()));
    }
    let number =
        |file: std::path::PathBuf| std::fs::read_to_string(file).unwrap().trim().parse::<u64>().unwrap();
    assert_eq!(number(memory.join("memory.limit_in_bytes")), 64 << 20);
    // Half a core is one processor.
    assert_eq!(number(cpu.join("cpu.cfs_quota_us")), number(cpu.join("cpu.cfs_period_us")));
    // What is only asked for is no limit.
    assert!(!group("memory", &asked.id).unwrap().exists());
    assert_eq!(asked.sh("head -c 100000000 /dev/zero | tail -c 90000000 | wc -c").await, "90000000\n");
    // tail keeps all of it in memory.
    limited.start(limited.shell("head -c 200000000 /dev/zero | tail -c 190000000 > /dev/null")).await;
    assert_eq!(ended(&limited).await, (GenericStatus::KernelOomKill, 137));
    assert!(matches!(limited.exit_snapshot().await.unwrap(), Outcome::Success(_)));
    assert!(!memory.exists() && !cpu.exists());
}
