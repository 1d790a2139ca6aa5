//! `kill -9` at any moment: what was answered is there, and nothing is there twice.

use crate::common::*;
use farshell_api::event::EventKind;
use farshell_api::process::ProcessState;
use farshell_store::{Insert, NewEvent, Running, Store, finished};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const DIR: &str = "FARSHELL_STORE_TEST_DIR";
const ROUND: &str = "FARSHELL_STORE_TEST_ROUND";
const ROUNDS: u32 = 60;

/// Not a test: what the tests below start and kill.
#[test]
fn writer() {
    let (Ok(dir), Ok(round)) = (std::env::var(DIR), std::env::var(ROUND)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(write_for_ever(Path::new(&dir), &round));
}

/// Says what was answered, in lines that begin with a mark.
fn say(text: &str) {
    let line = format!("\n@{text}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

async fn write_for_ever(dir: &Path, round: &str) {
    let (mut store, warnings) = Store::open(dir).await.unwrap();
    assert!(warnings.is_empty());
    // What the one before left unfinished is finished by both: this one and, perhaps, the one before.
    for row in store.unfinished().await.unwrap() {
        let id = row.process.id;
        store.complete(&id, completion(&id), completed(1)).await.unwrap();
        say(&format!("completed {id}"));
    }
    for n in 0.. {
        let id = format!("{round}-{n}");
        assert_eq!(store.insert_process(process(&id, "t"), None).await.unwrap(), Insert::Inserted);
        say(&format!("inserted {id}"));
        let started = NewEvent::new(EventKind::ProcessStarted, 1);
        store.set_running(&id, Running { pid: Some(1), ..Running::default() }, Some(started)).await.unwrap();
        say(&format!("running {id}"));
        for offset in 1..=3 {
            let matched =
                NewEvent { data: json!({ "offset": offset }), ..NewEvent::new(EventKind::WatchMatched, 1) };
            store.set_watch(&id, offset, json!(offset), vec![matched]).await.unwrap();
            say(&format!("watched {id} {offset}"));
        }
        let seq = store.append(note(&id)).await.unwrap();
        say(&format!("event {seq} {id}"));
        say(&format!("acked {}", store.ack("me", seq).await.unwrap()));
        store.put_environment(environment(&id), None).await.unwrap();
        say(&format!("environment {id}"));
        if n % 3 != 0 {
            let (first, second) = tokio::join!(
                store.complete(&id, completion(&id), completed(1)),
                store.complete(&id, completion(&id), completed(2))
            );
            assert!(first.unwrap() != second.unwrap());
            say(&format!("completed {id}"));
        }
        if n % 5 == 4 {
            store.close().await.unwrap();
            store = open(dir).await;
        }
    }
}

fn start(dir: &Path, round: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::writer", "--nocapture"])
        .env(DIR, dir)
        .env(ROUND, round.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Less than `below`.
fn random(below: u64) -> u64 {
    getrandom::u64().unwrap() % below
}

/// What was answered to those that were killed.
#[derive(Default)]
struct Answered {
    inserted: BTreeSet<String>,
    running: BTreeSet<String>,
    completed: BTreeSet<String>,
    environments: BTreeSet<String>,
    watched: BTreeMap<String, u64>,
    events: BTreeMap<u64, String>,
    acked: u64,
}

impl Answered {
    fn hear(&mut self, line: &str) {
        let Some(line) = line.strip_prefix('@') else { return };
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["inserted", id] => drop(self.inserted.insert(id.into())),
            ["running", id] => drop(self.running.insert(id.into())),
            ["completed", id] => drop(self.completed.insert(id.into())),
            ["environment", id] => drop(self.environments.insert(id.into())),
            ["watched", id, offset] => drop(self.watched.insert(id.into(), offset.parse().unwrap())),
            ["event", seq, id] => {
                let before = self.events.insert(seq.parse().unwrap(), id.into());
                assert_eq!(before, None, "the number {seq} was given twice");
            }
            ["acked", seq] => self.acked = seq.parse().unwrap(),
            _ => panic!("{line}"),
        }
    }

    async fn check(&self, store: &Store) {
        let events = all_events(store).await;
        let last = store.last_seq();
        assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
        for (seq, id) in &self.events {
            assert_eq!(events[*seq as usize - 1].data, json!({ "note": id }));
        }
        let rows: BTreeMap<_, _> = store
            .processes(None, true)
            .await
            .unwrap()
            .into_iter()
            .map(|row| (row.process.id.clone(), row))
            .collect();
        assert!(self.inserted.iter().all(|id| rows.contains_key(id)));
        assert!(self.running.iter().all(|id| rows[id].process.state != ProcessState::Starting));
        assert!(self.completed.iter().all(|id| rows[id].process.state == ProcessState::Ended));
        // One completion for each that is finished, none for the others.
        let mut told = completions(&events);
        told.sort_unstable();
        let ended: Vec<&str> = rows
            .values()
            .filter(|row| finished(row.process.state))
            .map(|row| row.process.id.as_str())
            .collect();
        assert_eq!(told, ended);
        // The offset of a watch and its events go together.
        for (id, row) in &rows {
            let matched = events.iter().filter(|event| event.kind == EventKind::WatchMatched);
            let matched: Vec<_> = matched.filter(|event| event.process_id.as_ref() == Some(id)).collect();
            assert_eq!(matched.len() as u64, row.watch_offset);
            assert!(row.watch_offset >= self.watched.get(id).copied().unwrap_or(0));
        }
        let environments: BTreeSet<_> =
            store.environments().await.unwrap().into_iter().map(|row| row.key).collect();
        assert!(self.environments.is_subset(&environments));
        assert!(store.acked("me").await.unwrap() >= self.acked);
    }
}

#[test]
fn killed_while_writing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut answered = Answered::default();
    for round in 0..ROUNDS {
        let mut child = start(dir.path(), round);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // From the first answer on, or at any moment from its birth.
        if round % 3 != 0 {
            let first = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with('@'));
            answered.hear(&first.unwrap());
        }
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(random(60_000)));
            child.kill().unwrap();
            child.wait().unwrap()
        });
        lines.for_each(|line| answered.hear(&line.unwrap()));
        let status = killer.join().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
        if round % 4 == 3 || round == ROUNDS - 1 {
            runtime.block_on(async {
                let store = open(dir.path()).await;
                answered.check(&store).await;
                store.close().await.unwrap();
            });
        }
    }
    println!(
        "{ROUNDS} kills: {} processes and {} events were answered for",
        answered.inserted.len(),
        answered.events.len()
    );
    assert!(answered.completed.len() > 20, "it was killed before it could do anything");
}

#[test]
fn killed_while_beginning() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for round in 0..ROUNDS {
        let dir = tempfile::tempdir().unwrap();
        let mut child = start(dir.path(), round);
        let lock = dir.path().join("state.db.lock");
        while !lock.exists() {
            std::thread::sleep(Duration::from_micros(50));
        }
        std::thread::sleep(Duration::from_micros(random(4_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        runtime.block_on(async {
            let store = open(dir.path()).await;
            Answered::default().check(&store).await;
            store.append(note("works")).await.unwrap();
        });
    }
}
