//! Networks and servers that fail.

use crate::rig::Rig;
use farshell_daytona::client::{Access, Client, Fault, State};
use farshell_engine::Kind;
use farshell_engine::backend::Backend;
use std::collections::BTreeMap;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn no_trouble_makes_a_second_sandbox() {
    let Some(rig) = Rig::new() else { return };
    for kind in ["500", "502", "503", "520", "429", "reset-before", "reset-after"] {
        for (method, path) in [("POST", "/api/sandbox"), ("GET", "/api/sandbox/hermes-default")] {
            rig.faults(&format!(r#"[{{"kind":"{kind}","method":"{method}","path":"{path}","count":2}}]"#));
            let place = rig.place().await;
            rig.faults("[]");
            let all = rig.sandboxes().await;
            assert_eq!(all.len(), 1, "{kind} {method}: {all:?}");
            place.destroy().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn starting_and_stopping_get_over_trouble() {
    let Some(rig) = Rig::new() else { return };
    let place = rig.place().await;
    for kind in ["500", "502", "429", "reset-before", "reset-after"] {
        for path in ["/stop", "/start"] {
            rig.faults(&format!(r#"[{{"kind":"{kind}","path":"{path}"}}]"#));
            place.suspend().await.unwrap();
            assert_eq!(rig.sandbox().await.state, State::Stopped, "{kind} {path}");
            assert_eq!(rig.place().await.identity(), place.identity(), "{kind} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daytona_that_can_not_tell_is_an_error_and_nothing_is_made() {
    let Some(rig) = Rig::new() else { return };
    rig.faults(r#"[{"kind":"501","path":"/api/sandbox/hermes","count":99}]"#);
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::System, "{error}");
    assert!(rig.backend().find(&rig.spec()).await.is_err());
    rig.faults("[]");
    assert!(rig.sandboxes().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outpost_gets_there_in_spite_of_trouble() {
    for kind in ["500", "502", "520", "reset-before", "reset-after"] {
        for path in ["/process/execute", "/files/bulk-upload", "/process/pty"] {
            let Some(rig) = Rig::new() else { return };
            rig.faults(&format!(r#"[{{"kind":"{kind}","path":"{path}"}}]"#));
            assert_eq!(rig.open().await.out("echo there").await, "there", "{kind} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_closes_early_costs_no_byte_and_runs_nothing_twice() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("true").await;
    rig.faults(r#"[{"kind":"ws-close","path":"/connect","ms":300,"count":4},{"kind":"ws-refuse","path":"/connect","count":1,"skip":2}]"#);
    env.env.outpost().disconnect();
    let command =
        "echo ran >> /tmp/ran; for i in $(seq 1 200); do echo line $i; sleep 0.01; done; wc -l < /tmp/ran";
    let expected: Vec<String> = (1..=200).map(|i| format!("line {i}")).chain(["1".to_owned()]).collect();
    assert_eq!(env.out(command).await, expected.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_from_outside_is_told_and_the_next_command_works() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo kept > ~/kept").await;
    rig.client().stop("hermes-default").await.unwrap();
    while rig.sandbox().await.state != State::Stopped {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(env.out("cat ~/kept").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_goes_nowhere_else_and_a_wrong_one_is_said() {
    let Some(rig) = Rig::new() else { return };
    let Some(elsewhere) = Rig::new() else { return };
    rig.faults(&format!(
        r#"[{{"kind":"redirect","path":"/api/sandbox","to":"{}/sandbox/x"}}]"#,
        elsewhere.url
    ));
    let error = rig.client().get("x").await.unwrap_err();
    assert!(matches!(error.fault, Fault::Forbidden(_)), "{error}");
    let wrong =
        Client::new(&Access { url: rig.url.clone(), key: "wrong".into(), organization: None }).unwrap();
    assert_eq!(wrong.get("x").await.unwrap_err().status(), Some(401));
    let rig = rig.set(|config| drop(config.environment.insert("DAYTONA_API_KEY".into(), "wrong".into())));
    let findings = rig.backend().check().await;
    assert_eq!(findings.len(), 1);
    assert!(
        findings[0].hint.as_ref().unwrap().contains("farshell config set DAYTONA_API_KEY"),
        "{findings:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_lags_hides_nothing_from_us() {
    let Some(rig) = Rig::new() else { return };
    rig.faults(r#"[{"kind":"list-lag","ms":60000}]"#);
    let id = rig.place().await.identity().id;
    assert!(rig.client().list(&BTreeMap::new(), None).await.unwrap().is_empty());
    assert_eq!(rig.place().await.identity().id, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_daemon_is_named_and_a_stop_mends_it() {
    let Some(rig) = Rig::new() else { return };
    let place = rig.place().await;
    let id = place.identity().id;
    rig.post(&format!("/emulator/kill-daemon/{id}"), "");
    let error = place.connect().await.unwrap_err();
    assert_eq!(error.kind, Kind::Disconnected, "{error}");
    assert!(error.hint.unwrap().contains("farshell env stop"));
    place.suspend().await.unwrap();
    place.connect().await.unwrap();
}
