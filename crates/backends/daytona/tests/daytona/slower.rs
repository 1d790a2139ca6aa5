//! Networks that let no websocket through, and servers that make no terminals.

use crate::rig::{Env, Rig};
use farshell_engine::RunOptions;
use farshell_engine::capture::Capture;
use farshell_protocol::SessionName;
use farshell_protocol::process::{End, State};
use std::time::Duration;

const REFUSED: &str = r#"{"kind":"ws-refuse","path":"/connect","count":1000000}"#;
const BRIDGES: &str = "ls -d ~/.farshell/way-* 2>/dev/null | wc -l";

/// A Daytona without websockets, and an environment in it.
async fn without_sockets() -> Option<(Rig, Env)> {
    let rig = Rig::new()?;
    rig.faults(&format!("[{REFUSED}]"));
    let env = rig.open().await;
    Some((rig, env))
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_the_same_without_websockets() {
    let Some((rig, env)) = without_sockets().await else { return };
    assert_eq!(env.out("cd /tmp; export A=1; f() { echo f $A; }; f").await, "f 1");
    assert_eq!(env.out("f; pwd").await, "f 1\n/tmp");
    assert_eq!(env.out(BRIDGES).await, "1", "this is the slower way");
    let status = env.run("exit 7").await.status;
    assert_eq!(status.state, State::Ended(End::Exited(7)));
    // Much in each direction.
    let much = "x".repeat(300_000);
    let said =
        env.out(&format!("y={much}; printf %s $y | wc -c; head -c 3000000 /dev/zero | tr '\\0' z")).await;
    assert_eq!(said.split_once('\n').unwrap().0, "300000");
    assert_eq!(said.len(), 7 + 3_000_000);
    // Two at once, one of them silent.
    let slow = async {
        let mut options = RunOptions::new(SessionName::new("other").unwrap(), "sleep 2; echo slow");
        options.timeout = Some(Duration::from_secs(60));
        let mut capture = Capture::unlimited();
        env.env.run(&options, &mut capture).await.unwrap();
        String::from_utf8(capture.stdout.to_bytes()).unwrap()
    };
    let (slow, quick) = tokio::join!(slow, env.out("echo quick"));
    assert_eq!((slow.as_str(), quick.as_str()), ("slow\n", "quick"));
    // A limit ends the command and its children, and nothing else.
    let mut options = RunOptions::new(SessionName::new("main").unwrap(), "sleep 1000 & sleep 1000");
    options.timeout = Some(Duration::from_millis(300));
    let status = env.env.run(&options, &mut Capture::unlimited()).await.unwrap();
    assert!(status.timed_out, "{status:?}");
    assert_eq!(env.out("pgrep -x sleep | wc -l; f").await, "0\nf 1");
    assert_eq!(rig.sandboxes().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_makes_no_terminals_is_reached_the_slower_way() {
    for kind in ["403", "404", "500"] {
        let Some(rig) = Rig::new() else { return };
        rig.faults(&format!(
            r#"[{{"kind":"{kind}","method":"POST","path":"/process/pty","count":1000000}}]"#
        ));
        let env = rig.open().await;
        assert_eq!(env.out("cd /tmp; echo $((6 * 7))").await, "42", "{kind}");
        assert_eq!(env.out(&format!("{BRIDGES}; pwd")).await, "1\n/tmp", "{kind}");
        // It is stopped and woken as any other.
        rig.place().await.suspend().await.unwrap();
        assert_eq!(env.out("echo awake").await, "awake", "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slower_way_runs_nothing_twice_and_loses_nothing() {
    let Some((rig, env)) = without_sockets().await else { return };
    assert_eq!(env.out("true").await, "");
    let command = "echo ran >> /tmp/ran; for i in $(seq 1 300); do echo line $i; sleep 0.01; done";
    let expected: Vec<String> = (1..=300).map(|i| format!("line {i}")).collect();
    for (round, kind) in ["502", "reset-before", "reset-after", "503", "500"].into_iter().enumerate() {
        // Some go well, so that it happens in the middle.
        let fault = format!(r#"{{"kind":"{kind}","path":"/process/execute","skip":3,"count":2}}"#);
        rig.faults(&format!("[{REFUSED},{fault}]"));
        assert_eq!(env.out(command).await, expected.join("\n"), "{kind}");
        rig.faults(&format!("[{REFUSED}]"));
        assert_eq!(env.out("wc -l < /tmp/ran").await, (round + 1).to_string(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_away_leaves_no_bridge_behind() {
    let Some((rig, env)) = without_sockets().await else { return };
    assert_eq!(env.out(BRIDGES).await, "1");
    env.env.outpost().disconnect();
    rig.faults("[]");
    // By the usual way, from where the other can be seen to end.
    let usual = rig.open().await;
    let gone = async {
        while usual.out(BRIDGES).await != "0" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    assert_eq!(usual.out("pgrep -fc 'outpost.*connect'").await, "1", "its own");
    // Asleep and awake again, still without websockets.
    rig.faults(&format!("[{REFUSED}]"));
    rig.place().await.suspend().await.unwrap();
    assert_eq!(env.out("echo awake").await, "awake");
}
