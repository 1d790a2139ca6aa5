//! Places that can be put away, that are gone, and that say what becomes of them.

use crate::rig::{Life, PATIENCE, Rig, ended, events_of, until, whole};
use farshell_api::environment::{EnvironmentState, KeptFiles, Limit, Progress, RemoveRequest};
use farshell_api::event::EventKind;
use farshell_api::process::ProcessState;
use farshell_api::run::{RunRequest, RunResult, StartRequest};
use farshell_api::stream::Open;
use farshell_engine::Kind;
use farshell_engine::backend::News;
use farshell_keeper::{Keeper, Observer};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A backend whose places can be put away.
const DAYTONA: &[(&str, &str)] = &[("TERMINAL_ENV", "daytona")];

fn start(rig: &Rig, command: &str) -> StartRequest {
    StartRequest { target: rig.target_with("default", DAYTONA), ..StartRequest::new(command) }
}

fn request(rig: &Rig, command: &str) -> RunRequest {
    whole(start(rig, command))
}

async fn run(rig: &Rig, keeper: &Keeper, command: &str) -> RunResult {
    keeper.run(request(rig, command)).await.unwrap()
}

fn named(stop: bool, files: bool) -> RemoveRequest {
    RemoveRequest { names: vec!["daytona/default".into()], stop, files, ..RemoveRequest::default() }
}

fn counts(rig: &Rig) -> (usize, usize, usize) {
    let story = &rig.backends.story;
    let count = |number: &std::sync::atomic::AtomicUsize| number.load(Ordering::SeqCst);
    (count(&rig.backends.provisioned), count(&story.suspended), count(&story.destroyed))
}

#[derive(Default)]
struct Heard(Mutex<Vec<News>>);

impl Observer for Heard {
    fn progress(&self, news: &News) {
        self.0.lock().unwrap().push(news.clone());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_long_is_told_to_all_who_wait() {
    let rig = Rig::new();
    let news = |done| News { message: "pulling an image".into(), part: Some((done, 8)) };
    *rig.backends.story.news.lock().unwrap() = (0..8).map(news).collect();
    let keeper = rig.open().await;
    let callers: Vec<_> = (0..3)
        .map(|n| {
            let keeper = keeper.clone();
            let background = n == 0;
            let start = StartRequest { background, session: format!("s{n}"), ..start(&rig, "echo ok") };
            tokio::spawn(async move {
                let heard = Heard::default();
                let open = Open { start: Some(Box::new(start)), attach: None };
                keeper.stream(open, &heard).await.unwrap();
                heard.0.into_inner().unwrap()
            })
        })
        .collect();
    let shown = Progress { message: "pulling an image".into(), done: Some(7), total: Some(8) };
    until("it is shown", || async {
        let environment = keeper.environment("daytona/default").await;
        environment.is_ok_and(|environment| environment.progress == Some(shown.clone()))
    })
    .await;
    for caller in callers {
        let heard = caller.await.unwrap();
        assert!(heard.len() >= 3, "{heard:?}");
        assert_eq!(heard.last(), Some(&news(7)), "{heard:?}");
        assert!(heard.is_sorted_by_key(|news| news.part), "{heard:?}");
    }
    assert_eq!(keeper.environment("daytona/default").await.unwrap().progress, None);
    assert_eq!(counts(&rig).0, 1);
    rig.end(keeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_left_when_the_last_who_waits_goes_away() {
    let rig = Rig::new();
    let story = &rig.backends.story;
    story.full.store(true, Ordering::SeqCst);
    let keeper = rig.open().await;
    let ask = || {
        let open = Open { start: Some(Box::new(start(&rig, "echo ok"))), attach: None };
        let keeper = keeper.clone();
        tokio::spawn(async move { keeper.stream(open, &()).await.map(drop) })
    };
    let (first, second) = (ask(), ask());
    until("it waits", || async {
        let environment = keeper.environment("daytona/default").await;
        environment.is_ok_and(|environment| {
            environment.progress.is_some_and(|progress| progress.message == "in the queue")
                && environment.state == EnvironmentState::Creating
        })
    })
    .await;
    first.abort();
    let _ = first.await;
    assert!(!second.is_finished());
    assert_eq!((counts(&rig).0, story.given_up.load(Ordering::SeqCst)), (1, 0), "somebody still waits");
    second.abort();
    until("it is given up", || async { story.given_up.load(Ordering::SeqCst) == 1 }).await;
    // Who removes it does not wait for room either.
    let third = ask();
    until("it waits again", || async { counts(&rig).0 == 2 }).await;
    let removed = keeper.remove(named(false, false)).await.unwrap();
    assert_eq!(removed.removed, ["daytona/default"], "{removed:?}");
    assert_eq!(third.await.unwrap().unwrap_err().kind, Kind::NotStarted);
    story.full.store(false, Ordering::SeqCst);
    assert_eq!(run(&rig, &keeper, "echo ok").await.stdout, "ok\n");
    let environment = keeper.environment("daytona/default").await.unwrap();
    assert_eq!((environment.status.as_deref(), environment.progress), (Some("job 1 on n1"), None));
    assert_eq!(counts(&rig).0, 3);
    rig.end(keeper).await;
}

#[tokio::test]
async fn the_limits_of_the_place_are_told() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    run(&rig, &keeper, "true").await;
    let limit = |support: &str, value: Option<&str>, note: Option<&str>| Limit {
        support: support.into(),
        value: value.map(Into::into),
        note: note.map(Into::into),
    };
    let expected = [
        ("cpu", limit("enforced", Some("2 cores"), None)),
        ("disk", limit("not enforced", Some("5 MB"), Some("its disk has no quota"))),
        // Of which the place says nothing.
        ("memory", limit("not enforced", None, None)),
        ("processes", limit("not enforced", None, None)),
    ];
    let shown = keeper.environment("daytona/default").await.unwrap().limits;
    assert_eq!(shown, expected.map(|(name, limit)| (name.to_owned(), limit)).into());
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_is_persistent_is_put_away_and_brought_back_with_a_note() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let first = run(&rig, &keeper, "cd /usr; export A=1").await;
    assert_eq!((first.note, first.shell_restarted), (None, false));
    assert_eq!(keeper.remove(named(true, false)).await.unwrap().removed, ["daytona/default"]);
    assert_eq!(counts(&rig), (1, 1, 0));
    assert_eq!(keeper.environment("default").await.unwrap().state, EnvironmentState::Stopped);
    let next = run(&rig, &keeper, "echo $A; pwd").await;
    assert_eq!(next.stdout, "1\n/usr\n");
    assert_eq!(
        next.note.unwrap(),
        "the session began anew: its environment was put away; its directory and exported variables are as they were"
    );
    assert!(next.shell_restarted && next.state_lost);
    let other = whole(StartRequest { session: "other".into(), ..start(&rig, "true") });
    assert_eq!(keeper.run(other).await.unwrap().note, None, "it is a new session");
    let again = run(&rig, &keeper, "true").await;
    assert_eq!((again.note, again.shell_restarted), (None, false), "told once");
    let removed = keeper.remove(named(false, false)).await.unwrap();
    assert_eq!((removed.removed.len(), counts(&rig)), (1, (2, 1, 1)));
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_is_idle_is_put_away_and_what_is_not_persistent_is_removed() {
    let rig = Rig::new();
    rig.config("terminal:\n  lifetime_seconds: 1\n");
    let keeper = rig.open().await;
    run(&rig, &keeper, "true").await;
    until("it is put away", || async {
        keeper.environment("default").await.unwrap().state == EnvironmentState::Stopped
    })
    .await;
    assert_eq!(counts(&rig), (1, 1, 0));
    rig.config("terminal:\n  lifetime_seconds: 1\n  container_persistent: false\n");
    let note = run(&rig, &keeper, "true").await.note.unwrap();
    assert!(note.contains("container_persistent: true -> false"), "{note}");
    until("it is removed", || async { keeper.environments().await.unwrap().is_empty() }).await;
    // The one that was put away was in the way of the other.
    assert_eq!(counts(&rig), (2, 1, 1));
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_place_that_is_awake_and_in_which_nobody_answers_is_put_away_if_it_keeps_its_files() {
    for keeps in [true, false] {
        let rig = Rig::new();
        rig.config(&format!("terminal:\n  lifetime_seconds: 1\n  container_persistent: {keeps}\n"));
        let keeper = rig.open().await;
        run(&rig, &keeper, "true").await;
        rig.backends.unreachable.store(true, Ordering::SeqCst);
        rig.kill_outposts();
        let state = async || keeper.environment("default").await.unwrap().state;
        until("it is asked in vain", || async { state().await == EnvironmentState::Failed }).await;
        assert_eq!(counts(&rig), (1, 0, 0), "once may be bad luck");
        if keeps {
            until("it is put away", || async { state().await == EnvironmentState::Stopped }).await;
            assert_eq!(counts(&rig), (1, 1, 0));
        } else {
            let connected = &rig.backends.story.connected;
            for _ in 0..2 {
                let before = connected.load(Ordering::SeqCst);
                until("it is asked again", || async { connected.load(Ordering::SeqCst) > before }).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert_eq!((state().await, counts(&rig)), (EnvironmentState::Failed, (1, 0, 0)));
        }
        rig.backends.unreachable.store(false, Ordering::SeqCst);
        rig.end(keeper).await;
    }
}

#[tokio::test]
async fn changed_settings_are_refused_for_what_is_put_away_too() {
    let rig = Rig::new();
    rig.config("terminal:\n  on_spec_change: refuse\n");
    let keeper = rig.open().await;
    run(&rig, &keeper, "true").await;
    keeper.remove(named(true, false)).await.unwrap();
    rig.config("terminal:\n  on_spec_change: refuse\n  container_memory: 77\n");
    let error = keeper.run(request(&rig, "true")).await.unwrap_err();
    assert_eq!(error.kind, Kind::SpecChanged);
    assert!(error.message.contains("container_memory: 5120 -> 77"), "{error}");
    assert_eq!(keeper.environment("default").await.unwrap().state, EnvironmentState::Stopped);
    rig.config("terminal:\n  on_spec_change: refuse\n");
    assert_eq!(run(&rig, &keeper, "echo ok").await.stdout, "ok\n");
    rig.end(keeper).await;
}

#[tokio::test]
async fn files_that_are_nowhere_else_are_never_deleted_for_changed_settings() {
    let rig = Rig::new();
    rig.backends.story.files_go.store(true, Ordering::SeqCst);
    let keeper = rig.open().await;
    run(&rig, &keeper, "true").await;
    // While it runs, when it sleeps, and when it could not be reached.
    for round in 0..3 {
        rig.config("terminal:\n  container_memory: 77\n");
        let error = keeper.run(request(&rig, "true")).await.unwrap_err();
        assert_eq!(error.kind, Kind::SpecChanged, "{round}: {error}");
        assert!(error.message.contains("container_memory: 5120 -> 77"), "{round}: {error}");
        assert!(
            error.hint.as_ref().unwrap().contains("farshell env rm --files daytona/default"),
            "{round}: {error:?}"
        );
        assert_eq!(rig.backends.story.destroyed.load(Ordering::SeqCst), 0, "{round}");
        rig.config("terminal:\n");
        assert_eq!(run(&rig, &keeper, "echo ok").await.stdout, "ok\n");
        keeper.remove(named(true, false)).await.unwrap();
        if round == 1 {
            rig.backends.unreachable.store(true, Ordering::SeqCst);
            assert!(keeper.run(request(&rig, "true")).await.is_err());
            rig.backends.unreachable.store(false, Ordering::SeqCst);
        }
    }
    // What is not to be kept may go.
    rig.config("terminal:\n  container_persistent: false\n");
    assert_eq!(keeper.run(request(&rig, "true")).await.unwrap_err().kind, Kind::SpecChanged);
    assert_eq!(keeper.remove(named(false, true)).await.unwrap().removed.len(), 1);
    run(&rig, &keeper, "true").await;
    rig.config("terminal:\n  container_persistent: false\n  container_memory: 77\n");
    run(&rig, &keeper, "true").await;
    rig.end(keeper).await;
}

#[tokio::test]
async fn files_that_are_nowhere_else_are_deleted_only_by_name() {
    let rig = Rig::new();
    rig.backends.story.files_go.store(true, Ordering::SeqCst);
    let keeper = rig.open().await;
    run(&rig, &keeper, "true").await;
    let kept =
        KeptFiles { key: "daytona/default".into(), location: "the place itself, which is put away".into() };
    // While it is there, when it sleeps, and with all others.
    let all = RemoveRequest { all: true, force: true, ..RemoveRequest::default() };
    for (request, count) in [(named(false, false), 1), (named(false, false), 2), (all, 3)] {
        let result = keeper.remove(request).await.unwrap();
        assert_eq!((&result.removed[..], &result.kept[..]), (&[kept.key.clone()][..], &[kept.clone()][..]));
        assert_eq!(counts(&rig), (1, count, 0), "put away, and not destroyed");
        assert_eq!(keeper.environment("default").await.unwrap().state, EnvironmentState::Stopped);
    }
    // Settings that can't be read say nothing about files.
    run(&rig, &keeper, "true").await;
    rig.config("terminal: [");
    let result = keeper.remove(named(false, false)).await.unwrap();
    assert_eq!((&result.kept[..], counts(&rig).2), (&[kept.clone()][..], 0));
    rig.config("");
    let result = keeper.remove(named(false, true)).await.unwrap();
    assert_eq!((&result.removed[..], &result.kept[..]), (&[kept.key.clone()][..], &[][..]));
    assert_eq!(counts(&rig).2, 1);
    assert_eq!(keeper.environment("default").await.unwrap_err().kind, Kind::NotFound);
    rig.end(keeper).await;
}

#[tokio::test]
async fn where_nobody_ever_was_no_files_are_said_to_be_kept() {
    let rig = Rig::new();
    rig.backends.story.files_go.store(true, Ordering::SeqCst);
    rig.backends.broken.store(true, Ordering::SeqCst);
    let keeper = rig.open().await;
    assert!(keeper.run(request(&rig, "true")).await.is_err());
    let result = keeper.remove(RemoveRequest { force: true, ..named(false, false) }).await.unwrap();
    assert_eq!((&result.removed[..], &result.kept[..]), (&["daytona/default".to_owned()][..], &[][..]));
    assert_eq!(keeper.environment("default").await.unwrap_err().kind, Kind::NotFound);
    rig.end(keeper).await;
}

#[test]
fn a_place_that_is_gone_is_not_made_anew_to_be_found_or_removed() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let process = life.on(async {
        run(&rig, &life.keeper, "export A=1").await;
        life.keeper.start(start(&rig, "sleep 1000")).await.unwrap()
    });
    life.die();
    rig.kill_outposts();
    rig.backends.story.gone.store(true, Ordering::SeqCst);
    let life = Life::begin(&rig);
    life.on(async {
        let lost = ended(&life.keeper, &process.id).await;
        assert_eq!(lost.state, ProcessState::Lost);
        let environment = life.keeper.environment("default").await.unwrap();
        assert_eq!((environment.state, environment.background), (EnvironmentState::Stopped, 0));
        assert_eq!(counts(&rig).0, 1, "nothing was made");
        let note = run(&rig, &life.keeper, "true").await.note.unwrap();
        assert!(note.contains("stopped while no server ran"), "{note}");
        assert_eq!(counts(&rig).0, 2);
        life.keeper.remove(named(true, false)).await.unwrap();
        rig.backends.story.gone.store(true, Ordering::SeqCst);
        assert_eq!(life.keeper.remove(named(false, false)).await.unwrap().removed, ["daytona/default"]);
        assert_eq!(counts(&rig), (2, 1, 0), "nor was there anything to be destroyed");
        rig.backends.story.gone.store(false, Ordering::SeqCst);
    });
    life.end(rig);
}

#[test]
fn a_place_that_sleeps_is_not_woken_by_a_server_that_starts() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    life.on(run(&rig, &life.keeper, "true"));
    life.die();
    rig.kill_outposts();
    rig.backends.story.sleeps.store(true, Ordering::SeqCst);
    let life = Life::begin(&rig);
    life.on(async {
        until("it is seen to sleep", || async {
            life.keeper.environment("default").await.unwrap().state == EnvironmentState::Stopped
        })
        .await;
        assert_eq!(counts(&rig), (1, 1, 0));
        assert_eq!(rig.outposts(), Vec::<u32>::new());
        assert_eq!(run(&rig, &life.keeper, "echo ok").await.stdout, "ok\n");
    });
    life.end(rig);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_says_how_long_putting_it_away_may_take_and_what_is_kept() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    run(&rig, &keeper, "true").await;
    // A snapshot takes its time, and only the place knows how much.
    *rig.backends.story.stuck.lock().unwrap() = Some(Duration::from_millis(50));
    let failed = keeper.remove(named(true, false)).await.unwrap().failed;
    assert!(failed[0].error.message.contains("has not ended after"), "{failed:?}");
    *rig.backends.story.stuck.lock().unwrap() = None;
    *rig.backends.story.keepsake.lock().unwrap() = Some("until Friday".into());
    assert!(keeper.remove(named(true, false)).await.unwrap().failed.is_empty());
    let environment = keeper.environment("daytona/default").await.unwrap();
    assert_eq!(
        (environment.state, environment.note.as_deref()),
        (EnvironmentState::Stopped, Some("until Friday"))
    );
    run(&rig, &keeper, "true").await;
    assert_eq!(keeper.environment("daytona/default").await.unwrap().note, None);
    rig.end(keeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_found_again_is_as_old_as_it_was() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    run(&rig, &keeper, "true").await;
    let created = async || keeper.environment("daytona/default").await.unwrap().created_at;
    let before = created().await;
    let lose = async || {
        let provisioned = counts(&rig).0;
        rig.backends.story.gone.store(true, Ordering::SeqCst);
        rig.kill_outposts();
        until("it is provisioned again", || async {
            keeper.run(request(&rig, "true")).await.is_ok() && counts(&rig).0 > provisioned
        })
        .await;
    };
    lose().await;
    assert_eq!(created().await, before);
    // Another one in its stead is as young as it is.
    rig.backends.story.generation.fetch_add(1, Ordering::SeqCst);
    lose().await;
    assert_ne!(created().await, before);
    rig.end(keeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_lost_is_replaced_by_the_next_call_and_says_why() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    run(&rig, &keeper, "export A=1").await;
    let background = keeper.start(start(&rig, "sleep 1000")).await.unwrap();
    let begun = rig.home().join("begun");
    let begin = format!("touch {}; sleep 1000", begun.display());
    let running = {
        let (keeper, request) = (keeper.clone(), request(&rig, &begin));
        tokio::spawn(async move { keeper.run(request).await })
    };
    until("it runs", || async { begun.exists() }).await;
    let why = "the container ran out of memory and was killed";
    *rig.backends.story.epitaph.lock().unwrap() = Some(why.into());
    rig.backends.story.gone.store(true, Ordering::SeqCst);
    rig.kill_outposts();
    let error = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind, Kind::UnknownOutcome);
    assert!(error.message.starts_with(why), "{error}");
    let lost = ended(&keeper, &background.id).await;
    assert_eq!(
        (lost.state, lost.note.unwrap()),
        (ProcessState::Lost, format!("{why}: nobody can say how it ended"))
    );
    std::fs::remove_file(&begun).unwrap();
    let next = run(&rig, &keeper, "echo $A").await;
    assert_eq!((next.stdout.as_str(), next.note.unwrap()), ("\n", format!("the session began anew: {why}")));
    assert!(!begun.exists(), "nothing is run again");
    assert_eq!(counts(&rig).0, 2);
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await.len(), 1);
    *rig.backends.story.epitaph.lock().unwrap() = None;
    rig.end(keeper).await;
}

#[tokio::test]
async fn files_are_kept_and_said_to_be_or_removed_if_asked() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    *rig.backends.story.files.lock().unwrap() = Some("/sandboxes/x".into());
    run(&rig, &keeper, "true").await;
    assert_eq!(keeper.remove(named(true, true)).await.unwrap_err().kind, Kind::Invalid);
    let kept = keeper.remove(named(false, false)).await.unwrap().kept;
    assert_eq!(kept, [KeptFiles { key: "daytona/default".into(), location: "/sandboxes/x".into() }]);
    let removed = || rig.backends.story.files_removed.load(Ordering::SeqCst);
    assert_eq!(removed(), 0);
    // The environment is gone, and its files are not.
    let result = keeper.remove(named(false, true)).await.unwrap();
    assert_eq!(
        (result.removed.as_slice(), result.kept.len(), removed()),
        (&["daytona/default".to_owned()][..], 0, 1)
    );
    run(&rig, &keeper, "true").await;
    let result = keeper.remove(named(false, true)).await.unwrap();
    assert_eq!((result.failed, result.kept, removed()), (vec![], vec![], 2));
    let nonsense = RemoveRequest { names: vec!["nobody".into()], files: true, ..RemoveRequest::default() };
    assert_eq!(keeper.remove(nonsense).await.unwrap().failed[0].error.kind, "not_found");
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_is_not_to_outlive_the_server_does_not() {
    let rig = Rig::new();
    rig.config("terminal:\n  backend: docker\n  docker_persist_across_processes: false\n  isolation: task\n");
    let keeper = rig.open().await;
    // Its directory is that of a container; here another one has to do.
    let env = [("TERMINAL_CWD", "/")];
    for (task, command) in [("idle", "true"), ("busy", "sleep 1000 &")] {
        let target = rig.target_with(task, &env);
        keeper.run(whole(StartRequest { target, ..StartRequest::new(command) })).await.unwrap();
    }
    let busy = StartRequest { target: rig.target_with("busy", &env), ..StartRequest::new("sleep 1000") };
    keeper.start(busy).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    keeper.close(false).await.unwrap();
    assert_eq!(counts(&rig).1, 1);
    assert_eq!(rig.outposts().len(), 1, "what is in use is left to its lease");
    let keeper = rig.open().await;
    until("it is found again", || async {
        keeper.environment("docker/busy").await.unwrap().state == EnvironmentState::Ready
    })
    .await;
    assert_eq!(keeper.environment("docker/idle").await.unwrap().state, EnvironmentState::Stopped);
    rig.end(keeper).await;
}
