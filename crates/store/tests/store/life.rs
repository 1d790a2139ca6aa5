//! One store at a time, many callers, and an end that everybody hears of.

use crate::common::*;
use farshell_store::{Insert, Kind, Store};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Threads with runtimes of their own, all at once.
fn in_threads<T: Send>(count: usize, work: impl AsyncFn(usize) -> T + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(count);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|n| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    block_on(work(n))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn fifty_callers_complete_a_process_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = block_on(open(dir.path()));
    for round in 0..20 {
        let id = format!("p{round}");
        let inserted = in_threads(50, async |_| {
            store.insert_process(process(&id, "t"), None).await.unwrap() == Insert::Inserted
        });
        assert_eq!(inserted.iter().filter(|inserted| **inserted).count(), 1);
        let completed = in_threads(50, async |n| {
            store.complete(&id, completion(&id), completed(n as u64)).await.unwrap()
        });
        assert_eq!(completed.iter().filter(|completed| **completed).count(), 1);
    }
    let events = block_on(all_events(&store));
    assert_eq!(events.len(), 20);
    assert_eq!(completions(&events).into_iter().collect::<BTreeSet<_>>().len(), 20);
}

#[test]
fn readers_and_writers_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = block_on(open(dir.path()));
    let numbers = in_threads(16, async |n| {
        let mut numbers = Vec::new();
        for round in 0..100 {
            if n % 2 == 0 {
                numbers.push(store.append(note(&format!("{n}/{round}"))).await.unwrap());
                store.put_environment(environment(&format!("local/{n}")), None).await.unwrap();
            } else {
                let list = store.events(0, u32::MAX, None).await.unwrap();
                let expected: Vec<_> = (1..=list.last).collect();
                assert_eq!(list.events.iter().map(|event| event.seq).collect::<Vec<_>>(), expected);
                store.environments().await.unwrap();
            }
        }
        assert!(numbers.is_sorted());
        numbers
    });
    let numbers: BTreeSet<_> = numbers.into_iter().flatten().collect();
    assert_eq!(numbers, (1..=800).collect());
    assert_eq!(block_on(store.environments()).unwrap().len(), 8);
}

#[tokio::test]
async fn a_second_store_is_refused_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.append(note("one")).await.unwrap();
    let error = Store::open(dir.path()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Locked);
    let path = dir.path().join("state.db");
    assert_eq!(
        error.to_string(),
        format!(
            "opening the server's state {}: another process has it open\nhint: `farshell server status` shows the \
             server that runs",
            path.display()
        )
    );
    store.append(note("two")).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(all_events(&open(dir.path()).await).await.len(), 2);
}

/// A program that knows nothing of our lock file.
fn other_program(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    connection
}

#[tokio::test]
async fn another_program_gets_no_hold_of_it_and_is_not_disturbed_either() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let store = open(dir.path()).await;
    store.append(note("one")).await.unwrap();
    let refused =
        other_program(&path).query_row("SELECT count(*) FROM events", (), |row| row.get::<_, u32>(0));
    assert_eq!(refused.unwrap_err().sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
    store.append(note("two")).await.unwrap();
    store.close().await.unwrap();

    let other = other_program(&path);
    other.execute_batch("BEGIN IMMEDIATE; DELETE FROM events WHERE seq = 1").unwrap();
    let error = Store::open(dir.path()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Locked, "{error}");
    other.execute_batch("COMMIT").unwrap();
    drop(other);
    let store = open(dir.path()).await;
    assert_eq!(all_events(&store).await.len(), 1);
    store.close().await.unwrap();
    assert_eq!(names(dir.path()), ["state.db", "state.db.lock"]);
}

#[tokio::test]
async fn files_are_private_and_only_one_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.append(note("one")).await.unwrap();
    let mode = |name: &str| dir.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(names(dir.path()), ["state.db", "state.db-wal", "state.db.lock"]);
    for name in names(dir.path()) {
        assert_eq!(mode(&name), 0o600, "{name}");
    }
    store.close().await.unwrap();
    assert_eq!(names(dir.path()), ["state.db", "state.db.lock"]);
    std::fs::set_permissions(dir.path().join("state.db"), PermissionsExt::from_mode(0o644)).unwrap();
    let _store = open(dir.path()).await;
    assert_eq!(mode("state.db"), 0o600);
}

#[tokio::test]
async fn after_the_end_everything_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let mut newest = store.watch();
    // Sent before the end: done. Sent after it: refused. Never left waiting.
    let racing: Vec<_> = (0..1000)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.append(note("x")).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let closing = [store.clone(), store.clone(), store.clone()]
        .map(|store| tokio::spawn(async move { store.close().await }));
    let mut done = Vec::new();
    for racing in racing {
        match tokio::time::timeout(Duration::from_secs(20), racing).await.unwrap().unwrap() {
            Ok(seq) => done.push(seq),
            Err(error) => assert_eq!(error.kind, Kind::Closed),
        }
    }
    for closing in closing {
        closing.await.unwrap().unwrap();
    }
    store.close().await.unwrap();
    while newest.changed().await.is_ok() {}
    assert_eq!(store.append(note("x")).await.unwrap_err().kind, Kind::Closed);
    let error = store.environments().await.unwrap_err();
    assert_eq!((error.kind, error.operation.as_str()), (Kind::Closed, "reading environments"));
    assert_eq!(store.last_seq(), done.len() as u64);
    // Whoever waits for room to send may be overtaken.
    done.sort_unstable();

    let store = open(dir.path()).await;
    let kept: Vec<_> = all_events(&store).await.into_iter().map(|event| event.seq).collect();
    assert_eq!(kept, done);
}

#[tokio::test]
async fn dropping_the_last_handle_ends_it_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=20 {
        let store = open(dir.path()).await;
        let clone = store.clone();
        drop(store);
        // Nobody waits for the answer.
        let mut append = Box::pin(clone.append(note("x")));
        std::future::poll_fn(|context| {
            let _ = append.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
        drop(append);
        let mut newest = clone.watch();
        drop(clone);
        tokio::time::timeout(Duration::from_secs(20), async { while newest.changed().await.is_ok() {} })
            .await
            .unwrap();
        assert_eq!(*newest.borrow(), round);
    }
}
