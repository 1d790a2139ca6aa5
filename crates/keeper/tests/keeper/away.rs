//! Hosts that are away for a while: what is on them is not gone, and nobody else is asked about it.

use crate::rig::{Life, Rig, ended, events_of, leave_at, until, whole};
use farshell_api::environment::{EnvironmentState, GcRequest, RemoveRequest};
use farshell_api::event::EventKind;
use farshell_api::process::{LogQuery, Process, ProcessState};
use farshell_api::run::{OnTimeout, RunRequest, StartRequest};
use farshell_api::stream::Open;
use farshell_engine::{Error, Kind};
use farshell_keeper::Keeper;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SSH: &[(&str, &str)] = &[("TERMINAL_ENV", "ssh")];

/// Seconds. Long enough for a call that is made at once, also where nothing is fast.
const LIFETIME: u64 = 5;

/// A rig whose commands run on a host, with more settings.
fn on(host: &str, more: &str) -> Rig {
    let rig = Rig::new();
    settings(&rig, host, more);
    rig
}

fn settings(rig: &Rig, host: &str, more: &str) {
    rig.config(&format!("terminal:\n  ssh_host: {host}\n  ssh_user: me\n{more}"));
}

fn start(rig: &Rig, command: &str) -> StartRequest {
    StartRequest { target: rig.target_with("default", SSH), ..StartRequest::new(command) }
}

fn request(rig: &Rig, command: &str) -> RunRequest {
    whole(start(rig, command))
}

async fn says(rig: &Rig, keeper: &Keeper, command: &str) -> String {
    keeper.run(request(rig, command)).await.unwrap().stdout
}

/// Why a command is not run. Of one that was sent before the cut was noticed nobody knows; the next one meets what is there.
async fn refused(rig: &Rig, keeper: &Keeper) -> Error {
    match keeper.run(request(rig, "true")).await.unwrap_err() {
        error if error.kind == Kind::UnknownOutcome => keeper.run(request(rig, "true")).await.unwrap_err(),
        error => error,
    }
}

async fn state(keeper: &Keeper) -> Option<EnvironmentState> {
    Some(keeper.environments().await.unwrap().first()?.state)
}

async fn process(keeper: &Keeper, id: &str) -> Process {
    keeper.process(id).await.unwrap()
}

/// Waits until somebody has tried so often to reach the host.
async fn tried(rig: &Rig, times: usize) {
    let tried = || rig.backends.story.connected.load(Ordering::SeqCst);
    let before = tried();
    until("it is tried again", || async { tried() >= before + times }).await;
}

fn remove(force: bool, forget: bool) -> RemoveRequest {
    RemoveRequest { names: vec!["ssh/default".into()], force, forget, ..RemoveRequest::default() }
}

#[tokio::test]
async fn a_process_on_a_host_without_a_name_is_not_lost() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    let running = keeper.start(start(&rig, "sleep 1000")).await.unwrap();
    hosts.leave("a", Kind::Unavailable);
    tried(&rig, 2).await;
    // Something on the way here is not found: that is not what the outpost says.
    hosts.leave("a", Kind::NotFound);
    tried(&rig, 1).await;
    assert_eq!(process(&keeper, &running.id).await.state, ProcessState::Running);
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await, []);
    hosts.come_back();
    keeper.kill(&running.id, Default::default()).await.unwrap();
    assert_eq!(ended(&keeper, &running.id).await.state, ProcessState::Ended);
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await.len(), 1);
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_start_whose_answer_was_lost_is_found_when_the_host_is_back() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    says(&rig, &keeper, "true").await;
    for arrives in [true, false] {
        let (id, ran) = (format!("arrives-{arrives}"), rig.home().join(format!("ran-{arrives}")));
        let line = if arrives { &hosts.mute } else { &hosts.deaf };
        line.store(true, Ordering::SeqCst);
        let start = StartRequest {
            id: Some(id.clone()),
            ..start(&rig, &format!("echo x >>'{}'; sleep 1000", ran.display()))
        };
        let starting = tokio::spawn({
            let keeper = keeper.clone();
            async move { keeper.start(start).await }
        });
        match arrives {
            true => until("it runs", || async { ran.exists() }).await,
            false => until("it is recorded", || async { keeper.process(&id).await.is_ok() }).await,
        }
        hosts.leave("a", Kind::Unavailable);
        let error = starting.await.unwrap().unwrap_err();
        assert_eq!(error.kind, Kind::UnknownOutcome);
        assert!(error.hint.as_ref().unwrap().contains(&id), "{error:?}");
        tried(&rig, 1).await;
        let known = process(&keeper, &id).await;
        assert_eq!(known.state, ProcessState::Starting);
        assert!(known.unreachable.unwrap().contains("there is no host a"));
        line.store(false, Ordering::SeqCst);
        hosts.come_back();
        if arrives {
            until("it is found", || async { process(&keeper, &id).await.state == ProcessState::Running })
                .await;
            keeper.kill(&id, Default::default()).await.unwrap();
        }
        let expected = if arrives { ProcessState::Ended } else { ProcessState::NotStarted };
        assert_eq!(ended(&keeper, &id).await.state, expected);
        let text = std::fs::read_to_string(&ran).unwrap_or_default();
        assert_eq!(text, if arrives { "x\n" } else { "" }, "it ran as often as is said");
    }
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await.len(), 2);
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_runs_on_during_an_outage_is_not_taken_for_idle() {
    let rig = on("a", "  lifetime_seconds: 1\n");
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    let (begun, done) = (rig.home().join("begun"), rig.home().join("done"));
    let command = format!("touch '{}'; sleep 6; touch '{}'", begun.display(), done.display());
    let running = tokio::spawn({
        let (keeper, request) = (keeper.clone(), request(&rig, &command));
        async move { keeper.run(request).await }
    });
    until("it runs", || async { begun.exists() }).await;
    hosts.leave("a", Kind::Unavailable);
    assert_eq!(running.await.unwrap().unwrap_err().kind, Kind::UnknownOutcome);
    until("it is asked in vain", || async { state(&keeper).await == Some(EnvironmentState::Failed) }).await;
    let note = keeper.environment("default").await.unwrap().note.unwrap();
    assert!(note.contains("nobody can say whether something runs in it: there is no host a"), "{note}");
    hosts.come_back();
    until("what ran is done", || async { done.exists() }).await;
    until("then it is ended", || async { state(&keeper).await.is_none() }).await;
    assert_eq!(events_of(&keeper, EventKind::EnvironmentFailed).await.len(), 1);
    until("with its outpost", || async { rig.outposts().is_empty() }).await;
    rig.end(keeper).await;
}

/// Nobody follows it any more, and nobody here counts it: it is asked for before anything ends.
#[tokio::test]
async fn what_runs_on_during_an_outage_is_not_ended_in_passing() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    let (begun, after) = (rig.home().join("begun"), rig.home().join("after"));
    let command = format!("touch '{}'; sleep 1000; touch '{}'", begun.display(), after.display());
    let start = StartRequest { session: "other".into(), ..start(&rig, &command) };
    let running = tokio::spawn({
        let (keeper, request) = (keeper.clone(), whole(start));
        async move { keeper.run(request).await }
    });
    until("it runs", || async { begun.exists() }).await;
    hosts.leave("a", Kind::Unavailable);
    assert_eq!(running.await.unwrap().unwrap_err().kind, Kind::UnknownOutcome);
    hosts.come_back();
    says(&rig, &keeper, "true").await;
    for stop in [true, false] {
        let refused = keeper.remove(RemoveRequest { stop, ..remove(false, false) }).await.unwrap();
        assert!(refused.removed.is_empty(), "{refused:?}");
        assert!(refused.failed[0].error.message.contains("something runs in it"), "{refused:?}");
    }
    settings(&rig, "b", "");
    let error = keeper.run(request(&rig, "true")).await.unwrap_err();
    assert_eq!(error.kind, Kind::SpecChanged, "{error}");
    assert_eq!(rig.outposts().len(), 1);
    // Whoever insists ends it.
    assert_eq!(keeper.remove(remove(true, false)).await.unwrap().removed, ["ssh/default"]);
    assert!(!after.exists());
    rig.end(keeper).await;
}

/// There is no background process that would have to be found.
#[test]
fn a_promise_is_kept_although_its_host_was_away_when_the_server_came_back() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let life = Life::begin(&rig);
    life.on(async {
        let start = StartRequest {
            id: Some("promised".into()),
            timeout: Some(2.0),
            on_timeout: OnTimeout::Background,
            ..start(&rig, "echo a; sleep 1000")
        };
        let open = Open { start: Some(Box::new(start)), attach: None };
        leave_at("a\n", life.keeper.stream(open, &()).await.unwrap()).await;
    });
    life.die();
    hosts.leave("a", Kind::Unavailable);
    let life = Life::begin(&rig);
    life.on(async {
        let keeper = &life.keeper;
        until("it is looked for", || async { state(keeper).await == Some(EnvironmentState::Failed) }).await;
        hosts.come_back();
        until("it is a background process", || async {
            keeper.process("promised").await.is_ok_and(|process| process.background)
        })
        .await;
        assert_eq!(keeper.kill("promised", Default::default()).await.unwrap().survivors, 0);
    });
    life.end(rig);
}

/// A command that ends while nobody can ask for it, and the host is away for longer than an environment is kept idle.
#[tokio::test]
async fn a_closed_laptop_costs_neither_output_nor_session() {
    let rig = on("a", &format!("  lifetime_seconds: {LIFETIME}\n"));
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    says(&rig, &keeper, "cd /tmp; export A=1; f() { echo f; }").await;
    let (begun, done) = (rig.home().join("begun"), rig.home().join("done"));
    let command =
        format!("echo a; touch '{}'; sleep 1; echo b; touch '{}'; exit 7", begun.display(), done.display());
    let make = whole(StartRequest { id: Some("make".into()), ..start(&rig, &command) });
    let running = tokio::spawn({
        let (keeper, make) = (keeper.clone(), make.clone());
        async move { keeper.run(make).await }
    });
    until("it runs", || async { begun.exists() }).await;
    hosts.leave("a", Kind::Unavailable);
    assert_eq!(running.await.unwrap().unwrap_err().kind, Kind::UnknownOutcome);
    until("it is done", || async { done.exists() }).await;
    until("it is asked in vain", || async { state(&keeper).await == Some(EnvironmentState::Failed) }).await;
    tokio::time::sleep(Duration::from_secs(2 * LIFETIME)).await;
    hosts.come_back();
    let told = keeper.run(make).await.unwrap();
    assert_eq!((told.stdout.as_str(), told.exit_code, told.note), ("a\nb\n", 7, None));
    assert_eq!(says(&rig, &keeper, "f; echo $A $PWD").await, "f\n1 /tmp\n");
    until("unused, it is ended", || async { state(&keeper).await.is_none() }).await;
    until("with its outpost", || async { rig.outposts().is_empty() }).await;
    rig.end(keeper).await;
}

/// The host comes back, and the next call does not come at once.
#[tokio::test]
async fn what_was_out_of_reach_is_kept_for_another_lifetime_when_it_is_back() {
    let rig = on("a", "  lifetime_seconds: 1\n");
    let story = &rig.backends.story;
    let keeper = rig.open().await;
    says(&rig, &keeper, "true").await;
    story.hosts.leave("a", Kind::Unavailable);
    until("it is asked in vain", || async { state(&keeper).await == Some(EnvironmentState::Failed) }).await;
    let before = story.connected.load(Ordering::SeqCst);
    story.hosts.come_back();
    until("it is ended", || async { state(&keeper).await.is_none() }).await;
    let asked = story.connected.load(Ordering::SeqCst) - before;
    assert!(asked >= 2, "it was ended as soon as it could be asked");
    rig.end(keeper).await;
}

#[test]
fn the_next_server_finds_the_sessions_of_one_that_was_killed_long_ago() {
    let rig = on("a", &format!("  lifetime_seconds: {LIFETIME}\n"));
    let life = Life::begin(&rig);
    life.on(says(&rig, &life.keeper, "cd /tmp; export A=1; f() { echo f; }"));
    life.die();
    std::thread::sleep(Duration::from_secs(2 * LIFETIME));
    let life = Life::begin(&rig);
    assert_eq!(life.on(says(&rig, &life.keeper, "f; echo $A $PWD")), "f\n1 /tmp\n");
    life.end(rig);
}

#[test]
fn what_could_not_be_asked_yet_is_not_ended_by_the_next_server() {
    let rig = on("a", "  lifetime_seconds: 1\n");
    let story = &rig.backends.story;
    let life = Life::begin(&rig);
    let running = life.on(async { life.keeper.start(start(&rig, "sleep 1000")).await.unwrap() });
    life.die();
    // It is found, and its outpost does not answer.
    story.hosts.mute.store(true, Ordering::SeqCst);
    let before = story.connected.load(Ordering::SeqCst);
    let life = Life::begin(&rig);
    life.on(async {
        let keeper = &life.keeper;
        until("it is tried", || async { story.connected.load(Ordering::SeqCst) > before }).await;
        story.hosts.leave("a", Kind::Unavailable);
        until("it fails", || async { state(keeper).await == Some(EnvironmentState::Failed) }).await;
        let in_use = keeper.remove(remove(false, false)).await.unwrap();
        assert_eq!(in_use.failed[0].error.kind, "busy", "{in_use:?}");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!((story.destroyed.load(Ordering::SeqCst), rig.outposts().len()), (0, 1));
        story.hosts.mute.store(false, Ordering::SeqCst);
        story.hosts.come_back();
        until("it is found again", || async {
            keeper.environment("default").await.is_ok_and(|environment| environment.background == 1)
        })
        .await;
        keeper.kill(&running.id, Default::default()).await.unwrap();
        assert_eq!(ended(keeper, &running.id).await.state, ProcessState::Ended);
    });
    life.end(rig);
}

#[test]
fn yesterdays_environment_is_asked_for_where_it_was_made() {
    let rig = on("a", "  ssh_port: 2222\n  ssh_jump: door\n");
    let hosts = &rig.backends.story.hosts;
    let life = Life::begin(&rig);
    let running = life.on(async { life.keeper.start(start(&rig, "echo here; sleep 1000")).await.unwrap() });
    life.die();
    settings(&rig, "b", "");
    hosts.asked();
    let life = Life::begin(&rig);
    life.on(async {
        let keeper = &life.keeper;
        until("it is found", || async {
            keeper.environment("default").await.unwrap().state == EnvironmentState::Ready
        })
        .await;
        until("it has printed", || async {
            keeper.log(&running.id, LogQuery::default()).await.unwrap().text.lossy() == "here\n"
        })
        .await;
        let found = process(keeper, &running.id).await;
        assert_eq!((found.state, found.place.id.as_str()), (ProcessState::Running, "a-0"));
        let error = keeper.run(request(&rig, "true")).await.unwrap_err();
        assert_eq!(error.kind, Kind::SpecChanged, "what runs on a is not ended for b: {error}");
        assert_eq!(keeper.remove(remove(true, false)).await.unwrap().removed, ["ssh/default"]);
        assert_eq!(ended(keeper, &running.id).await.state, ProcessState::Ended);
        assert_eq!(hosts.asked(), ["a"]);
        until("its outpost is gone", || async { rig.outposts().is_empty() }).await;
        says(&rig, keeper, "true").await;
        assert_eq!(hosts.asked(), ["b"]);
    });
    life.end(rig);
}

#[tokio::test]
async fn a_host_that_is_away_is_not_replaced_by_another() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    says(&rig, &keeper, "true").await;
    hosts.leave("a", Kind::Unavailable);
    settings(&rig, "b", "");
    for round in 0..3 {
        let error = refused(&rig, &keeper).await;
        assert_eq!(
            (error.kind, error.message.as_str()),
            (Kind::Unavailable, "there is no host a"),
            "{round}"
        );
        assert!(error.hint.unwrap().contains("farshell env rm --forget ssh/default"));
        let environment = keeper.environment("default").await.unwrap();
        assert_eq!(
            (environment.spec["ssh_host"].as_str(), environment.place.unwrap().id.as_str()),
            ("a", "a-0")
        );
    }
    assert_eq!(hosts.asked(), ["a"]);
    hosts.come_back();
    says(&rig, &keeper, "true").await;
    assert_eq!(keeper.environment("default").await.unwrap().place.unwrap().id, "b-0");
    assert_eq!(rig.outposts().len(), 1, "the one before is ended");
    rig.end(keeper).await;
}

#[test]
fn another_machine_under_the_name_is_never_used_nor_believed() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let life = Life::begin(&rig);
    let running = life.on(async {
        let keeper = &life.keeper;
        let running = keeper.start(start(&rig, "sleep 1000")).await.unwrap();
        hosts.machine.store(1, Ordering::SeqCst);
        hosts.cut();
        for _ in 0..3 {
            let error = refused(&rig, keeper).await;
            assert_eq!(error.kind, Kind::IdentityChanged, "{error}");
        }
        assert_eq!(process(keeper, &running.id).await.state, ProcessState::Running);
        running
    });
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        let keeper = &life.keeper;
        until("it is looked for", || async { state(keeper).await == Some(EnvironmentState::Failed) }).await;
        let error = keeper.run(request(&rig, "true")).await.unwrap_err();
        assert_eq!(error.kind, Kind::IdentityChanged, "{error}");
        assert!(error.hint.unwrap().contains("farshell env rm --forget ssh/default"));
        assert_eq!(process(keeper, &running.id).await.state, ProcessState::Running);
        hosts.machine.store(0, Ordering::SeqCst);
        until("it is found again", || async { keeper.environment("default").await.unwrap().background == 1 })
            .await;
        // Whoever knows better goes on with the other machine.
        hosts.machine.store(1, Ordering::SeqCst);
        hosts.cut();
        let forgotten = keeper.remove(remove(true, true)).await.unwrap();
        assert_eq!(forgotten.forgotten.len(), 1, "{forgotten:?}");
        says(&rig, keeper, "true").await;
        assert_eq!(keeper.environment("default").await.unwrap().place.unwrap().id, "a-1");
        // Nobody comes to the first machine any more, and what runs there ends with its outpost.
        rig.end_outposts();
    });
    life.end(rig);
}

#[tokio::test]
async fn what_can_not_be_reached_is_removed_only_by_forgetting_it() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    let running = keeper.start(start(&rig, "sleep 1000")).await.unwrap();
    hosts.leave("a", Kind::Unavailable);
    for _ in 0..2 {
        let refused = keeper.remove(remove(true, false)).await.unwrap();
        assert_eq!((refused.removed.len(), refused.forgotten.len()), (0, 0));
        let error = &refused.failed[0].error;
        assert!(error.hint.as_ref().unwrap().contains("farshell env rm --forget ssh/default"), "{error:?}");
        assert_eq!(state(&keeper).await, Some(EnvironmentState::Failed));
    }
    tried(&rig, 1).await;
    assert_eq!(process(&keeper, &running.id).await.state, ProcessState::Running, "nobody has ended it");
    let forgotten = keeper.remove(remove(true, true)).await.unwrap();
    assert_eq!((forgotten.removed.len(), forgotten.failed.len()), (0, 0));
    assert_eq!(forgotten.forgotten[0].key, "ssh/default");
    let left = &forgotten.forgotten[0].left;
    assert!(
        left.contains("there is no host a. What runs on a goes on") && left.contains("14400 s"),
        "{left}"
    );
    assert_eq!(state(&keeper).await, None);
    let lost = ended(&keeper, &running.id).await;
    assert_eq!(lost.state, ProcessState::Lost);
    let removed = events_of(&keeper, EventKind::EnvironmentRemoved).await;
    assert_eq!((removed.len(), &removed[0].data["reason"]), (1, &"forgotten".into()));
    assert_eq!(rig.outposts().len(), 1, "it is as it was");
    hosts.come_back();
    // What is there is found by the next one that uses the host.
    says(&rig, &keeper, "true").await;
    assert_eq!(rig.outposts().len(), 1);
    rig.end(keeper).await;
}

/// Somebody's call has found out that the host is away; when it is back, nobody has to run anything first.
#[tokio::test]
async fn a_process_is_reached_again_as_soon_as_its_host_is_back() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    let running = keeper.start(start(&rig, "echo here; sleep 1000")).await.unwrap();
    hosts.leave("a", Kind::Unavailable);
    until("it is noticed", || async {
        keeper.run(request(&rig, "true")).await.unwrap_err();
        state(&keeper).await == Some(EnvironmentState::Failed)
    })
    .await;
    let listed = keeper.processes(Default::default()).await.unwrap();
    assert!(listed[0].unreachable.as_ref().unwrap().contains("there is no host a"), "{listed:?}");
    let error = keeper.log(&running.id, LogQuery::default()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Disconnected, "{error}");
    hosts.come_back();
    let log = keeper.log(&running.id, LogQuery::default()).await.unwrap();
    assert_eq!(log.text.lossy(), "here\n");
    let environment = keeper.environment("default").await.unwrap();
    assert_eq!((environment.state, environment.background), (EnvironmentState::Ready, 1));
    assert_eq!(process(&keeper, &running.id).await.unreachable, None);
    keeper.kill(&running.id, Default::default()).await.unwrap();
    assert_eq!(ended(&keeper, &running.id).await.state, ProcessState::Ended);
    rig.end(keeper).await;
}

/// A list costs one wait for each environment that does not answer, and not one for each process.
#[tokio::test]
async fn a_line_that_is_dead_keeps_nobody_waiting_for_each_process() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let keeper = rig.open().await;
    for n in 0..20 {
        let pty = (n == 0).then_some(farshell_api::run::Size { rows: 24, cols: 80 });
        keeper.start(StartRequest { pty, ..start(&rig, "sleep 1000") }).await.unwrap();
    }
    hosts.deaf.store(true, Ordering::SeqCst);
    let listed = tokio::time::timeout(crate::rig::PATIENCE, keeper.processes(Default::default())).await;
    let listed = listed.unwrap().unwrap();
    assert_eq!(listed.iter().filter(|process| process.unreachable.is_some()).count(), 20);
    hosts.deaf.store(false, Ordering::SeqCst);
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_host_that_was_never_there_is_removed_without_a_word() {
    let rig = on("mistyped", "");
    rig.backends.story.hosts.leave("mistyped", Kind::Unavailable);
    let keeper = rig.open().await;
    keeper.run(request(&rig, "true")).await.unwrap_err();
    assert_eq!(state(&keeper).await, Some(EnvironmentState::Failed));
    assert_eq!(keeper.remove(remove(true, false)).await.unwrap().removed, ["ssh/default"]);
    rig.end(keeper).await;
}

#[test]
fn what_could_not_be_looked_for_is_no_waste() {
    let rig = on("a", "");
    let hosts = &rig.backends.story.hosts;
    let life = Life::begin(&rig);
    life.on(says(&rig, &life.keeper, "export A=1"));
    life.die();
    hosts.leave("a", Kind::Unavailable);
    let life = Life::begin(&rig);
    life.on(async {
        let keeper = &life.keeper;
        until("it fails", || async { state(keeper).await == Some(EnvironmentState::Failed) }).await;
        // Whoever looked for it may hold it for a moment longer.
        until("it can't be looked for", || async {
            let gc = keeper.gc(GcRequest { remove: true }).await.unwrap();
            gc.found[0].error.as_ref().is_some_and(|error| error.contains("there is no host a"))
        })
        .await;
        let refused = keeper.remove(remove(true, false)).await.unwrap();
        assert_eq!((refused.removed.len(), refused.failed.len()), (0, 1), "{refused:?}");
        hosts.come_back();
        assert_eq!(says(&rig, keeper, "echo $A").await, "1\n");
    });
    life.end(rig);
}
