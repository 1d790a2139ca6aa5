//! Processes, and their output by offset.

use crate::rig::{Emulator, Sandbox};
use farshell_modal_proto::client::*;
use farshell_modal_proto::router::*;
use tonic::Code;

#[tokio::test]
async fn output_is_read_from_any_byte_by_any_number() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    let wish = sandbox.shell("seq 1 100000; read line; echo last >&2");
    let exec = sandbox.start(wish).await;
    let whole: Vec<u8> = (1..=100_000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    // Three readers, one of them from the middle, while it runs.
    let readers: Vec<_> = [0, 0, 300_001]
        .into_iter()
        .map(|offset| {
            let (sandbox, exec) = (sandbox.clone(), exec.clone());
            tokio::spawn(async move { (offset, sandbox.read(&exec, offset, false).await) })
        })
        .collect();
    sandbox.write(&exec, 0, b"\n", true).await.unwrap();
    for reader in readers {
        let (offset, read) = reader.await.unwrap();
        assert!(read.unwrap() == whole[usize::try_from(offset).unwrap()..]);
    }
    assert_eq!(sandbox.wait(&exec).await.unwrap(), 0);
    // After its end, all of it is still there.
    assert!(sandbox.read(&exec, 0, false).await.unwrap() == whole);
    assert_eq!(sandbox.read(&exec, 2, true).await.unwrap(), b"st\n");
    assert_eq!(sandbox.read(&exec, 1 << 40, false).await.unwrap(), b"");
}

#[tokio::test]
async fn ends_are_told_apart() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    assert_eq!(
        sandbox.ran(sandbox.shell("echo out; echo err >&2; exit 3")).await,
        (3, "out\n".into(), "err\n".into())
    );
    let exec = sandbox.start(sandbox.shell("kill -TERM $$")).await;
    let wish = TaskExecWaitRequest { task_id: sandbox.task.clone(), exec_id: exec.clone() };
    let status =
        sandbox.router.clone().task_exec_wait(sandbox.ask(wish)).await.unwrap().into_inner().exit_status;
    assert_eq!(status, Some(task_exec_wait_response::ExitStatus::Signal(15)));
    let exec = sandbox.start(sandbox.shell("read line")).await;
    assert_eq!(poll(&sandbox, &exec).await, None);
    sandbox.write(&exec, 0, b"go\n", false).await.unwrap();
    sandbox.wait(&exec).await.unwrap();
    assert_eq!(poll(&sandbox, &exec).await, Some(task_exec_poll_response::ExitStatus::Code(0)));
    // As shells say it.
    let (code, out, err) = sandbox.ran(sandbox.wish(&["no-such-program"])).await;
    assert_eq!((code, out.as_str()), (127, ""));
    assert!(err.contains("no-such-program"), "{err}");
    let (code, _, err) = sandbox.ran(sandbox.wish(&["/etc/passwd"])).await;
    assert_eq!(code, 126, "{err}");
}

async fn poll(sandbox: &Sandbox, exec: &str) -> Option<task_exec_poll_response::ExitStatus> {
    let wish = TaskExecPollRequest { task_id: sandbox.task.clone(), exec_id: exec.into() };
    sandbox.router.clone().task_exec_poll(sandbox.ask(wish)).await.unwrap().into_inner().exit_status
}

#[tokio::test]
async fn a_timeout_kills_the_group_and_not_the_sandbox() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    let mut wish = sandbox.shell("trap '' TERM HUP; sleep 1000 & echo begun; sleep 1000");
    wish.timeout_secs = Some(1);
    let exec = sandbox.start(wish).await;
    // The output ends only when nobody has it open: the child is gone as well.
    assert_eq!(sandbox.read(&exec, 0, false).await.unwrap(), b"begun\n");
    assert_eq!(sandbox.wait(&exec).await.unwrap(), 137);
    let others = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^sleep$' || true";
    assert_eq!(sandbox.sh(others).await, "0\n");
}

#[tokio::test]
async fn a_terminal() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    let mut wish = sandbox.shell("test -t 0 && test -t 2 && tty && stty size && echo $TERM && cat");
    wish.pty_info = Some(PtyInfo {
        enabled: true,
        winsz_rows: 33,
        winsz_cols: 101,
        env_term: "xterm-256color".into(),
        ..Default::default()
    });
    let exec = sandbox.start(wish).await;
    sandbox.write(&exec, 0, b"typed\n", false).await.unwrap();
    sandbox.write(&exec, 6, b"", true).await.unwrap();
    assert_eq!(sandbox.wait(&exec).await.unwrap(), 0);
    let said = String::from_utf8(sandbox.read(&exec, 0, false).await.unwrap()).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("/dev/pts/")), "{said:?}");
    assert!(lines.contains(&"33 101") && lines.contains(&"xterm-256color"), "{said:?}");
    // Once as it was typed, once by cat.
    assert_eq!(lines.iter().filter(|line| **line == "typed").count(), 2, "{said:?}");
    assert_eq!(sandbox.read(&exec, 0, true).await.unwrap(), b"");
}

#[tokio::test]
async fn variables_directories_and_nothing() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let map =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let wish = SecretGetOrCreateRequest {
        object_creation_type: ObjectCreationType::Ephemeral as i32,
        env_dict: map(&[("A", "secret"), ("B", "secret"), ("C", "secret")]),
        ..Default::default()
    };
    let secret =
        modal.client.clone().secret_get_or_create(modal.ask(wish)).await.unwrap().into_inner().secret_id;
    let source = |pairs: &[(&str, &str)]| SecretSource {
        source: Some(secret_source::Source::Env(StringMap { contents: map(pairs) })),
    };
    let mut definition = modal.definition(&[]);
    definition.workdir = Some("/var/tmp".into());
    let wish = SandboxCreateV2Request {
        app_id: modal.app.clone(),
        definition: Some(definition),
        secret_sources: vec![source(&[("FROM", "sandbox"), ("C", "sandbox")])],
        ..Default::default()
    };
    let made = modal.client.clone().sandbox_create_v2(modal.ask(wish)).await.unwrap().into_inner();
    let access = made.command_router_access.unwrap();
    let mut sandbox = modal.sandbox().await;
    (sandbox.id, sandbox.task, sandbox.jwt) = (made.sandbox_id, made.task_id, access.jwt);

    assert_eq!(sandbox.sh("pwd; echo $FROM $C").await, "/var/tmp\nsandbox sandbox\n");
    let mut wish = sandbox.shell("pwd; echo $FROM $A $B $C");
    wish.workdir = Some("/usr".into());
    wish.secret_ids = vec![secret];
    wish.secret_sources = vec![source(&[("B", "first")]), source(&[("B", "second"), ("A", "second")])];
    wish.env = map(&[("A", "own")]);
    assert_eq!(sandbox.ran(wish).await, (0, "/usr\nsandbox own second secret\n".into(), String::new()));
    let mut wish = sandbox.shell("true");
    wish.env = map(&[("1BAD", "x")]);
    let refused = sandbox.router.clone().task_exec_start(sandbox.ask(wish)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);

    let mut wish = sandbox.shell("echo unheard; echo unseen >&2");
    (wish.stdout_config, wish.stderr_config) = (0, 0);
    assert_eq!(sandbox.ran(wish).await, (0, String::new(), String::new()));
    let mut wish = sandbox.shell("true");
    wish.workdir = Some("/nowhere".into());
    let (code, _, err) = sandbox.ran(wish).await;
    assert!(code == 127 && err.contains("/nowhere"), "{err}");
}

#[tokio::test]
async fn too_many_arguments() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    let long = "x".repeat(60_000);
    let refused = sandbox.wish(&["echo", &long, &long, &long]);
    let refused = sandbox.router.clone().task_exec_start(sandbox.ask(refused)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let (code, out, _) = sandbox.ran(sandbox.wish(&["echo", &long, &long])).await;
    assert_eq!((code, out.len()), (0, 120_002));
}

#[tokio::test]
async fn a_root_and_processes_of_its_own() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let (one, two) = (modal.sandbox().await, modal.sandbox().await);
    one.sh("echo mine > /etc/mine; echo mine > /usr/mine; rm /usr/bin/env; echo x > /root/x").await;
    assert!(!std::path::Path::new("/etc/mine").exists() && !std::path::Path::new("/usr/mine").exists());
    assert!(std::path::Path::new("/usr/bin/env").exists());
    assert_eq!(
        two.sh("ls -d /etc/mine /usr/mine /root/x 2>/dev/null | wc -l; ls /usr/bin/env").await,
        "0\n/usr/bin/env\n"
    );
    // The first process, and those that run now.
    let seen: u32 = two.sh("ls -d /proc/[0-9]* | wc -l").await.trim().parse().unwrap();
    assert!(seen < 8, "{seen}");
    let mut definition = modal.definition(&[]);
    definition.network_access = Some(NetworkAccess {
        network_access_type: network_access::NetworkAccessType::Blocked as i32,
        ..Default::default()
    });
    let alone = modal.create(definition).await;
    assert_eq!(alone.sh("tail -n +3 /proc/net/dev | grep -cv lo: || true").await.trim(), "0");
}
