//! Lines of output that somebody wants to hear of.

use crate::rig::{Rig, ended, events_of, until};
use farshell_api::event::EventKind;
use farshell_api::run::StartRequest;

#[tokio::test]
async fn a_match_is_told_and_the_next_ones_are_held_back() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let start = StartRequest {
        watch_patterns: vec!["ERROR".into(), "ready on".into()],
        ..rig.command(
            "echo starting; sleep 0.3; echo server ready on 80; for i in 1 2 3; do echo ERROR $i; done >&2",
        )
    };
    let process = keeper.start(start).await.unwrap();
    assert_eq!(process.watch_patterns.len(), 2);
    let done = ended(&keeper, &process.id).await;
    assert_eq!(done.watch_patterns.len(), 2);
    let told = events_of(&keeper, EventKind::WatchMatched).await;
    assert_eq!(told.len(), 1, "at most one in fifteen seconds");
    let data = serde_json::json!({"pattern": "ready on", "line": "server ready on 80", "offset": 9, "suppressed": 0});
    assert_eq!(told[0].data, data);
    assert_eq!(told[0].process_id.as_deref(), Some(process.id.as_str()));
    assert_eq!(told[0].task.as_deref(), Some("default"));
    let completed = events_of(&keeper, EventKind::ProcessCompleted).await;
    assert_eq!(completed.len(), 1);
    assert!(completed[0].seq > told[0].seq);
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_last_line_without_an_end_counts() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let start = StartRequest { watch_patterns: vec!["x".into()], ..rig.command("printf 'a\\nxyz'") };
    let process = keeper.start(start).await.unwrap();
    ended(&keeper, &process.id).await;
    let told = events_of(&keeper, EventKind::WatchMatched).await;
    assert_eq!((told.len(), &told[0].data["line"]), (1, &"xyz".into()));
    rig.end(keeper).await;
}

#[tokio::test]
async fn much_output_is_searched_to_its_end() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let start =
        StartRequest { watch_patterns: vec!["needle".into()], ..rig.command("seq 1 2000000; echo needle") };
    let process = keeper.start(start).await.unwrap();
    let done = ended(&keeper, &process.id).await;
    until("it is told", || async { events_of(&keeper, EventKind::WatchMatched).await.len() == 1 }).await;
    let told = events_of(&keeper, EventKind::WatchMatched).await;
    assert_eq!(told[0].data["offset"], done.stdout_bytes - 7);
    rig.end(keeper).await;
}
