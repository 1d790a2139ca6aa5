//! What is put in comes out again, also after a restart.

use crate::common::*;
use farshell_api::event::{Event, EventKind};
use farshell_api::process::ProcessState;
use farshell_store::{Error, Insert, Keep, Kind, NewEvent, ProcessRow, Pruned, Running, Store};
use serde_json::json;
use std::time::{Duration, Instant};

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.unwrap_err().kind
}

#[tokio::test]
async fn environments_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let full = environment("local/b");
    let bare = farshell_store::EnvironmentRow {
        place: None,
        instance: None,
        note: None,
        state: farshell_api::environment::EnvironmentState::Creating,
        tasks: vec![],
        settings: serde_json::Value::Null,
        ..environment("local/a")
    };
    store.put_environment(full.clone(), Some(note("made"))).await.unwrap();
    store.put_environment(bare.clone(), None).await.unwrap();
    assert_eq!(store.environments().await.unwrap(), [bare.clone(), full.clone()]);
    assert!(store.touch("local/b", 1).await.unwrap());
    assert!(!store.touch("local/c", 1).await.unwrap());
    store.close().await.unwrap();

    let store = open(dir.path()).await;
    let touched = farshell_store::EnvironmentRow { last_used_at: 1, ..full };
    assert_eq!(store.environment("local/b").await.unwrap(), Some(touched));
    assert_eq!(store.environment("local/c").await.unwrap(), None);
    assert!(store.remove_environment("local/b", Some(note("gone"))).await.unwrap());
    assert!(!store.remove_environment("local/b", Some(note("gone"))).await.unwrap());
    let notes: Vec<_> = all_events(&store).await.into_iter().map(|event| event.data).collect();
    assert_eq!(notes, [json!({"note": "made"}), json!({"note": "gone"})]);
    // What replaces a row replaces all of it.
    store.put_environment(environment("local/a"), None).await.unwrap();
    assert_eq!(store.environments().await.unwrap(), [environment("local/a")]);
}

#[tokio::test]
async fn a_process_lives_and_ends_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let row = process("p1", "default");
    assert_eq!(store.insert_process(row.clone(), None).await.unwrap(), Insert::Inserted);
    let again = ProcessRow { instance: Some("other".into()), ..row.clone() };
    let exists = Insert::Exists(Box::new(row.clone()));
    assert_eq!(store.insert_process(again, Some(note("again"))).await.unwrap(), exists);

    let running = Running { pid: Some(7), instance: Some("i-1".into()), started_at: Some(9) };
    let started = NewEvent::new(EventKind::ProcessStarted, 9);
    assert!(store.set_running("p1", running, Some(started)).await.unwrap());
    assert!(store.set_running("p1", Running::default(), None).await.unwrap());
    let mut expected = row;
    expected.process.state = ProcessState::Running;
    expected.process.pid = Some(7);
    expected.process.started_at = Some(9);
    expected.instance = Some("i-1".into());
    assert_eq!(store.process("p1").await.unwrap(), Some(expected.clone()));

    let matched = NewEvent::new(EventKind::WatchMatched, 9);
    assert!(
        store.set_watch("p1", 100, json!({"n": 1}), vec![matched.clone(), matched.clone()]).await.unwrap()
    );
    assert!(!store.set_watch("p1", 99, json!({"n": 2}), vec![matched.clone()]).await.unwrap());
    assert!(store.set_watch("p1", 100, json!({"n": 3}), vec![]).await.unwrap());
    expected.watch_offset = 100;
    expected.watch_state = json!({"n": 3});
    assert_eq!(store.unfinished().await.unwrap(), [expected.clone()]);

    assert!(store.complete("p1", completion("p1"), completed(20)).await.unwrap());
    assert!(!store.complete("p1", completion("p1"), completed(21)).await.unwrap());
    assert!(!store.set_running("p1", Running::default(), Some(note("late"))).await.unwrap());
    store.close().await.unwrap();

    let store = open(dir.path()).await;
    let process = &mut expected.process;
    process.state = ProcessState::Ended;
    process.exit_code = Some(137);
    process.signal = Some(9);
    process.signal_name = Some("KILL".into());
    process.timed_out = true;
    process.workdir_failed = true;
    process.killed = 3;
    process.survivors = 1;
    process.started_at = Some(10);
    process.ended_at = Some(20);
    process.duration_ms = 10;
    process.cwd = completion("p1").cwd;
    process.stdout_bytes = u64::MAX;
    process.stderr_bytes = 7;
    process.shell_restarted = true;
    process.state_lost = true;
    process.output_open = true;
    process.log.stdout_bytes = 5;
    process.note = Some("so it is".into());
    assert_eq!(store.process("p1").await.unwrap(), Some(expected));
    assert_eq!(store.unfinished().await.unwrap(), []);

    let about = |seq, at, kind, data| Event {
        seq,
        at,
        kind,
        task: Some("default".into()),
        process_id: Some("p1".into()),
        environment: Some("local/default".into()),
        data,
    };
    let expected = [
        about(1, 9, EventKind::ProcessStarted, json!(null)),
        about(2, 9, EventKind::WatchMatched, json!(null)),
        about(3, 9, EventKind::WatchMatched, json!(null)),
        about(4, 20, EventKind::ProcessCompleted, json!({"exit_code": 137})),
    ];
    assert_eq!(all_events(&store).await, expected);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.insert_process(process("p", "t"), None).await.unwrap();
    let mut over = process("q", "t");
    over.process.state = ProcessState::Lost;
    assert_eq!(kind(store.insert_process(over, None).await), Kind::Invalid);
    let unfinished = farshell_store::Completion { state: ProcessState::Running, ..completion("p") };
    assert_eq!(kind(store.complete("p", unfinished, completed(1)).await), Kind::Invalid);
    assert_eq!(kind(store.complete("p", completion("p"), note("no")).await), Kind::Invalid);
    assert_eq!(kind(store.append(completed(1)).await), Kind::Invalid);
    // The second event of two is bad: the first one and the new offset are not kept either.
    let events = vec![note("fine"), completed(1)];
    assert_eq!(kind(store.set_watch("p", 5, json!(1), events).await), Kind::Invalid);
    assert_eq!(kind(store.forget("p").await), Kind::Invalid);
    assert_eq!(kind(store.append(NewEvent { at: u64::MAX, ..note("late") }).await), Kind::Invalid);
    for result in [
        store.complete("none", completion("none"), completed(1)).await,
        store.set_running("none", Running::default(), None).await,
        store.set_watch("none", 0, json!(1), vec![]).await,
    ] {
        assert_eq!(kind(result), Kind::NotFound);
    }
    assert!(!store.forget("none").await.unwrap());
    assert_eq!(store.processes(None, true).await.unwrap(), [process("p", "t")]);
    assert_eq!(all_events(&store).await, []);
    assert_eq!((store.last_seq(), *store.watch().borrow()), (0, 0));
    // Not even a number is used up.
    assert_eq!(store.append(note("first")).await.unwrap(), 1);
}

#[tokio::test]
async fn a_forgotten_id_is_not_used_again_while_its_completion_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.insert_process(process("p", "t"), None).await.unwrap();
    store.complete("p", completion("p"), completed(1)).await.unwrap();
    assert!(store.forget("p").await.unwrap());
    assert_eq!(store.process("p").await.unwrap(), None);
    let error = store.insert_process(process("p", "t"), None).await.unwrap_err();
    assert_eq!(error.kind, Kind::AlreadyExists);
    assert_eq!(
        error.to_string(),
        "recording a process: the id p was used by a process that has ended and was forgotten\nhint: use a new id"
    );
    let api = farshell_api::ApiError::from(error);
    assert_eq!((api.kind.as_str(), api.retry.as_str()), ("already_exists", "never"));
}

#[tokio::test]
async fn processes_are_listed_by_task_and_age() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for (id, task) in [("c", "x"), ("a", "y"), ("b", "x")] {
        store.insert_process(process(id, task), None).await.unwrap();
    }
    store.complete("c", completion("c"), completed(1)).await.unwrap();
    for (task, all, expected) in [
        (None, true, vec!["c", "a", "b"]),
        (None, false, vec!["a", "b"]),
        (Some("x"), true, vec!["c", "b"]),
        (Some("x"), false, vec!["b"]),
        (Some("z"), true, vec![]),
    ] {
        let rows = store.processes(task, all).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.process.id.as_str()).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn events_are_read_in_pieces_and_by_task() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for n in 1..=10 {
        let task = if n % 2 == 0 { Some("even".to_owned()) } else { None };
        assert_eq!(store.append(NewEvent { task, ..note("x") }).await.unwrap(), n);
    }
    let read = async |after, limit, task| {
        let list = store.events(after, limit, task).await.unwrap();
        assert_eq!((list.last, list.pruned), (10, 0));
        list.events.into_iter().map(|event| event.seq).collect::<Vec<_>>()
    };
    assert_eq!(read(0, 3, None).await, [1, 2, 3]);
    assert_eq!(read(3, 100, None).await, [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(read(3, 2, Some("even")).await, [4, 6]);
    assert_eq!(read(0, 100, Some("odd")).await, [] as [u64; 0]);
    assert_eq!(read(10, 100, None).await, [] as [u64; 0]);
    assert_eq!(read(u64::MAX, 100, None).await, [] as [u64; 0]);
    assert_eq!(read(0, 0, None).await, [] as [u64; 0]);
}

#[tokio::test]
async fn acknowledgements_only_go_forward() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for _ in 0..5 {
        store.append(note("x")).await.unwrap();
    }
    assert_eq!(store.acked("me").await.unwrap(), 0);
    assert_eq!(store.ack("me", 3).await.unwrap(), 3);
    assert_eq!(store.ack("me", 2).await.unwrap(), 3);
    assert_eq!(kind(store.ack("me", 6).await), Kind::Invalid);
    assert_eq!(kind(store.ack("me", u64::MAX).await), Kind::Invalid);
    assert_eq!(store.ack("you.2_-", 0).await.unwrap(), 0);
    for bad in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
        assert_eq!(kind(store.ack(bad, 1).await), Kind::Invalid, "{bad:?}");
        assert_eq!(kind(store.acked(bad).await), Kind::Invalid, "{bad:?}");
    }
    assert_eq!(store.ack(&"x".repeat(64), 1).await.unwrap(), 1);
    store.close().await.unwrap();
    assert_eq!(open(dir.path()).await.acked("me").await.unwrap(), 3);
}

#[tokio::test]
async fn of_too_many_consumers_the_last_in_the_race_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for _ in 0..3 {
        store.append(note("x")).await.unwrap();
    }
    store.ack("slow", 1).await.unwrap();
    for n in 0..1000 {
        store.ack(&format!("c{n}"), 2 + n % 2).await.unwrap();
    }
    assert_eq!(store.acked("slow").await.unwrap(), 0);
    // It comes back at the cost of another, not of itself.
    store.ack("slow", 1).await.unwrap();
    assert_eq!(store.acked("slow").await.unwrap(), 1);
    assert_eq!((store.acked("c0").await.unwrap(), store.acked("c999").await.unwrap()), (0, 3));
}

#[tokio::test]
async fn pruning_keeps_the_newest_and_all_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.insert_process(process("runs", "t"), None).await.unwrap();
    for n in 0..10 {
        let id = format!("p{n}");
        store.insert_process(process(&id, "t"), None).await.unwrap();
    }
    // The order in which they finish counts, not that in which they began.
    for n in (0..10).rev() {
        let id = format!("p{n}");
        store.complete(&id, completion(&id), completed(n)).await.unwrap();
    }
    store.ack("me", 4).await.unwrap();
    let pruned = store.prune(Keep { processes: 2, events: 3 }).await.unwrap();
    assert_eq!(pruned, Pruned { processes: 8, events: 7 });
    let ids: Vec<_> =
        store.processes(None, true).await.unwrap().into_iter().map(|row| row.process.id).collect();
    assert_eq!(ids, ["runs", "p0", "p1"]);
    let list = store.events(0, 100, None).await.unwrap();
    assert_eq!((list.events.len(), list.events[0].seq, list.last, list.pruned), (3, 8, 10, 7));

    // Nothing left, and still the numbers go on; also after a restart.
    store.prune(Keep { processes: 0, events: 0 }).await.unwrap();
    let list = store.events(0, 100, None).await.unwrap();
    assert_eq!((list.events.len(), list.last, list.pruned), (0, 10, 10));
    assert_eq!(store.unfinished().await.unwrap(), [process("runs", "t")]);
    store.close().await.unwrap();
    let store = open(dir.path()).await;
    assert_eq!((store.last_seq(), *store.watch().borrow()), (10, 10));
    assert_eq!(store.acked("me").await.unwrap(), 4);
    assert_eq!(store.ack("me", 10).await.unwrap(), 10);
    assert_eq!(store.append(note("x")).await.unwrap(), 11);
}

#[tokio::test]
async fn it_prunes_itself() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Keep { processes: 5, events: 200 };
    let (store, _) = Store::open_keeping(dir.path(), keep).await.unwrap();
    for n in 0..1000_u64 {
        store.append(note("x")).await.unwrap();
        if n % 20 == 0 {
            let id = n.to_string();
            store.insert_process(process(&id, "t"), None).await.unwrap();
            store.complete(&id, completion(&id), completed(n)).await.unwrap();
            let kept = store.processes(None, true).await.unwrap().len();
            assert!(kept <= 6, "{kept} processes after {n}");
        }
        let list = store.events(0, u32::MAX, None).await.unwrap();
        assert!(list.events.len() <= 203, "{} events after {n}", list.events.len());
    }
    store.close().await.unwrap();
    // Smaller limits hold from the opening on.
    let (store, _) = Store::open_keeping(dir.path(), Keep { processes: 1, events: 10 }).await.unwrap();
    assert_eq!(all_events(&store).await.len(), 10);
    assert_eq!(store.processes(None, true).await.unwrap().len(), 1);
    assert_eq!(store.last_seq(), 1050);
}

#[tokio::test]
async fn a_reader_waits_for_events_without_asking_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.append(note("before")).await.unwrap();
    let mut newest = store.watch();
    assert!(!newest.has_changed().unwrap());
    let reader = tokio::spawn({
        let store = store.clone();
        async move {
            let mut seen = Vec::new();
            while seen.len() < 101 {
                let after = seen.last().copied().unwrap_or(0);
                let list = store.events(after, 7, None).await.unwrap();
                if list.events.is_empty() {
                    newest.changed().await.unwrap();
                }
                seen.extend(list.events.iter().map(|event| event.seq));
            }
            seen
        }
    });
    for _ in 0..100 {
        let seq = store.append(note("x")).await.unwrap();
        assert_eq!(store.last_seq(), seq);
        tokio::task::yield_now().await;
    }
    let seen = tokio::time::timeout(Duration::from_secs(20), reader).await.unwrap().unwrap();
    assert_eq!(seen, (1..=101).collect::<Vec<_>>());
}

#[tokio::test]
async fn speed_of_ten_thousand_events() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let start = Instant::now();
    for _ in 0..10_000 {
        store.append(note("x")).await.unwrap();
    }
    let events = start.elapsed();
    let start = Instant::now();
    for n in 0..2_000_u64 {
        let id = n.to_string();
        store.insert_process(process(&id, "t"), None).await.unwrap();
        store.set_running(&id, Running::default(), None).await.unwrap();
        store.complete(&id, completion(&id), completed(n)).await.unwrap();
    }
    let processes = start.elapsed();
    let start = Instant::now();
    let read = all_events(&store).await.len();
    println!(
        "10000 events: {events:?}; 2000 processes: {processes:?}; {read} events read: {:?}",
        start.elapsed()
    );
    assert_eq!(read, 12_000);
    store.close().await.unwrap();
    let start = Instant::now();
    let store = open(dir.path()).await;
    println!("opened and checked: {:?}", start.elapsed());
    assert_eq!(store.last_seq(), 12_000);
}
