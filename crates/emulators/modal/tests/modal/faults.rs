//! What can be made to go wrong does, once, and nothing else.

use crate::rig::{Emulator, connect};
use farshell_modal_proto::client::generic_result::GenericStatus;
use farshell_modal_proto::client::sandbox_get_exit_snapshot_response::{ErrorCode, Outcome};
use farshell_modal_proto::client::*;
use prost::Message;
use std::time::{Duration, Instant};
use tonic::{Code, Request};

#[tokio::test]
async fn unavailable_before_and_after() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let keyed = |key: &str| {
        let mut request: Request<SandboxCreateV2Request> = modal.ask(SandboxCreateV2Request {
            app_id: modal.app.clone(),
            definition: Some(modal.definition(&[])),
            ..Default::default()
        });
        request.metadata_mut().insert("x-idempotency-key", key.parse().unwrap());
        request
    };
    let count = async || {
        let list =
            modal.client.clone().sandbox_list_v2(modal.ask(SandboxListRequest::default())).await.unwrap();
        list.into_inner().sandboxes.len()
    };
    let mut client = modal.client.clone();
    emulator.arm(r#"[{"kind":"unavailable-before","rpc":"SandboxCreateV2"},{"kind":"unavailable-after","rpc":"SandboxCreateV2"}]"#);
    assert_eq!(client.sandbox_create_v2(keyed("a")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(count().await, 0);
    assert_eq!(client.sandbox_create_v2(keyed("a")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(count().await, 1);
    let made = client.sandbox_create_v2(keyed("a")).await.unwrap().into_inner();
    assert_eq!(count().await, 1, "{made:?}");
    assert_eq!(emulator.http("GET", "faults", ""), "[]");
    assert_eq!(emulator.count("SandboxCreateV2"), 3);

    // The same by a connection that goes: what had begun is finished.
    emulator.arm(r#"[{"kind":"reset-after","rpc":"SandboxCreateV2"}]"#);
    client.sandbox_create_v2(keyed("b")).await.unwrap_err();
    let again = client.sandbox_create_v2(keyed("b")).await.unwrap();
    assert_eq!(count().await, 2, "{again:?}");
    emulator.arm(r#"[{"kind":"reset-before","rpc":"SandboxCreateV2","skip":1}]"#);
    client.sandbox_create_v2(keyed("c")).await.unwrap();
    client.sandbox_create_v2(keyed("d")).await.unwrap_err();
    assert_eq!(count().await, 3);
}

#[tokio::test]
async fn throttling_says_when_to_come_back() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    emulator.arm(r#"[{"kind":"throttle","rpc":"SandboxListV2","ms":1500}]"#);
    let list = async || modal.client.clone().sandbox_list_v2(modal.ask(SandboxListRequest::default())).await;
    let refused = list().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let status = RpcStatus::decode(refused.details()).unwrap();
    assert_eq!(status.details[0].type_url, "type.modal.com/modal.client.RPCRetryPolicy");
    let policy = RpcRetryPolicy::decode(status.details[0].value.as_slice()).unwrap();
    assert!((policy.retry_after_secs - 1.5).abs() < 1e-6);
    list().await.unwrap();
}

#[tokio::test]
async fn a_stream_is_cut_at_a_byte() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    let exec = sandbox.start(sandbox.shell("seq 1 1000")).await;
    let whole: Vec<u8> = (1..=1000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    emulator.arm(r#"[{"kind":"cut","rpc":"TaskExecStdioRead","bytes":100},{"kind":"cut-connection","rpc":"TaskExecStdioRead","bytes":50}]"#);
    let (mut read, cut) = sandbox.read(&exec, 0, false).await.unwrap_err();
    assert_eq!((read.len(), cut.code()), (100, Code::Unavailable));
    let (more, _) = sandbox.read(&exec, 100, false).await.unwrap_err();
    assert!(more.len() <= 50);
    read.extend(more);
    read.extend(sandbox.read(&exec, read.len() as u64, false).await.unwrap());
    assert!(read == whole);
}

#[tokio::test]
async fn access_that_is_over_already() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    emulator.arm(r#"[{"kind":"expired-jwt"}]"#);
    let sandbox = modal.sandbox().await;
    let refused =
        sandbox.router.clone().task_exec_start(sandbox.ask(sandbox.shell("true"))).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unauthenticated, "token is expired"));
}

#[tokio::test]
async fn starts_that_are_slow_or_fail() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    emulator.arm(
        r#"[{"kind":"slow-start","ms":700},{"kind":"slow-start","ms":3000},{"kind":"slow-start","ms":60000}]"#,
    );
    let before = Instant::now();
    // It is made at once; the first process waits for it.
    let sandbox = modal.sandbox().await;
    sandbox.sh("true").await;
    assert!(before.elapsed() >= Duration::from_millis(700));
    // One of the first kind has no task before that.
    let wish = SandboxCreateRequest {
        app_id: modal.app.clone(),
        definition: Some(modal.definition(&[])),
        ..Default::default()
    };
    let mut client = modal.client.clone();
    let sandbox_id = client.sandbox_create(modal.ask(wish)).await.unwrap().into_inner().sandbox_id;
    let wish = SandboxGetTaskIdRequest { sandbox_id, ..Default::default() };
    assert_eq!(client.sandbox_get_task_id(modal.ask(wish.clone())).await.unwrap().into_inner().task_id, None);
    let wish = SandboxGetTaskIdRequest { timeout: Some(30.0), ..wish };
    assert!(client.sandbox_get_task_id(modal.ask(wish)).await.unwrap().into_inner().task_id.is_some());
    // It can be ended while it still starts.
    let never = modal.sandbox().await;
    modal.terminate(&never.id).await;
    assert_eq!(never.result().await.status(), GenericStatus::Terminated);
    emulator.arm(r#"[{"kind":"start-error"}]"#);
    assert_eq!(modal.sandbox().await.result().await.status(), GenericStatus::InitFailure);
}

#[tokio::test]
async fn exit_snapshots_that_are_slow_or_fail() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let definition = Sandbox {
        experimental_options_v2: [("enable_exit_snapshot".to_owned(), "True".to_owned())].into(),
        ..modal.definition(&[])
    };
    emulator.arm(r#"[{"kind":"slow-exit-snapshot","ms":16000},{"kind":"exit-snapshot-error","skip":1}]"#);
    let (slow, failing) = (modal.create(definition.clone()).await, modal.create(definition).await);
    modal.terminate(&slow.id).await;
    slow.result().await;
    // Longer than a call waits.
    assert!(matches!(slow.exit_snapshot().await.unwrap(), Outcome::Pending(_)));
    let done = loop {
        match slow.exit_snapshot().await.unwrap() {
            Outcome::Pending(_) => {}
            done => break done,
        }
    };
    assert!(matches!(done, Outcome::Success(_)), "{done:?}");
    modal.terminate(&failing.id).await;
    failing.result().await;
    let done = failing.exit_snapshot().await.unwrap();
    let Outcome::Error(error) = done else { panic!("{done:?}") };
    assert_eq!(error.error_code(), ErrorCode::Internal);
}

#[tokio::test]
async fn the_router_moves() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let sandbox = modal.sandbox().await;
    let exec = sandbox.start(sandbox.shell("echo before; read line; echo after")).await;
    let reading = tokio::spawn({
        let (sandbox, exec) = (sandbox.clone(), exec.clone());
        async move { sandbox.read(&exec, 0, false).await }
    });
    let answer: serde_json::Value = serde_json::from_str(&emulator.http("POST", "move-router", "")).unwrap();
    let url = answer["url"].as_str().unwrap().to_owned();
    // Connections to the old one are gone, and nobody listens there.
    let (read, _) = reading.await.unwrap().unwrap_err();
    assert!(b"before\n".starts_with(&read));
    assert!(sandbox.wait(&exec).await.is_err());
    let target = sandbox_get_command_router_access_request::Target::SandboxId(sandbox.id.clone());
    let wish = SandboxGetCommandRouterAccessRequest { target: Some(target) };
    let access =
        modal.client.clone().sandbox_get_command_router_access(modal.ask(wish)).await.unwrap().into_inner();
    assert_eq!(access.url, url);
    let mut moved = sandbox.clone();
    moved.router = farshell_modal_proto::router::task_command_router_client::TaskCommandRouterClient::new(
        connect(&url).await,
    );
    moved.write(&exec, 0, b"\n", true).await.unwrap();
    assert_eq!(moved.read(&exec, 0, false).await.unwrap(), b"before\nafter\n");
}

#[tokio::test]
async fn far_away() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let sandbox = modal.sandbox().await;
    sandbox.sh("true").await;
    emulator.http("POST", "latency/200", "");
    let far = emulator.client().await;
    let before = Instant::now();
    far.client.clone().client_hello(far.ask(())).await.unwrap();
    assert!(before.elapsed() >= Duration::from_millis(200));
    // What is read comes through whole.
    let url = sandbox_url(&far, &sandbox.id).await;
    let mut distant = sandbox.clone();
    distant.router = farshell_modal_proto::router::task_command_router_client::TaskCommandRouterClient::new(
        connect(&url).await,
    );
    let exec = distant.start(distant.shell("head -c 4000000 /dev/zero")).await;
    let before = Instant::now();
    assert_eq!(distant.read(&exec, 0, false).await.unwrap().len(), 4_000_000);
    let taken = before.elapsed();
    assert!(taken >= Duration::from_millis(200), "{taken:?}");
}

async fn sandbox_url(modal: &crate::rig::Modal, id: &str) -> String {
    let target = sandbox_get_command_router_access_request::Target::SandboxId(id.into());
    let wish = SandboxGetCommandRouterAccessRequest { target: Some(target) };
    modal.client.clone().sandbox_get_command_router_access(modal.ask(wish)).await.unwrap().into_inner().url
}
