//! What the tests share: a directory and some rows.

use farshell_api::Text;
use farshell_api::environment::EnvironmentState;
use farshell_api::event::{Event, EventKind};
use farshell_api::process::{Process, ProcessState};
use farshell_api::run::{LogInfo, Place};
use farshell_store::{Completion, EnvironmentRow, NewEvent, ProcessRow, Store};
use serde_json::{Value, json};
use std::path::Path;

/// Opens, and there is nothing to warn of.
pub(crate) async fn open(dir: &Path) -> Store {
    let (store, warnings) = Store::open(dir).await.unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    store
}

pub(crate) fn environment(key: &str) -> EnvironmentRow {
    EnvironmentRow {
        key: key.into(),
        backend: "local".into(),
        place_task: "default".into(),
        tasks: vec!["default".into(), "größer".into()],
        state: EnvironmentState::Ready,
        spec: [("shell".to_owned(), "/bin/bash".to_owned())].into(),
        spec_hash: "abc".into(),
        place: Some(Place { name: "here".into(), id: "boot/1".into() }),
        instance: Some("i-1".into()),
        created_at: 1,
        last_used_at: 2,
        lifetime_seconds: 300,
        note: Some("'; DROP TABLE environments; --".into()),
        settings: json!({"z": 1, "a": [null, 1.5, "\u{0}"]}),
    }
}

pub(crate) fn process(id: &str, task: &str) -> ProcessRow {
    ProcessRow {
        process: Process {
            id: id.into(),
            task: task.into(),
            session: Some("default".into()),
            environment: format!("local/{task}"),
            backend: "local".into(),
            place: Place { name: "here".into(), id: "boot/1".into() },
            command: Text(b"printf '\xff\0'".to_vec()),
            background: true,
            log: LogInfo { process_id: id.into(), ..LogInfo::default() },
            notify_on_complete: true,
            watch_patterns: vec!["ready".into()],
            ..Process::default()
        },
        instance: None,
        watch_offset: 0,
        watch_state: Value::Null,
        detail: json!({"session": "default"}),
    }
}

/// Every field differs from what [`process`] has.
pub(crate) fn completion(id: &str) -> Completion {
    Completion {
        state: ProcessState::Ended,
        exit_code: Some(137),
        signal: Some(9),
        signal_name: Some("KILL".into()),
        timed_out: true,
        workdir_failed: true,
        killed: 3,
        survivors: 1,
        started_at: Some(10),
        ended_at: Some(20),
        duration_ms: 10,
        cwd: Some(Text(b"/\xfe".to_vec())),
        stdout_bytes: u64::MAX,
        stderr_bytes: 7,
        shell_restarted: true,
        state_lost: true,
        output_open: true,
        log: Some(LogInfo { process_id: id.into(), stdout_bytes: 5, ..LogInfo::default() }),
        note: Some("so it is".into()),
    }
}

pub(crate) fn completed(at: u64) -> NewEvent {
    NewEvent { data: json!({"exit_code": 137}), ..NewEvent::new(EventKind::ProcessCompleted, at) }
}

pub(crate) fn note(text: &str) -> NewEvent {
    NewEvent { data: json!({ "note": text }), ..NewEvent::new(EventKind::EnvironmentCreated, 5) }
}

/// All events that are kept.
pub(crate) async fn all_events(store: &Store) -> Vec<Event> {
    store.events(0, u32::MAX, None).await.unwrap().events
}

/// The completions that are kept, by process.
pub(crate) fn completions(events: &[Event]) -> Vec<&str> {
    let completed = events.iter().filter(|event| event.kind == EventKind::ProcessCompleted);
    completed.map(|event| event.process_id.as_deref().unwrap()).collect()
}

/// Names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
