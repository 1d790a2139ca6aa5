//! `credential_files`.

use crate::rig::{Heard, Rig};
use farshell_engine::backend::Backend;

fn with_token() -> Option<Rig> {
    let rig = Rig::new()?.set(|config| config.credential_files = vec!["token.json".into()]);
    std::fs::create_dir_all(&rig.config.hermes_home).unwrap();
    std::fs::write(rig.config.hermes_home.join("token.json"), "from home").unwrap();
    Some(rig)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_tool_has_put_in_the_place_of_a_link_locks_nobody_out() {
    let Some(rig) = with_token() else { return };
    let env = rig.open().await;
    let seen = "cd ~/.hermes; [ -L token.json ] && cat token.json; echo; for f in token.json.*; do echo $f $(cat $f); done";
    assert_eq!(env.out(seen).await, "from home\ntoken.json.*");
    for round in 1..3 {
        // As whoever replaces a file in one step does.
        env.out(&format!("echo refreshed {round} > ~/.hermes/new; mv ~/.hermes/new ~/.hermes/token.json"))
            .await;
        let heard = Heard::default();
        rig.backend().provision(&rig.spec(), &heard).await.unwrap();
        let said = heard.0.lock().unwrap().join("\n");
        assert!(said.contains(&format!("/root/.hermes/token.json.replaced-{round}")), "{said}");
    }
    assert_eq!(
        env.out(seen).await,
        "from home\ntoken.json.replaced-1 refreshed 1\ntoken.json.replaced-2 refreshed 2"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_can_not_have_them_is_not_left_to_cost() {
    let Some(rig) = with_token() else { return };
    let nowhere = r#"[{"kind":"unavailable-before","rpc":"TaskExecStart","count":1000}]"#;
    for fresh in [true, false] {
        if !fresh {
            rig.open().await.out("echo work > ~/file").await;
            rig.place().await.suspend().await.unwrap();
        }
        rig.faults(nowhere);
        rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
        rig.faults("[]");
        assert_eq!(rig.running().await.len(), 0, "fresh: {fresh}");
    }
    // One that ran before is somebody's.
    let env = rig.open().await;
    assert_eq!(env.out("cat ~/file").await, "work");
    rig.faults(nowhere);
    rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    rig.faults("[]");
    assert_eq!((rig.running().await.len(), rig.open().await.id()), (1, env.id()));
}
