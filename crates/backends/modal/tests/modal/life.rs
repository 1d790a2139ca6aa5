//! Sandboxes are made, found again, put away and removed.

use crate::rig::{Heard, Rig, until};
use farshell_engine::Kind;
use farshell_engine::backend::{Backend, Support};
use farshell_modal_proto::client::Sandbox;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_made_and_found_again_with_its_state() {
    let Some(rig) = Rig::new() else { return };
    let heard = Arc::new(Heard::default());
    rig.backend().provision(&rig.spec(), &*heard).await.unwrap();
    assert!(
        heard.0.lock().unwrap().iter().any(|said| said.contains("container_disk (3072 MB) is not enforced"))
    );
    let env = rig.open().await;
    assert_eq!(env.out("cd /tmp && x=1 && echo $x; id -u").await, "1\n0");
    let running = rig.running().await;
    assert_eq!(running.len(), 1);
    assert_eq!(env.id(), running[0].id);
    assert_eq!(running[0].tags["farshell_task"], "default");
    assert_eq!(running[0].tags["farshell_lease_seconds"], "60");
    // Another process, or a server after a restart.
    let again = rig.open().await;
    assert_eq!(again.id(), env.id());
    assert_eq!(again.out("echo $x $PWD").await, "1 /tmp");
    let found = rig.backend().survey().await.unwrap();
    assert_eq!(
        (found.len(), found[0].alive, found[0].spec_hash.clone()),
        (1, true, Some(rig.spec().hash("modal")))
    );
    let place = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
    assert!(!place.sleeps() && place.status().unwrap().contains(&env.id()));
    let limits = place.limits();
    let of = |name: &str| limits.iter().find(|limit| limit.name == name).unwrap();
    assert_eq!((of("cpu").support, of("disk").support), (Support::Enforced, Support::NotEnforced));
    env.0.destroy().await.unwrap();
    env.0.destroy().await.unwrap();
    assert!(rig.backend().find(&rig.spec()).await.unwrap().is_none());
    assert!(rig.backend().survey().await.unwrap().is_empty());
    assert!(rig.running().await.is_empty());
}

/// As Modal's own client does, which is the only one that knows what for.
#[tokio::test(flavor = "multi_thread")]
async fn calls_about_a_sandbox_have_the_token_that_came_with_it() {
    let Some(rig) = Rig::new() else { return };
    let client = rig.client();
    let app = client.app("hermes-agent").await.unwrap();
    let image = client.image(&app, "debian:12", |_: &str| ()).await.unwrap();
    let make = async |key: &str| {
        let definition = Sandbox { image_id: image.clone(), timeout_secs: 600, ..Sandbox::default() };
        client.create(key, &app, definition, &BTreeMap::new()).await.unwrap().id
    };
    let (one, two) = (make("one").await, make("two").await);
    let came = |id: &str| {
        rig.sandboxes().iter().find(|sandbox| sandbox["id"] == id).unwrap()["by_token"].as_u64().unwrap()
    };
    assert_eq!((came(&one), came(&two)), (0, 0));
    client.set_tags(&one, &BTreeMap::from([("a".to_owned(), "b".to_owned())])).await.unwrap();
    assert_eq!(client.tags(&one).await.unwrap()["a"], "b");
    assert_eq!(client.ended(&one, Duration::ZERO).await.unwrap(), None);
    assert_eq!((came(&one), came(&two)), (3, 0));
    // Whoever finds it has none, and may ask as well.
    let other = rig.client();
    assert_eq!(other.ended(&one, Duration::ZERO).await.unwrap(), None);
    other.terminate(&one).await.unwrap();
    client.terminate(&two).await.unwrap();
    assert_eq!((came(&one), came(&two)), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxs_token_is_left_out_when_a_call_was_refused() {
    let Some(rig) = Rig::new() else { return };
    let client = rig.client();
    let app = client.app("hermes-agent").await.unwrap();
    let image = client.image(&app, "debian:12", |_: &str| ()).await.unwrap();
    let definition = Sandbox { image_id: image, timeout_secs: 600, ..Sandbox::default() };
    let id = client.create("one", &app, definition, &BTreeMap::new()).await.unwrap().id;
    let came = || rig.sandboxes()[0]["by_token"].as_u64().unwrap();
    assert_eq!(client.ended(&id, Duration::ZERO).await.unwrap(), None);
    assert_eq!(came(), 1);
    rig.faults(r#"[{"kind":"refused-token","rpc":"SandboxWaitV2"}]"#);
    for _ in 0..2 {
        assert_eq!(client.ended(&id, Duration::ZERO).await.unwrap(), None);
        assert_eq!(came(), 1, "it may be what was refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_away_goes_on_where_it_was() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("mkdir -p /workspace; echo work > /workspace/x; echo home > ~/x; rm -f /etc/motd").await;
    let first = env.id();
    let place = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
    place.suspend().await.unwrap();
    place.suspend().await.unwrap();
    assert_eq!(place.keepsake(), None, "what Farshell takes does not expire");
    assert!(rig.running().await.is_empty());
    let saved = rig.snapshot();
    assert!(saved.starts_with("im-"), "{saved}");
    let asleep = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
    assert!(asleep.sleeps() && !rig.backend().survey().await.unwrap()[0].alive);
    assert_eq!(asleep.connect().await.unwrap_err().kind, Kind::Unavailable);

    let again = rig.open().await;
    assert_ne!(again.id(), first);
    assert_eq!(again.out("cat /workspace/x ~/x; ls /etc/motd 2>/dev/null | wc -l").await, "work\nhome\n0");
    again.out("echo more >> ~/x").await;
    rig.place().await.suspend().await.unwrap();
    let newer = rig.snapshot();
    assert_ne!(newer, saved);
    assert!(rig.client().has_image(&saved).await.unwrap(), "nobody has come up from the new one");
    assert_eq!(rig.open().await.out("cat ~/x").await, "home\nmore");
    until(async || !rig.client().has_image(&saved).await.unwrap()).await;
    assert_eq!(rig.images(), [newer.as_str()]);
    // Removed, with all of its files.
    rig.place().await.destroy().await.unwrap();
    assert_eq!(rig.snapshots(), json!({}));
    assert!(!rig.client().has_image(&newer).await.unwrap());
    assert_eq!(rig.open().await.out("ls ~/x 2>/dev/null | wc -l").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hermes_has_saved_is_gone_on_from_and_its_file_stays_its_own() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo hermes > ~/x").await;
    rig.place().await.suspend().await.unwrap();
    let saved = rig.snapshot();
    // As an older Hermes has left it, in a home that Farshell has never used.
    let rig = rig.at_home("hermes");
    std::fs::create_dir_all(&rig.config.hermes_home).unwrap();
    let file = rig.config.hermes_home.join("modal_snapshots.json");
    std::fs::write(&file, format!(r#"{{"default": "{saved}", "direct:other": "im-x"}}"#)).unwrap();
    assert_eq!(rig.open().await.out("cat ~/x").await, "hermes");
    rig.place().await.suspend().await.unwrap();
    let all = rig.snapshots();
    assert_eq!((all["direct:other"].as_str(), all.get("default")), (Some("im-x"), None));
    // Hermes saves something else meanwhile: that is not deleted.
    let place = rig.place().await;
    std::fs::write(&file, format!(r#"{{"direct:default": "{saved}"}}"#)).unwrap();
    place.suspend().await.unwrap();
    assert_ne!(rig.snapshot(), saved);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_kept_is_gone() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.set(|config| config.settings.container.persistent = false);
    let env = rig.open().await;
    env.out("echo x > ~/x").await;
    let place = rig.place().await;
    assert_eq!(place.rests_after(), None);
    place.suspend().await.unwrap();
    assert_eq!((rig.running().await.len(), rig.snapshots()), (0, json!({})));
    assert!(rig.backend().find(&rig.spec()).await.unwrap().is_none());
    assert_eq!(rig.open().await.out("ls ~/x 2>/dev/null | wc -l").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_network_nothing_is_reached_and_commands_run() {
    let Some(rig) = Rig::new() else { return };
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let ask = format!("(: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo open || echo shut");
    assert_eq!(rig.open().await.out(&ask).await, "open", "an emulated sandbox shares this machine's network");
    rig.place().await.destroy().await.unwrap();
    let rig = rig.set(|config| config.settings.network = false);
    assert_eq!(rig.open().await.out(&ask).await, "shut");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_settings_are_refused_and_nothing_is_lost() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    let mut spec = rig.spec();
    spec.settings.insert("modal_image".into(), "alpine:3".into());
    for asleep in [false, true] {
        if asleep {
            rig.place().await.suspend().await.unwrap();
        }
        let error = rig.backend().provision(&spec, &()).await.unwrap_err();
        assert_eq!(error.kind, Kind::SpecChanged, "{error}");
        assert!(error.hint.unwrap().contains("farshell env rm"));
    }
    assert_ne!(rig.place().await.identity().id, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_homes_have_two_sandboxes_and_only_ones_own_are_ended() {
    let Some(rig) = Rig::new() else { return };
    let first = rig.place().await.identity();
    let found = rig.backend().survey().await.unwrap();
    let rig = rig.at_home("other");
    assert!(rig.backend().find(&rig.spec()).await.unwrap().is_none());
    assert!(rig.backend().survey().await.unwrap().is_empty());
    assert_eq!(rig.backend().remove_found(&found[0]).await.unwrap_err().kind, Kind::NotFound);
    let second = rig.place().await.identity();
    assert_ne!(first, second);
    assert_eq!(rig.running().await.len(), 2);
    let rig = rig.at_home("h");
    rig.backend().remove_found(&found[0]).await.unwrap();
    assert!(!rig.backend().survey().await.unwrap()[0].alive, "its files are kept");
    let left: Vec<String> = rig.running().await.into_iter().map(|one| one.id).collect();
    assert_eq!(left, [second.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_make_one() {
    let Some(rig) = Rig::new() else { return };
    for asleep in [false, true] {
        if asleep {
            rig.place().await.suspend().await.unwrap();
        }
        let all: Vec<_> = (0..8)
            .map(|_| {
                let (backend, spec) = (rig.backend(), rig.spec());
                tokio::spawn(async move { backend.provision(&spec, &()).await.unwrap().identity().id })
            })
            .collect();
        let mut ids = Vec::new();
        for one in all {
            ids.push(one.await.unwrap());
        }
        ids.dedup();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_eq!(rig.running().await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_can_not_be_had_is_said_and_leaves_nothing() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.set(|config| config.settings.image = "no/such:image".into());
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert!(error.message.contains("can't build an image from no/such:image"), "{error}");
    let rig = rig.set(|config| config.settings.image = "im-00000000000000000000".into());
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert!(error.message.contains("there is no image im-0000"), "{error}");
    assert!(rig.running().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_said_with_what_to_do() {
    let Some(rig) = Rig::new() else { return };
    let good = rig.backend().check().await;
    assert!(good[0].hint.is_none(), "{good:?}");
    let rig =
        rig.set(|config| drop(config.environment.insert("MODAL_TOKEN_SECRET".into(), "as-wrong".into())));
    let findings = rig.backend().check().await;
    assert_eq!(findings.len(), 1);
    assert!(findings[0].hint.as_ref().unwrap().contains("modal token new"), "{findings:?}");
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::PermissionDenied, "{error}");
}
