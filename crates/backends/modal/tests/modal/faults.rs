//! Networks and servers that fail.

use crate::rig::Rig;
use farshell_engine::Kind;
use farshell_engine::RunOptions;
use farshell_engine::backend::Backend;
use farshell_engine::capture::Capture;
use farshell_modal::client::{Access, Client};
use farshell_protocol::SessionName;
use std::time::Duration;

const PASSING: [&str; 5] =
    ["unavailable-before", "unavailable-after", "reset-before", "reset-after", "throttle"];

#[tokio::test(flavor = "multi_thread")]
async fn no_trouble_makes_a_second_sandbox() {
    let Some(rig) = Rig::new() else { return };
    for kind in PASSING {
        for rpc in
            ["SandboxCreateV2", "AppGetOrCreate", "ImageGetOrCreate", "SandboxGetFromNameV2", "AuthTokenGet"]
        {
            rig.faults(&format!(r#"[{{"kind":"{kind}","rpc":"{rpc}","count":2,"ms":10}}]"#));
            let place = rig.place().await;
            rig.faults("[]");
            let all = rig.running().await;
            assert_eq!(all.len(), 1, "{kind} {rpc}: {all:?}");
            place.destroy().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_servers_one_that_answers_is_enough() {
    let Some(rig) = Rig::new() else { return };
    // Nobody is there any more.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let alive = rig.config.environment["MODAL_SERVER_URL"].clone();
    for servers in [format!("http://{dead},{alive}"), format!("{alive},http://{dead}")] {
        let client = {
            let mut environment = rig.config.environment.clone();
            environment.insert("MODAL_SERVER_URL".into(), servers.clone());
            Client::new(&Access::load(&environment, &rig.config.files).unwrap()).unwrap()
        };
        assert_eq!(client.workspace().await.unwrap(), "emulated", "{servers}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn putting_away_and_restoring_get_over_trouble() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo 0 > ~/x").await;
    let rpcs = [
        "TaskSnapshotFilesystem",
        "SandboxTerminateV2",
        "SandboxWaitV2",
        "SandboxGetCommandRouterAccess",
        "ImageFromId",
        "SandboxGetExitSnapshotV2",
    ];
    for (round, kind) in PASSING.into_iter().enumerate() {
        for rpc in rpcs {
            rig.faults(&format!(r#"[{{"kind":"{kind}","rpc":"{rpc}","ms":10}}]"#));
            rig.place().await.suspend().await.unwrap();
            assert!(rig.running().await.is_empty(), "{kind} {rpc}");
            let env = rig.open().await;
            rig.faults("[]");
            assert_eq!(
                env.out(&format!("cat ~/x; echo {round}{rpc} > ~/x; echo 0 > ~/x")).await,
                "0",
                "{kind} {rpc}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modal_that_is_away_is_an_error_and_nothing_is_made() {
    let Some(rig) = Rig::new() else { return };
    rig.faults(r#"[{"kind":"unavailable-before","rpc":"SandboxGetFromNameV2","count":99}]"#);
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(rig.backend().find(&rig.spec()).await.is_err());
    rig.faults("[]");
    assert!(rig.running().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outpost_gets_there_in_spite_of_trouble() {
    for kind in PASSING {
        let Some(rig) = Rig::new() else { return };
        let rpcs = ["TaskExecStart", "TaskExecStdinWrite", "TaskExecStdioRead", "TaskExecWait"];
        let all: Vec<String> = rpcs
            .iter()
            .map(|rpc| format!(r#"{{"kind":"{kind}","rpc":"{rpc}","skip":1,"count":2,"ms":10}}"#))
            .collect();
        rig.faults(&format!("[{}]", all.join(",")));
        assert_eq!(rig.open().await.out("echo there").await, "there", "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_cut_cost_no_byte_and_run_nothing_twice() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("true").await;
    let command = "echo ran >> /tmp/ran; for i in $(seq 1 300); do echo line $i; sleep 0.005; done";
    let expected: Vec<String> = (1..=300).map(|i| format!("line {i}")).collect();
    let rounds =
        ["cut", "cut-connection", "unavailable-before", "unavailable-after", "reset-before", "reset-after"];
    for (round, kind) in rounds.into_iter().enumerate() {
        let rpc = if kind.starts_with("cut") { "TaskExecStdioRead" } else { "TaskExec" };
        rig.faults(&format!(r#"[{{"kind":"{kind}","rpc":"{rpc}","count":5,"bytes":777}}]"#));
        // A stream that is open already is not cut.
        env.0.outpost().disconnect();
        assert_eq!(env.out(command).await, expected.join("\n"), "{kind}");
        rig.faults("[]");
        assert_eq!(env.out("wc -l < /tmp/ran").await, (round + 1).to_string(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_and_a_server_that_moves_are_asked_for_again() {
    let Some(rig) = Rig::new() else { return };
    rig.faults(r#"[{"kind":"expired-jwt"}]"#);
    let env = rig.open().await;
    assert_eq!(env.out("x=1; echo here").await, "here");
    rig.post("/emulator/move-router", "");
    assert_eq!(env.out("echo $x").await, "1");
    env.0.outpost().disconnect();
    rig.faults(r#"[{"kind":"expired-jwt","count":2}]"#);
    rig.post("/emulator/move-router", "");
    assert_eq!(env.out("echo $x").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_ends_the_command_and_never_the_sandbox() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    let id = env.id();
    let mut options = RunOptions::new(SessionName::new("main").unwrap(), "setsid sleep 1000 & sleep 1000");
    options.timeout = Some(Duration::from_millis(300));
    let status = env.0.run(&options, &mut Capture::unlimited()).await.unwrap();
    assert!(status.timed_out, "{status:?}");
    assert_eq!(env.out("pgrep -xc sleep").await.trim(), "1", "only what the sandbox itself runs");
    assert_eq!((env.id(), rig.running().await.len()), (id, 1));
}
