//! How environments come to be: lazily, once, and the right one.

use crate::rig::{Rig, all_events, events_of, whole};
use farshell_api::environment::{Environment, EnvironmentState};
use farshell_api::event::EventKind;
use farshell_api::run::{Caller, StartRequest, Target};
use farshell_engine::Kind;
use std::sync::atomic::Ordering;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_first_calls_make_one_environment() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    assert_eq!(keeper.environments().await.unwrap(), [], "nothing is made before it is needed");
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let (keeper, start) = (keeper.clone(), rig.command(&format!("echo {n}")));
            let start = StartRequest { session: format!("s{n}"), ..start };
            tokio::spawn(async move { keeper.run(whole(start)).await.unwrap().stdout })
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), format!("{n}\n"));
    }
    assert_eq!(rig.backends.provisioned.load(Ordering::SeqCst), 1);
    assert_eq!(rig.outposts().len(), 1);
    assert_eq!(events_of(&keeper, EventKind::EnvironmentCreated).await.len(), 1);
    let list = keeper.environments().await.unwrap();
    assert_eq!(list.len(), 1);
    let environment = &list[0];
    assert_eq!((environment.key.as_str(), environment.state), ("local/default", EnvironmentState::Ready));
    assert_eq!((environment.foreground, environment.background), (0, 0));
    assert_eq!(environment.limits["memory"].support, "not enforced");
    assert!(environment.expires_at.unwrap() > environment.last_used_at);
    for name in ["default", "local/default"] {
        let found = keeper.environment(name).await.unwrap();
        // By two clocks, which differ by parts of a millisecond.
        assert!(found.expires_at.unwrap().abs_diff(environment.expires_at.unwrap()) < 10);
        assert_eq!(*environment, Environment { expires_at: environment.expires_at, ..found });
    }
    assert_eq!(keeper.environment("nobody").await.unwrap_err().kind, Kind::NotFound);
    rig.end(keeper).await;
}

#[tokio::test]
async fn state_lasts_from_run_to_run() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "mkdir sub; cd sub; export A=1").await;
    assert_eq!(rig.says(&keeper, "echo $A; basename $PWD").await, "1\nsub\n");
    // A live shell keeps everything.
    let live = |command: &str| {
        let target = rig.target_with("default", &[("TERMINAL_LOCAL_PERSISTENT", "true")]);
        whole(StartRequest { session: "live".into(), target, ..StartRequest::new(command) })
    };
    keeper.run(live("f() { echo f; }; v=2")).await.unwrap();
    assert_eq!(keeper.run(live("f; echo $v")).await.unwrap().stdout, "f\n2\n");
    rig.end(keeper).await;
}

#[tokio::test]
async fn tasks_share_a_place_and_keep_their_sessions() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let run = |task: &str, command: &str| {
        keeper.run(whole(StartRequest { target: rig.target(task), ..StartRequest::new(command) }))
    };
    run("a", "export A=a").await.unwrap();
    run("b", "export A=b").await.unwrap();
    assert_eq!(run("a", "echo $A").await.unwrap().stdout, "a\n");
    assert_eq!(run("b", "echo $A").await.unwrap().stdout, "b\n");
    assert_eq!(run("default", "echo $A").await.unwrap().stdout, "\n");
    let list = keeper.environments().await.unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].tasks, ["a", "b", "default"]);
    assert_eq!(keeper.environment("b").await.unwrap().key, "local/default");
    assert_eq!(rig.outposts().len(), 1);
    rig.end(keeper).await;
}

#[tokio::test]
async fn with_isolation_each_task_has_a_place() {
    let rig = Rig::new();
    rig.config("terminal:\n  isolation: task\n");
    let keeper = rig.open().await;
    let run = |task: &str, command: &str| {
        keeper.run(whole(StartRequest { target: rig.target(task), ..StartRequest::new(command) }))
    };
    run("a", "export A=a").await.unwrap();
    run("b", "true").await.unwrap();
    assert_eq!(run("a", "echo $A").await.unwrap().stdout, "a\n");
    let list = keeper.environments().await.unwrap();
    let keys: Vec<_> = list.iter().map(|e| (e.key.as_str(), e.tasks.clone())).collect();
    assert_eq!(keys, [("local/a", vec!["a".to_owned()]), ("local/b", vec!["b".to_owned()])]);
    assert_eq!(rig.outposts().len(), 2);
    rig.end(keeper).await;
}

#[tokio::test]
async fn another_backend_takes_effect_with_the_next_call() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    assert_eq!(rig.run(&keeper, "true").await.backend, "local");
    rig.config("terminal:\n  backend: daytona\n");
    assert_eq!(rig.run(&keeper, "true").await.backend, "daytona");
    let target = Target { backend: Some("local".into()), ..rig.target("default") };
    let start = StartRequest { target, ..StartRequest::new("true") };
    assert_eq!(keeper.run(whole(start)).await.unwrap().backend, "local");
    let list = keeper.environments().await.unwrap();
    assert_eq!(list.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["daytona/default", "local/default"]);
    assert_eq!(keeper.environment("default").await.unwrap_err().kind, Kind::Invalid, "two are meant");
    rig.config("terminal:\n  backend: modal\n");
    assert_eq!(keeper.run(rig.request("true")).await.unwrap_err().kind, Kind::Unavailable);
    rig.config("terminal:\n  backend: nowhere\n");
    let error = keeper.run(rig.request("true")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("nowhere"), "{error}");
    rig.config("");
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_changed_setting_makes_it_anew_unless_something_runs() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "export A=1").await;
    let before = keeper.environment("default").await.unwrap();

    rig.config("terminal:\n  auto_source_bashrc: false\n");
    let process = {
        // Something runs in the old one.
        let old = rig.target_with("default", &[("TERMINAL_AUTO_SOURCE_BASHRC", "true")]);
        keeper.start(StartRequest { target: old, ..StartRequest::new("sleep 1000") }).await.unwrap()
    };
    let error = keeper.run(rig.request("true")).await.unwrap_err();
    assert_eq!(error.kind, Kind::SpecChanged);
    assert!(error.message.contains("auto_source_bashrc: true -> false"), "{error}");
    keeper.kill(&process.id, Default::default()).await.unwrap();

    assert_eq!(rig.says(&keeper, "echo $A").await, "\n");
    let after = keeper.environment("default").await.unwrap();
    assert_ne!(before.spec_hash, after.spec_hash);
    assert_eq!(rig.outposts().len(), 1);
    let recreated = events_of(&keeper, EventKind::EnvironmentRecreated).await;
    assert_eq!(recreated.len(), 1);
    assert_eq!(recreated[0].data["difference"], serde_json::json!(["auto_source_bashrc: true -> false"]));

    rig.config("terminal:\n  auto_source_bashrc: true\n  on_spec_change: refuse\n");
    let error = keeper.run(rig.request("true")).await.unwrap_err();
    assert_eq!(error.kind, Kind::SpecChanged);
    assert!(error.hint.unwrap().contains("env rm"));
    assert_eq!(keeper.environment("default").await.unwrap().spec_hash, after.spec_hash);
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_can_not_be_made_is_said_and_tried_again() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.backends.broken.store(true, Ordering::SeqCst);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (keeper, request) = (keeper.clone(), rig.request("true"));
            tokio::spawn(async move { keeper.run(request).await.unwrap_err().kind })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Kind::Unavailable);
    }
    assert!(rig.backends.provisioned.load(Ordering::SeqCst) < 20, "those who waited share one failure");
    let environment = keeper.environment("default").await.unwrap();
    assert_eq!(environment.state, EnvironmentState::Failed);
    assert!(environment.note.unwrap().contains("it is broken"));
    assert!(!events_of(&keeper, EventKind::EnvironmentFailed).await.is_empty());
    rig.backends.broken.store(false, Ordering::SeqCst);
    assert_eq!(rig.says(&keeper, "echo ok").await, "ok\n");
    assert_eq!(keeper.environment("default").await.unwrap().note, None);
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_caller_decides_the_variables_and_the_directory() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    std::fs::create_dir(rig.home().join("here")).unwrap();
    let mut caller = rig.caller(&[("MINE", "x"), ("OPENAI_API_KEY", "secret"), ("TERMINAL_TIMEOUT", "77")]);
    caller.cwd = Some(rig.home().join("here").to_str().unwrap().into());
    let target = Target { caller: Some(caller), ..Target::default() };
    let start = StartRequest {
        target,
        ..StartRequest::new("basename $PWD; echo $MINE,$OPENAI_API_KEY,$TERMINAL_TIMEOUT")
    };
    assert_eq!(keeper.run(whole(start)).await.unwrap().stdout, "here\nx,,\n");
    for caller in [
        Caller { cwd: Some("relative".into()), env: None },
        Caller { cwd: None, env: Some([("A=B".to_owned(), "x".into())].into()) },
    ] {
        let target = Target { caller: Some(caller), ..Target::default() };
        let start = StartRequest { target, ..StartRequest::new("true") };
        let error = keeper.run(whole(start)).await.unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.operation.starts_with("reading target.caller."), "{error}");
    }
    let start = StartRequest { target: rig.target("no name"), ..StartRequest::new("true") };
    assert_eq!(keeper.run(whole(start)).await.unwrap_err().operation, "reading target.task");
    rig.end(keeper).await;
}

#[tokio::test]
async fn events_tell_of_the_server_too() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    keeper.close(false).await.unwrap();
    assert_eq!(keeper.run(rig.request("true")).await.unwrap_err().kind, Kind::Unavailable);
    let keeper = rig.open().await;
    let kinds: Vec<EventKind> = all_events(&keeper).await.iter().map(|event| event.kind).collect();
    use EventKind::{ServerStarted, ServerStopped};
    assert_eq!(kinds, [ServerStarted, ServerStopped, ServerStarted]);
    assert_eq!(keeper.warnings(), Vec::<String>::new());
    rig.end(keeper).await;
}

#[tokio::test]
async fn files_are_those_of_the_session_and_keep_their_environment() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let (target, quiet) = (rig.target("default"), |_: &farshell_engine::backend::News| {});
    // The first to come makes the environment and the session.
    let files = keeper.files(&target, "default", &quiet).await.unwrap();
    assert_eq!((files.backend(), files.environment()), ("local", "local/default"));
    rig.says(&keeper, "mkdir sub; cd sub; printf inside > file").await;
    let read = files.outpost().read_file(Some(files.session()), b"file", 0, None).await;
    assert_eq!(read.unwrap().next().await.unwrap().unwrap(), b"inside");
    assert_eq!(keeper.environment("default").await.unwrap().foreground, 1, "it is in use");
    let busy = keeper.remove(farshell_api::environment::RemoveRequest {
        names: vec!["default".into()],
        ..Default::default()
    });
    assert_eq!(busy.await.unwrap().failed.len(), 1, "it can't be taken away");
    drop(files);
    assert_eq!(keeper.environment("default").await.unwrap().foreground, 0);
    rig.end(keeper).await;
}
