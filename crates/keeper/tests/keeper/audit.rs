//! What is written down: every end, by whichever server sees it, and nothing that must be runs unwritten.

use crate::gate::{lines, ran};
use crate::rig::{Life, Rig, ended, whole};
use farshell_api::audit::Step;
use farshell_api::run::StartRequest;
use farshell_api::stream::Open;

#[tokio::test]
async fn every_end_is_recorded() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.run(&keeper, "exit 3").await;
    keeper.run(whole(StartRequest { timeout: Some(0.3), ..rig.command("sleep 100") })).await.unwrap();
    let process = keeper.start(rig.command("exit 4")).await.unwrap();
    ended(&keeper, &process.id).await;
    let killed = keeper.start(rig.command("sleep 100")).await.unwrap();
    keeper.kill(&killed.id, Default::default()).await.unwrap();
    ended(&keeper, &killed.id).await;
    // Opened, and never followed.
    let open = Open { start: Some(Box::new(rig.command("echo never"))), attach: None };
    drop(keeper.stream(open, &()).await.unwrap());
    let lines = lines(&keeper).await;
    let outcome = |id: &str| {
        let line =
            lines.iter().find(|line| line.step == Step::Ended && line.process_id.as_deref() == Some(id));
        line.unwrap().outcome.clone().unwrap()
    };
    assert_eq!(outcome(&process.id).exit_code, Some(4));
    assert!(outcome(&killed.id).signal.is_some());
    let states: Vec<_> = lines
        .iter()
        .filter_map(|line| line.outcome.as_ref())
        .map(|outcome| (outcome.state.as_str(), outcome.exit_code, outcome.timed_out))
        .collect();
    assert!(states.contains(&("ended", Some(3), false)), "{states:?}");
    assert!(states.contains(&("ended", Some(124), true)), "{states:?}");
    assert!(states.contains(&("not_started", None, false)), "{states:?}");
    assert!(lines.iter().filter(|line| line.step == Step::Ended).all(|line| line.process_id.is_some()));
    let decided = lines.iter().filter(|line| line.step == Step::Decided).count();
    assert_eq!(decided, states.len(), "one end for each that may run: {lines:?}");
    rig.end(keeper).await;
}

#[test]
fn the_end_of_what_outlives_a_server_is_recorded_by_the_next() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let id = life.on(async {
        let start =
            StartRequest { background: true, ..rig.command("until test -e go; do sleep 0.02; done; exit 6") };
        life.keeper.start(start).await.unwrap().id
    });
    life.die();
    let life = Life::begin(&rig);
    std::fs::write(rig.home().join("go"), "").unwrap();
    life.on(async {
        ended(&life.keeper, &id).await;
        let lines = lines(&life.keeper).await;
        let ends: Vec<_> = lines.iter().filter(|line| line.step == Step::Ended).collect();
        assert_eq!(ends.len(), 1, "{lines:?}");
        assert_eq!(ends[0].outcome.as_ref().unwrap().exit_code, Some(6));
        assert!(life.keeper.verify_audit().await.unwrap().sound);
    });
    life.end(rig);
}

#[tokio::test]
async fn what_must_be_written_down_does_not_run_unwritten() {
    let rig = Rig::new();
    // Something is where the log should be.
    std::fs::create_dir_all(rig.home().join("farshell")).unwrap();
    let audit = rig.home().join("farshell/audit");
    std::fs::write(&audit, "").unwrap();
    let keeper = rig.open().await;
    assert_eq!(rig.says(&keeper, "echo warned").await, "warned\n");
    let warnings = keeper.warnings();
    assert!(warnings.iter().any(|warning| warning.contains("audit log")), "{warnings:?}");
    rig.config("approvals: {audit_required: true}\n");
    let error = keeper.run(rig.request("touch ran")).await.unwrap_err();
    assert!(error.operation.contains("audit log") && !ran(&rig), "{error}");
    std::fs::remove_file(&audit).unwrap();
    rig.run(&keeper, "touch ran").await;
    assert!(ran(&rig) && keeper.warnings().is_empty());
    let report = keeper.verify_audit().await.unwrap();
    assert!(report.sound && report.notes.len() == 1, "{report:?}");
    rig.end(keeper).await;
}
