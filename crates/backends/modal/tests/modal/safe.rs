//! Nothing of anybody is lost: files that were to be kept, pointers to them, and what is somebody else's.

use crate::rig::{Rig, until};
use farshell_engine::Kind;
use farshell_engine::backend::{Backend, Spec, TaskName};
use farshell_modal::client::{Exec, Router};
use serde_json::json;
use std::time::Duration;

fn of(rig: &Rig, task: &str) -> Spec {
    Spec { task: TaskName::new(task).unwrap(), ..rig.spec() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_was_made_with_decides_whether_files_are_kept() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo work > ~/file").await;
    let rig = rig.set(|config| config.settings.container.persistent = false);
    // By another word of today it is neither used nor lost, be it awake or asleep.
    for _ in 0..2 {
        let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
        assert_eq!(error.kind, Kind::SpecChanged, "{error}");
        assert!(error.message.contains("container_persistent: true, and it is false now"), "{error}");
        let found = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
        assert!(found.rests_after().is_some());
        found.suspend().await.unwrap();
        assert!(rig.running().await.is_empty());
    }
    let rig = rig.set(|config| config.settings.container.persistent = true);
    assert_eq!(rig.open().await.out("cat ~/file").await, "work");
    // Removed is removed, whatever is set.
    let rig = rig.set(|config| config.settings.container.persistent = false);
    rig.backend().find(&rig.spec()).await.unwrap().unwrap().destroy().await.unwrap();
    assert_eq!((rig.snapshots(), rig.images().len(), rig.running().await.len()), (json!({}), 0, 0));
    // The other way round: what was not to be kept is not kept, and no error for that.
    rig.open().await.out("echo gone > ~/file").await;
    let rig = rig.set(|config| config.settings.container.persistent = true);
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert!(error.message.contains("container_persistent: false, and it is true now"), "{error}");
    let running = rig.running().await;
    rig.client().terminate(&running[0].id).await.unwrap();
    until(async || rig.running().await.is_empty()).await;
    assert_eq!(rig.open().await.out("ls ~/file 2>/dev/null | wc -l").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_another_workspace_costs_no_pointer() {
    let Some(mut rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo work > ~/file").await;
    let token = |rig: Rig, name: &str| {
        let pairs = [("MODAL_TOKEN_ID", format!("ak-{name}")), ("MODAL_TOKEN_SECRET", format!("as-{name}"))];
        rig.set(|config| config.environment.extend(pairs.map(|(name, value)| (name.to_owned(), value))))
    };
    for ended in [false, true] {
        let found = rig.backend().survey().await.unwrap();
        rig = token(rig, "stranger");
        let asked = [
            rig.backend().provision(&rig.spec(), &()).await.map(drop),
            rig.backend().find(&rig.spec()).await.map(drop),
        ];
        for asked in asked {
            let error = asked.unwrap_err();
            assert_eq!(error.kind, Kind::PermissionDenied, "{error}");
            assert!(
                error.message.contains("workspace emulated, and the token is one of strangers"),
                "{error}"
            );
            assert!(error.hint.unwrap().contains("MODAL_PROFILE"));
        }
        if ended {
            assert_eq!(rig.backend().survey().await.unwrap().len(), 1, "it is still ours");
            assert!(rig.backend().remove_found(&rig.backend().survey().await.unwrap()[0]).await.is_err());
        } else {
            let _ = rig.backend().remove_found(&found[0]).await;
        }
        rig = token(rig, "test");
        if !ended {
            assert_eq!(rig.running().await.len(), 1);
            rig.client().terminate(&env.id()).await.unwrap();
            until(async || rig.running().await.is_empty()).await;
        }
    }
    assert_eq!(rig.open().await.out("cat ~/file").await, "work");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_snapshots_that_were_taken_for_the_task_are_deleted() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo first > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let first = rig.snapshot();
    // Of another home, of another task of this one, and of whoever names it as an image.
    let rig = rig.at_home("other");
    rig.write_snapshots(&json!({ "direct:default": first, "direct:fork": first }));
    assert_eq!(rig.open().await.out("cat ~/file; echo second > ~/file").await, "first");
    rig.place().await.suspend().await.unwrap();
    let second = rig.snapshot();
    assert_ne!(first, second);
    rig.write_snapshots(&json!({ "direct:default": second, "direct:fork": second, "direct:image": first }));
    rig.open().await.out("echo third > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let third = rig.snapshot();
    assert_eq!(
        {
            let mut all = vec![first.clone(), second.clone(), third];
            all.sort();
            all
        },
        rig.images()
    );
    let fork = rig.backend().provision(&of(&rig, "fork"), &()).await.unwrap();
    fork.destroy().await.unwrap();
    rig.backend().find(&rig.spec()).await.unwrap().unwrap().destroy().await.unwrap();
    assert_eq!(rig.snapshots(), json!({ "direct:image": first }));
    assert!(rig.images().contains(&first), "what is not ours stays: {:?}", rig.images());
    // One that is named as the image, here and by another task.
    let rig = rig.at_home("third").set(|config| config.settings.image.clone_from(&first));
    assert_eq!(rig.open().await.out("cat ~/file").await, "first");
    rig.place().await.suspend().await.unwrap();
    rig.place().await.destroy().await.unwrap();
    assert!(rig.images().contains(&first), "{:?}", rig.images());
    // Where it came from, it is deleted as ever.
    let rig = rig.at_home("h").set(|config| config.settings.image = "debian:12".into());
    rig.backend().find(&rig.spec()).await.unwrap().unwrap().destroy().await.unwrap();
    assert!(!rig.images().contains(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_somebody_else_has_overwritten_costs_no_file() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo one > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let old = rig.snapshot();
    rig.open().await.out("echo two > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    // As by a Hermes that had read it before, and wrote an entry of its own.
    for written in [json!({ "direct:hers": "im-x" }), json!({ "direct:hers": "im-x", "direct:default": old })]
    {
        rig.write_snapshots(&written);
        assert_eq!(rig.open().await.out("cat ~/file").await, "two", "{written}");
        assert_eq!(rig.snapshots()["direct:hers"], "im-x");
        rig.place().await.suspend().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_snapshot_that_is_named_again_does_not_cost_the_newer_one() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo one > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let old = rig.snapshot();
    // It is there still, because somebody else goes on from it.
    rig.write_snapshots(&json!({ "direct:default": old, "direct:fork": old }));
    rig.open().await.out("echo two > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let new = rig.snapshot();
    assert!(rig.images().contains(&old));
    rig.write_snapshots(&json!({ "direct:default": old, "direct:fork": old }));
    assert_eq!(rig.open().await.out("cat ~/file").await, "two");
    assert_eq!(rig.snapshots(), json!({ "direct:default": new, "direct:fork": old }));
    // Where the newer one is gone, the older one is all that there is.
    rig.place().await.suspend().await.unwrap();
    rig.client().delete_image(&rig.snapshot()).await.unwrap();
    rig.write_snapshots(&json!({ "direct:default": old, "direct:fork": old }));
    assert_eq!(rig.open().await.out("cat ~/file").await, "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_can_not_be_restored_is_not_the_only_one() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo one > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let old = rig.snapshot();
    rig.open().await.out("echo two > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let new = rig.snapshot();
    let record = rig.record();
    // However often: what did not come up is not what its files are.
    for _ in 0..2 {
        rig.faults(r#"[{"kind":"start-error"}]"#);
        let error = rig.place().await.connect().await.unwrap_err();
        assert!(error.message.contains("could not be started"), "{error}");
        let hint = error.hint.unwrap();
        assert!(hint.contains(&old) && hint.contains(record.to_str().unwrap()), "{hint}");
        assert!(rig.images().contains(&old) && rig.images().contains(&new), "{:?}", rig.images());
    }
    assert_eq!(rig.open().await.out("cat ~/file").await, "two", "it was not the snapshot");
    until(async || rig.images() == [new.clone()]).await;
    // As the hint says, where it is.
    rig.place().await.suspend().await.unwrap();
    rig.client().delete_image(&rig.snapshot()).await.unwrap();
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert!(error.hint.unwrap().contains(&format!("the snapshot before it, {new}, is kept")));
    rig.write_record(&[("saved", json!(new)), ("base", json!(new))]);
    assert_eq!(rig.open().await.out("cat ~/file").await, "two");
    assert_eq!(rig.snapshot(), new);
}

/// What is said of a snapshot that can't be restored.
async fn broken(rig: &Rig) -> String {
    rig.faults(r#"[{"kind":"start-error"}]"#);
    rig.place().await.connect().await.unwrap_err().hint.unwrap()
}

/// What a hint says, done to the letter.
fn go_back(rig: &Rig, hint: &str) -> String {
    let (_, advice) = hint.split_once("to go on from that, ").unwrap();
    let (_, id) = advice.split_once(r#"set "saved" and "base" to ""#).unwrap();
    let (id, path) = id.split_once(r#"" in "#).unwrap();
    assert!(path.starts_with(rig.record().to_str().unwrap()), "{hint}");
    rig.write_record(&[("saved", json!(id)), ("base", json!(id))]);
    if path.contains(r#"and "direct:default" to the same in"#) {
        rig.write_snapshots(&json!({ "direct:default": id }));
    }
    id.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_back_to_an_older_snapshot_leaves_nothing_that_costs() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo one > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let one = rig.snapshot();
    rig.open().await.out("echo two > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let two = rig.snapshot();
    assert_eq!(go_back(&rig, &broken(&rig).await), one);
    assert_eq!(rig.open().await.out("cat ~/file; echo three > ~/file").await, "one");
    assert_eq!(rig.snapshot(), one);
    rig.place().await.suspend().await.unwrap();
    assert!(!rig.images().contains(&two), "it is still known, and goes: {:?}", rig.images());
    let three = rig.snapshot();
    // The last one is Hermes', and can't be restored either.
    assert_eq!(rig.open().await.out("cat ~/file").await, "three");
    rig.place().await.suspend().await.unwrap();
    let rig = rig.at_home("hermes");
    rig.open().await.out("echo hers > ~/file").await;
    rig.place().await.suspend().await.unwrap();
    let hers = rig.snapshot();
    let rig = rig.at_home("h");
    rig.write_snapshots(&json!({ "direct:default": hers }));
    assert_eq!(go_back(&rig, &broken(&rig).await), three);
    assert_eq!(rig.open().await.out("cat ~/file").await, "three");
    rig.backend().find(&rig.spec()).await.unwrap().unwrap().destroy().await.unwrap();
    assert_eq!(rig.images(), [hers], "all of our own, and nothing else");
}

/// As if whoever made a sandbox had died before its id was written down.
fn forget_the_sandbox(rig: &Rig) {
    rig.write_record(&[("sandbox", json!(null))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_maker_died_is_put_away_with_its_files() {
    let Some(rig) = Rig::new() else { return };
    for round in ["new", "restored"] {
        let env = rig.open().await;
        env.out(&format!("echo {round} >> ~/file")).await;
        forget_the_sandbox(&rig);
        let place = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
        assert_eq!((place.sleeps(), place.identity().id), (false, env.id()));
        place.suspend().await.unwrap();
        assert!(rig.running().await.is_empty(), "it does not cost any more");
    }
    assert_eq!(
        rig.open().await.out("cat ~/file").await,
        "new
restored"
    );
    // Also by somebody who has found it before that.
    let place = rig.place().await;
    rig.open().await.out("echo more >> ~/file").await;
    forget_the_sandbox(&rig);
    place.suspend().await.unwrap();
    assert!(rig.running().await.is_empty());
    assert_eq!(rig.open().await.out("tail -n 1 ~/file").await, "more");
    until(async || rig.images() == [rig.snapshot()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_maker_died_is_followed_to_what_modal_saved_of_it() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo work > ~/file").await;
    forget_the_sandbox(&rig);
    rig.backend().find(&rig.spec()).await.unwrap().unwrap();
    rig.post(&format!("/emulator/end/{}/GENERIC_STATUS_KERNEL_OOM_KILL", env.id()), "");
    until(async || rig.running().await.is_empty()).await;
    let next = rig.open().await;
    assert_ne!(next.id(), env.id());
    assert_eq!(next.out("cat ~/file").await, "work");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_of_our_name_that_is_somebody_elses_is_not_taken() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    let tags = rig.running().await[0].tags.clone();
    for (name, value) in [("farshell_owner", "somebody"), ("farshell_task", "other")] {
        let mut others = tags.clone();
        others.insert(name.into(), value.into());
        rig.client().set_tags(&env.id(), &others).await.unwrap();
        forget_the_sandbox(&rig);
        assert!(rig.backend().find(&rig.spec()).await.unwrap().is_none(), "{name}");
        assert_eq!(rig.running().await.len(), 1);
    }
    rig.client().set_tags(&env.id(), &tags).await.unwrap();
    assert_eq!(rig.backend().find(&rig.spec()).await.unwrap().unwrap().identity().id, env.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_made_is_nothing() {
    let Some(rig) = Rig::new() else { return };
    rig.faults(r#"[{"kind":"unavailable-before","rpc":"SandboxCreateV2","count":99}]"#);
    rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    rig.faults("[]");
    assert!(rig.record().exists());
    assert!(rig.backend().find(&rig.spec()).await.unwrap().is_none());
    assert_eq!(rig.backend().survey().await.unwrap(), []);
    // What is to be removed is not nothing.
    rig.write_record(&[("removing", json!(true))]);
    assert_eq!(rig.backend().survey().await.unwrap().len(), 1);
    rig.backend().find(&rig.spec()).await.unwrap().unwrap().destroy().await.unwrap();
    assert!(!rig.record().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_to_be_kept_are_not_collected() {
    let Some(rig) = Rig::new() else { return };
    let all = async || rig.backend().survey().await.unwrap();
    for forgotten in [false, true] {
        rig.open().await.out("echo work >> ~/file").await;
        assert_eq!(rig.place().await.holds_the_only_files(), Some(true));
        if forgotten {
            forget_the_sandbox(&rig);
        }
        let awake = all().await;
        rig.backend().remove_found(&awake[0]).await.unwrap();
        assert!(rig.running().await.is_empty(), "it is put away");
        rig.backend().remove_found(&awake[0]).await.unwrap();
        let asleep = all().await;
        assert_eq!((asleep.len(), asleep[0].alive), (1, false));
        let error = rig.backend().remove_found(&asleep[0]).await.unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (Kind::Denied, "it has the only files of task default")
        );
        assert!(error.hint.unwrap().contains("`farshell env rm --files modal/default`"));
        // It is in use again by the time that somebody removes it.
        rig.open().await.out("true").await;
        rig.backend().remove_found(&asleep[0]).await.unwrap_err();
        assert_eq!(rig.running().await.len(), 1);
    }
    assert_eq!(
        rig.open().await.out("cat ~/file").await,
        "work
work"
    );
    // Of what was to be removed, and of what was not to be kept, nothing stays.
    for awake in [true, false] {
        rig.open().await.out("true").await;
        if !awake {
            rig.place().await.suspend().await.unwrap();
        }
        rig.write_record(&[("removing", json!(true))]);
        rig.backend().remove_found(&all().await[0]).await.unwrap();
        assert_eq!((rig.running().await.len(), rig.images().len(), all().await.len()), (0, 0, 0));
    }
    let rig = rig.set(|config| config.settings.container.persistent = false);
    rig.open().await.out("true").await;
    assert_eq!(rig.place().await.holds_the_only_files(), Some(false));
    rig.backend().remove_found(&rig.backend().survey().await.unwrap()[0]).await.unwrap();
    assert_eq!((rig.running().await.len(), rig.images().len()), (0, 0));
    assert_eq!(rig.backend().survey().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_in_a_sandbox_that_could_not_be_ended_is_not_lost() {
    let Some(rig) = Rig::new() else { return };
    let mut expected = String::new();
    for by_itself in [false, true] {
        let env = rig.open().await;
        env.out(&format!("echo {by_itself} before >> ~/file")).await;
        rig.faults(r#"[{"kind":"unavailable-before","rpc":"SandboxTerminate","count":99}]"#);
        let place = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
        place.suspend().await.unwrap_err();
        rig.faults("[]");
        // What ran in it runs on, and nobody begins anything new in it.
        env.out(&format!("echo {by_itself} after >> ~/file")).await;
        let found = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
        assert_eq!((found.sleeps(), found.identity().id, rig.running().await.len()), (true, env.id(), 1));
        if by_itself {
            rig.client().terminate(&env.id()).await.unwrap();
            until(async || rig.running().await.is_empty()).await;
        }
        expected += &format!("{by_itself} before\n{by_itself} after\n");
        let next = rig.open().await;
        assert_ne!(next.id(), env.id());
        assert_eq!(next.out("cat ~/file").await, expected.trim_end());
        until(async || rig.images() == [rig.snapshot()]).await;
    }
    // Put away once more, it has all of it, too.
    let env = rig.open().await;
    rig.faults(r#"[{"kind":"unavailable-before","rpc":"SandboxTerminate","count":99}]"#);
    rig.place().await.suspend().await.unwrap_err();
    rig.faults("[]");
    env.out("echo last >> ~/file").await;
    rig.backend().find(&rig.spec()).await.unwrap().unwrap().suspend().await.unwrap();
    assert_eq!(rig.running().await.len(), 0);
    assert_eq!(rig.open().await.out("tail -n 1 ~/file").await, "last");
    until(async || rig.images() == [rig.snapshot()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_without_a_record_is_put_away_with_its_files() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo work > ~/file").await;
    std::fs::remove_file(rig.record()).unwrap();
    rig.backend().find(&rig.spec()).await.unwrap().unwrap().suspend().await.unwrap();
    assert!(rig.running().await.is_empty(), "it does not cost any more");
    assert_eq!(rig.open().await.out("cat ~/file").await, "work");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_expired_on_the_servers_clock_is_renewed() {
    let Some(rig) = Rig::new() else { return };
    let place = rig.place().await;
    for rpc in ["SandboxWaitV2", "SandboxTagsGetV2", "SandboxGetTaskIdV2"] {
        rig.faults(&format!(r#"[{{"kind":"refused-token","rpc":"{rpc}"}}]"#));
        rig.place().await;
        place.suspend().await.unwrap();
        rig.place().await;
    }
    // One that is refused again and again is an error.
    rig.faults(r#"[{"kind":"refused-token","rpc":"SandboxWaitV2","count":99}]"#);
    assert_eq!(rig.backend().provision(&rig.spec(), &()).await.unwrap_err().kind, Kind::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_can_not_be_opened_is_given_up() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    let router = Router::find(&rig.client(), &id).await.unwrap();
    for kind in ["unavailable-before", "throttle"] {
        let exec = Exec::start(&router, &["sleep", "100"], None).await.unwrap();
        rig.faults(&format!(r#"[{{"kind":"{kind}","rpc":"TaskExecStdioRead","count":1000000,"ms":100}}]"#));
        // A bound for the test, many times its patience.
        let read = tokio::time::timeout(Duration::from_secs(300), async { exec.stdout().next().await });
        assert!(read.await.unwrap().is_err(), "{kind}");
        rig.faults("[]");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_modal_wants_people_to_be_told_is_told_once() {
    let Some(rig) = Rig::new() else { return };
    let text = "your client is old: \u{fc}pdate it (100%)";
    for kind in ["SandboxCreateV2", "SandboxWaitV2"] {
        rig.faults(&json!([{ "kind": "warning", "rpc": kind, "text": text, "count": 2 }]).to_string());
        let (backend, spec) = (rig.backend(), rig.spec());
        let place = backend.provision(&spec, &()).await.unwrap();
        let place = match kind {
            "SandboxWaitV2" => backend.provision(&spec, &()).await.unwrap(),
            _ => place,
        };
        assert_eq!(place.word().as_deref(), Some(format!("Modal says: {text}").as_str()), "{kind}");
        assert_eq!(place.word(), None);
        backend.provision(&spec, &()).await.unwrap();
        assert_eq!(place.word(), None, "each text once");
    }
    rig.faults(&json!([{ "kind": "warning", "rpc": "ClientHello", "text": "be careful" }]).to_string());
    let findings = rig.backend().check().await;
    assert!(findings.iter().any(|one| format!("{one:?}").contains("be careful")), "{findings:?}");
}
