//! What is damaged is moved aside and said; what is not ours to touch is left alone.

use crate::common::*;
use farshell_store::{Kind, Store};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory with some state in it, all of it in the database proper.
async fn filled(events: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for n in 0..events {
        let id = n.to_string();
        store.put_environment(environment(&id), Some(note("made"))).await.unwrap();
        store.insert_process(process(&id, "t"), None).await.unwrap();
        store.complete(&id, completion(&id), completed(1)).await.unwrap();
    }
    store.close().await.unwrap();
    dir
}

/// A copy of a directory as `kill -9` would leave it: what was written last is in the log only.
async fn killed(before: usize, after: usize) -> tempfile::TempDir {
    let dir = filled(before).await;
    let store = open(dir.path()).await;
    for _ in 0..after {
        store.append(note("in the log")).await.unwrap();
    }
    let copy = tempfile::tempdir().unwrap();
    for name in names(dir.path()) {
        fs::copy(dir.path().join(&name), copy.path().join(&name)).unwrap();
    }
    copy
}

/// The one name with this ending among those that were moved aside.
fn aside(dir: &Path, ending: &str) -> PathBuf {
    let names = names(dir);
    let mut found = names.iter().filter(|name| match name.strip_prefix("state.db.corrupt-") {
        Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_digit()) == ending,
        None => false,
    });
    let name = found.next().unwrap_or_else(|| panic!("nothing with {ending:?} in {names:?}"));
    assert_eq!(found.next(), None);
    dir.join(name)
}

/// Opens it, and it has to be moved aside: the bytes are all there still, and a new one works.
async fn moved_aside(dir: &Path, why: &str) {
    let path = dir.join("state.db");
    let before = fs::read(&path).unwrap();
    let (store, warnings) = Store::open(dir).await.unwrap();
    let aside = aside(dir, "");
    let expected = format!(
        "the server's state, {}, was damaged ({why}). It was moved to {} and a new one was begun: environments, \
         background processes and events from before are not known any more. Nothing was deleted, and what runs goes \
         on.",
        path.display(),
        aside.display()
    );
    assert_eq!(warnings, [expected]);
    assert!(fs::read(&aside).unwrap() == before, "the bytes changed");
    assert_eq!(store.environments().await.unwrap(), []);
    // Whoever has seen old events must not take the new ones for them.
    let list = store.events(500, 10, None).await.unwrap();
    assert_eq!(list.pruned, list.last);
    assert!(list.last > 1_700_000_000_000);
    assert_eq!(store.append(note("new")).await.unwrap(), list.last + 1);
    store.close().await.unwrap();
    assert_eq!(all_events(&open(dir).await).await.len(), 1);
}

#[tokio::test]
async fn a_header_of_noise() {
    let dir = filled(10).await;
    let path = dir.path().join("state.db");
    let mut bytes = fs::read(&path).unwrap();
    getrandom::fill(&mut bytes[..100]).unwrap();
    fs::write(&path, bytes).unwrap();
    moved_aside(dir.path(), "file is not a database").await;
}

#[tokio::test]
async fn another_kind_of_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("state.db"), "dear diary").unwrap();
    moved_aside(dir.path(), "file is not a database").await;
}

#[tokio::test]
async fn a_truncated_file() {
    let dir = filled(100).await;
    let path = dir.path().join("state.db");
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    moved_aside(dir.path(), "database disk image is malformed").await;
}

#[tokio::test]
async fn a_page_of_noise() {
    let dir = filled(100).await;
    let path = dir.path().join("state.db");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    let (store, warnings) = Store::open(dir.path()).await.unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(fs::read(aside(dir.path(), "")).unwrap() == bytes);
    assert_eq!(store.environments().await.unwrap(), []);
}

#[tokio::test]
async fn an_emptied_database_does_not_cost_its_log() {
    let dir = killed(10, 10).await;
    let log = fs::read(dir.path().join("state.db-wal")).unwrap();
    assert!(!log.is_empty());
    fs::write(dir.path().join("state.db"), "").unwrap();
    moved_aside(dir.path(), "the file is gone or empty, but its log is not").await;
    assert!(fs::read(aside(dir.path(), "-wal")).unwrap() == log);
}

#[tokio::test]
async fn a_lost_database_does_not_cost_its_log() {
    let dir = killed(10, 10).await;
    let log = fs::read(dir.path().join("state.db-wal")).unwrap();
    fs::remove_file(dir.path().join("state.db")).unwrap();
    let (_store, warnings) = Store::open(dir.path()).await.unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(fs::read(aside(dir.path(), "-wal")).unwrap() == log);
}

#[tokio::test]
async fn a_log_that_was_left_is_used() {
    let dir = killed(10, 10).await;
    assert_eq!(all_events(&open(dir.path()).await).await.len(), 30);
}

#[tokio::test]
async fn a_log_of_noise_costs_only_what_was_in_it() {
    let dir = killed(10, 10).await;
    let path = dir.path().join("state.db-wal");
    let mut log = vec![0; 20_000];
    getrandom::fill(&mut log).unwrap();
    fs::write(&path, &log).unwrap();
    let (store, warnings) = Store::open(dir.path()).await.unwrap();
    let aside = aside(dir.path(), "-wal");
    let expected = format!(
        "the newest changes of the server's state, {}, were damaged. They were moved to {}, and the state from before \
         them is used: environments, background processes and events that were recorded last may be missing. Nothing \
         was deleted, and what runs goes on.",
        path.display(),
        aside.display()
    );
    assert_eq!(warnings, [expected]);
    assert!(fs::read(aside).unwrap() == log);
    assert_eq!(store.environments().await.unwrap().len(), 10);
    assert_eq!(all_events(&store).await.len(), 20);
    // More than could have been in the log are left out.
    assert_eq!(store.last_seq(), 1_000_020);
    assert_eq!(store.append(note("next")).await.unwrap(), 1_000_021);
    assert_eq!(store.events(30, 10, None).await.unwrap().events.len(), 1);
    drop(store);
    assert_eq!(open(dir.path()).await.last_seq(), 1_000_021);
}

#[tokio::test]
async fn a_log_of_noise_beside_a_new_database() {
    // Nothing was ever moved from the log to the database: there are not even tables.
    let dir = killed(0, 10).await;
    fs::write(dir.path().join("state.db"), &fs::read(dir.path().join("state.db")).unwrap()[..4096]).unwrap();
    fs::write(dir.path().join("state.db-wal"), vec![7; 5000]).unwrap();
    let (store, warnings) = Store::open(dir.path()).await.unwrap();
    assert!(!warnings.is_empty());
    assert!(fs::read(aside(dir.path(), "-wal")).unwrap() == vec![7; 5000]);
    store.append(note("works")).await.unwrap();
}

#[tokio::test]
async fn a_log_that_was_hardly_begun_is_no_damage() {
    for log in [vec![], vec![1; 10], vec![0; 32], vec![0; 5000]] {
        let dir = filled(3).await;
        fs::write(dir.path().join("state.db-wal"), log).unwrap();
        assert_eq!(all_events(&open(dir.path()).await).await.len(), 6);
    }
}

#[tokio::test]
async fn twice_in_one_second_has_two_names() {
    let dir = tempfile::tempdir().unwrap();
    for n in 1..=5 {
        fs::write(dir.path().join("state.db"), format!("noise {n}")).unwrap();
        let (store, warnings) = Store::open(dir.path()).await.unwrap();
        assert_eq!(warnings.len(), 1);
        store.close().await.unwrap();
    }
    let kept = names(dir.path());
    let mut texts: Vec<_> = kept
        .iter()
        .filter(|name| name.contains("corrupt"))
        .map(|name| fs::read_to_string(dir.path().join(name)).unwrap())
        .collect();
    texts.sort();
    assert_eq!(texts, ["noise 1", "noise 2", "noise 3", "noise 4", "noise 5"]);
}

/// Everything in a directory, but files without content.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let files = names(dir).into_iter().map(|name| (name.clone(), fs::read(dir.join(name)).unwrap()));
    files.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

#[tokio::test]
async fn a_newer_one_is_refused_and_untouched() {
    for (left, version) in [(filled(3).await, 2), (killed(3, 3).await, 77)] {
        let path = left.path().join("state.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
        drop(connection);
        let before = contents(left.path());
        let error = Store::open(left.path()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Newer);
        assert_eq!(
            error.to_string(),
            format!(
                "opening the server's state {}: it is of version {version}, and this release knows only versions up \
                 to 1\nhint: use the newer release of farshell that has written it; nothing was changed",
                path.display()
            )
        );
        assert!(contents(left.path()) == before, "changed");
    }
}

#[tokio::test]
async fn a_database_of_somebody_else_is_refused_and_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(dir.path().join("state.db")).unwrap();
    connection.execute_batch("CREATE TABLE events (a); INSERT INTO events VALUES (1)").unwrap();
    drop(connection);
    let before = contents(dir.path());
    assert_eq!(Store::open(dir.path()).await.unwrap_err().kind, Kind::Invalid);
    assert!(contents(dir.path()) == before, "changed");
}

#[tokio::test]
async fn a_format_that_sqlite_may_only_read_is_refused_and_untouched() {
    let dir = killed(3, 3).await;
    let path = dir.path().join("state.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[18] = 3;
    fs::write(&path, bytes).unwrap();
    let before = contents(dir.path());
    let error = Store::open(dir.path()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Readonly, "{error}");
    assert!(contents(dir.path()) == before, "changed");
}

#[tokio::test]
async fn what_is_no_file_or_nowhere_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = Store::open(&dir.path().join("nowhere")).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotFound, "{error}");
    fs::create_dir(dir.path().join("state.db")).unwrap();
    let error = Store::open(dir.path()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Io, "{error}");
    assert!(dir.path().join("state.db").is_dir());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done to the file: it opens, or is moved aside whole, or is refused whole. No panic, no hang.
    #[test]
    fn any_damage_loses_no_byte(
        pieces in prop::collection::vec((0.0..1.0_f64, prop::collection::vec(any::<u8>(), 1..200)), 0..4),
        header in prop::option::of((0..100_usize, any::<u8>())),
        cut in prop::option::of(0.0..1.0_f64),
        in_log in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = killed(15, 15).await;
            let damaged = dir.path().join(if in_log { "state.db-wal" } else { "state.db" });
            let mut bytes = fs::read(&damaged).unwrap();
            for (place, noise) in pieces {
                let start = (place * bytes.len() as f64) as usize;
                let end = bytes.len().min(start + noise.len());
                bytes[start..end].copy_from_slice(&noise[..end - start]);
            }
            if let Some((place, byte)) = header {
                bytes[place] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate((cut * bytes.len() as f64) as usize);
            }
            fs::write(&damaged, &bytes).unwrap();
            let before = contents(dir.path());
            match Store::open(dir.path()).await {
                Err(error) => assert!(contents(dir.path()) == before, "refused, but changed: {error}"),
                Ok((store, warnings)) => {
                    let after = contents(dir.path());
                    let whole = |name: &str| {
                        let old = before.iter().find(|(other, _)| other == name).map(|(_, bytes)| bytes);
                        old.is_none_or(|old| after.iter().any(|(name, new)| name.contains("corrupt") && new == old))
                    };
                    if warnings.iter().any(|warning| warning.contains("a new one was begun")) {
                        assert!(whole("state.db"), "the database is not as it was");
                        assert!(whole("state.db-wal"), "the log is not as it was");
                    } else if !warnings.is_empty() {
                        assert!(whole("state.db-wal"), "the log is not as it was");
                    }
                    // What can't be seen from outside may still show in a row; that is an error and nothing more.
                    let _ = store.environments().await;
                    let _ = store.processes(None, true).await;
                    let _ = store.events(0, 1000, None).await;
                    let _ = store.append(note("x")).await;
                    let _ = store.close().await;
                }
            }
        });
    }
}
