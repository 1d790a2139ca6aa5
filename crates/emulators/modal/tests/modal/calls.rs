//! Who may call, what is answered twice, and what is not served.

use crate::rig::{Emulator, connect, unique};
use farshell_modal_proto::client::modal_client_client::ModalClientClient;
use farshell_modal_proto::client::*;
use farshell_modal_proto::router::*;
use tonic::{Code, Request};

#[tokio::test]
async fn tokens_are_checked() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let mut plain = ModalClientClient::new(connect(&emulator.url).await);
    let missing = plain.client_hello(Request::new(())).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated);
    let mut wrong = modal.ask(());
    wrong.metadata_mut().insert("x-modal-token-secret", "as-other".parse().unwrap());
    assert_eq!(plain.client_hello(wrong).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(
        plain.client_hello(modal.ask(())).await.unwrap().into_inner().image_builder_version,
        "2025.06"
    );

    // Calls of the second kind want another token beside it, of ours and alive.
    let wish = || SandboxListRequest::default();
    let mut bare = modal.ask(wish());
    bare.metadata_mut().remove("x-modal-auth-token");
    assert_eq!(plain.sandbox_list_v2(bare).await.unwrap_err().code(), Code::Unauthenticated);
    let mut forged = modal.ask(wish());
    forged.metadata_mut().insert("x-modal-auth-token", "a.b.c".parse().unwrap());
    assert_eq!(plain.sandbox_list_v2(forged).await.unwrap_err().code(), Code::Unauthenticated);
    let sandbox = modal.sandbox().await;
    let mut other = modal.ask(wish());
    other.metadata_mut().insert("x-modal-auth-token", sandbox.jwt.parse().unwrap());
    assert_eq!(plain.sandbox_list_v2(other).await.unwrap_err().code(), Code::Unauthenticated);
    plain.sandbox_list_v2(modal.ask(wish())).await.unwrap();

    // One of a sandbox is not needed, and has to be one.
    let told = |token: &str| {
        let mut ask = modal.ask(wish());
        ask.metadata_mut().insert("x-modal-sandbox-token", token.parse().unwrap());
        ask
    };
    for wrong in ["a.b.c", sandbox.jwt.as_str()] {
        assert_eq!(plain.sandbox_list_v2(told(wrong)).await.unwrap_err().code(), Code::Unauthenticated);
    }

    // The router wants its own, for that task.
    let mut none = sandbox.clone();
    none.jwt = String::new();
    assert_eq!(none.wait("x").await.unwrap_err().code(), Code::Unauthenticated);
    let second = modal.sandbox().await;
    let mut crossed = sandbox.clone();
    crossed.jwt.clone_from(&second.jwt);
    assert_eq!(crossed.wait("x").await.unwrap_err().code(), Code::PermissionDenied);
    let mut auth = sandbox.clone();
    auth.jwt.clone_from(&modal.auth);
    assert_eq!(auth.wait("x").await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn access_to_the_router_ends() {
    let Some(emulator) = Emulator::start(&["--jwt-secs", "3"]) else { return };
    let modal = emulator.client().await;
    let sandbox = modal.sandbox().await;
    // It is over at some moment; then a new one helps.
    let refused = loop {
        match sandbox.router.clone().task_exec_start(sandbox.ask(sandbox.shell("true"))).await {
            Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            Err(status) => break status,
        }
    };
    assert_eq!((refused.code(), refused.message()), (Code::Unauthenticated, "token is expired"));
    let wish = SandboxGetCommandRouterAccessRequest {
        target: Some(sandbox_get_command_router_access_request::Target::SandboxId(sandbox.id.clone())),
    };
    let mut again = sandbox.clone();
    again.jwt = modal
        .client
        .clone()
        .sandbox_get_command_router_access(modal.ask(wish))
        .await
        .unwrap()
        .into_inner()
        .jwt;
    again.router.clone().task_exec_start(again.ask(again.shell("true"))).await.unwrap();
}

#[tokio::test]
async fn a_key_is_answered_once() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let create = |key: &'static str| {
        let modal = modal.clone();
        async move {
            let wish = SandboxCreateV2Request {
                app_id: modal.app.clone(),
                definition: Some(modal.definition(&[])),
                ..Default::default()
            };
            let mut request = modal.ask(wish);
            request.metadata_mut().insert("x-idempotency-key", key.parse().unwrap());
            modal.client.clone().sandbox_create_v2(request).await.unwrap().into_inner().sandbox_id
        }
    };
    // Also while the first is under way.
    let (a, b, c) = tokio::join!(create("one"), create("one"), create("one"));
    assert_eq!((&a, &b), (&b, &c));
    assert_eq!(create("one").await, a);
    assert_ne!(create("two").await, a);
    let all = modal.client.clone().sandbox_list_v2(modal.ask(SandboxListRequest::default())).await.unwrap();
    assert_eq!(all.into_inner().sandboxes.len(), 2);
}

#[tokio::test]
async fn an_id_is_started_once() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    let wish = sandbox.shell("echo one >> /tmp/count");
    let (a, b) = tokio::join!(sandbox.start(wish.clone()), sandbox.start(wish.clone()));
    assert_eq!(a, b);
    sandbox.wait(&a).await.unwrap();
    sandbox.start(wish).await;
    assert_eq!(sandbox.sh("cat /tmp/count").await, "one\n");
    let id = unique();
    let (a, b) = tokio::join!(sandbox.snapshot_as(&id, Some(-1)), sandbox.snapshot_as(&id, Some(-1)));
    assert_eq!(a.unwrap(), b.unwrap());
}

#[tokio::test]
async fn kinds_are_kept_apart() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let (second, first) = (modal.sandbox().await, modal.first_kind(modal.definition(&[])).await);
    assert_eq!((second.id.len(), first.id.len()), (29, 25));
    assert!(second.task.ends_with('V'), "{}", second.task);
    let mut client = modal.client.clone();
    let ask = |id: &str| modal.ask(SandboxWaitRequest { sandbox_id: id.into(), timeout: 0.0 });
    assert_eq!(client.sandbox_wait(ask(&second.id)).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.sandbox_wait_v2(ask(&first.id)).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.sandbox_wait_v2(ask("sb-nothing")).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.sandbox_wait(ask(&first.id)).await.unwrap().into_inner().result, None);
    // Both are driven alike.
    assert_eq!(first.sh("echo $MODAL_SANDBOX_ID").await.trim(), first.id);
    assert_eq!(second.sh("echo $MODAL_SANDBOX_ID").await.trim(), second.id);
}

#[tokio::test]
async fn what_is_not_served_says_its_name() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let ask = async |path: &'static str, url: &str, request: Request<()>| {
        let mut grpc = tonic::client::Grpc::new(connect(url).await);
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        grpc.unary(request, path, codec).await.unwrap_err()
    };
    let refused = ask("/modal.client.ModalClient/VolumeGetOrCreate", &emulator.url, modal.ask(())).await;
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("ModalClient/VolumeGetOrCreate"), "{refused}");
    // Each port has its own service.
    let path = "/modal.task_command_router.TaskCommandRouter/TaskExecPoll";
    let refused = ask(path, &emulator.url, modal.ask(())).await;
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("TaskExecPoll"), "{refused}");
    let mut definition = modal.definition(&[]);
    definition.volume_mounts = vec![VolumeMount::default()];
    let refused = modal.try_create(definition).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("Sandbox.volume_mounts"), "{refused}");
}

#[tokio::test]
async fn what_modal_refuses_is_refused() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let with = |resources: Resources| proto_with(&modal, resources);
    for resources in [
        Resources { memory_mb: 200, memory_mb_max: 100, ..Default::default() },
        Resources { milli_cpu: 200, milli_cpu_max: 100, ..Default::default() },
        Resources { ephemeral_disk_mb: 1, ..Default::default() },
    ] {
        assert_eq!(modal.try_create(with(resources)).await.unwrap_err().code(), Code::InvalidArgument);
    }
    let mut long = modal.definition(&[&"x".repeat(65_537)]);
    assert_eq!(modal.try_create(long.clone()).await.unwrap_err().code(), Code::InvalidArgument);
    long.entrypoint_args.clear();
    long.timeout_secs = 86_401;
    assert_eq!(modal.try_create(long).await.unwrap_err().code(), Code::InvalidArgument);
    let mut nowhere = modal.definition(&[]);
    nowhere.image_id = "im-0000000000000000000000".into();
    assert_eq!(modal.try_create(nowhere).await.unwrap_err().code(), Code::NotFound);
    let missing = modal.build(&["FROM nowhere/nothing:1"]).await.unwrap_err();
    assert!(missing.contains("nowhere/nothing:1"), "{missing}");
    let status = TaskExecStdinStatusRequest { task_id: "ta-nothing".into(), ..Default::default() };
    let sandbox = modal.sandbox().await;
    let refused = sandbox.router.clone().task_exec_stdin_status(sandbox.ask(status)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(sandbox.wait("nothing").await.unwrap_err().code(), Code::NotFound);
}

fn proto_with(modal: &crate::rig::Modal, resources: Resources) -> Sandbox {
    let mut definition = modal.definition(&[]);
    definition.resources = Some(resources);
    definition
}
