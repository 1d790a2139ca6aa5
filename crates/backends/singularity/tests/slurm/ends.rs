//! Jobs that somebody or something ends.

use crate::cluster::{frail, happens, in_time, job, jobs, rig, slurm};
use crate::rig::{Env, Rig, kill};
use farshell_engine::Kind;
use std::sync::Arc;

/// What is said about a job that is over, to whoever connects.
async fn epitaph(rig: &Rig, place: &dyn farshell_engine::backend::Place) -> String {
    let error = place.connect().await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(rig.find().await.unwrap().sleeps());
    assert_eq!(place.epitaph().as_deref(), Some(error.message.as_str()));
    error.message
}

/// A command that runs while its job is ended.
fn interrupted(env: Env) -> tokio::task::JoinHandle<farshell_engine::Error> {
    let env = Arc::new(env);
    tokio::spawn(async move { env.try_run("touch /workspace/begun; sleep 1000").await.unwrap_err() })
}

async fn begun(rig: &Rig) {
    let file = rig.files().join("workspace/begun");
    in_time("the command has begun", || file.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_somebody_cancels_is_said_and_made_anew() {
    let Some(rig) = rig(|_| ()) else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    let place = rig.find().await.unwrap();
    let running = interrupted(env);
    begun(&rig).await;
    let first = job(&rig);
    slurm("scancel", &[&first.to_string()]);
    let error = running.await.unwrap();
    assert_eq!(error.kind, Kind::UnknownOutcome, "{error}");
    assert!(error.message.contains("cancelled (scancel)"), "{error}");
    let said = epitaph(&rig, &*place).await;
    assert!(
        said.contains(&format!("Slurm job {first} on n")) && said.contains("cancelled (scancel)"),
        "{said}"
    );
    let again = rig.open().await;
    assert_eq!(again.out("cat /workspace/x").await, "kept");
    assert_ne!(job(&rig), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_time_is_up_is_said() {
    // The shortest there is.
    let Some(rig) = rig(|slurm| slurm.time = Some("1".into())) else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    let place = rig.find().await.unwrap();
    let status = place.status().unwrap();
    assert!(status.contains(" s left"), "{status}");
    let error = interrupted(env).await.unwrap();
    assert!(error.message.contains("reached its time limit"), "{error}");
    let said = epitaph(&rig, &*place).await;
    assert!(said.contains("reached its time limit"), "{said}");
    assert_eq!(rig.open().await.out("cat /workspace/x").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_is_said_and_another_job_is_handed_in() {
    let _only = frail().await;
    let Some(rig) = rig(|slurm| slurm.partition = Some("frail".into())) else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    let place = rig.find().await.unwrap();
    let running = interrupted(env);
    begun(&rig).await;
    happens("kill n4");
    happens("down n4");
    in_time("Slurm has given the job up", || jobs(&rig).is_empty()).await;
    let error = running.await.unwrap();
    assert!(error.message.contains("node failed: n4"), "{error}");
    let said = epitaph(&rig, &*place).await;
    assert!(said.contains("node failed: n4"), "{said}");
    happens("up n4");
    assert_eq!(rig.open().await.out("cat /workspace/x").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_of_a_node_that_is_killed_and_comes_back_ends_nothing() {
    let _only = frail().await;
    let Some(rig) = rig(|slurm| slurm.partition = Some("frail".into())) else { return };
    let env = rig.open().await;
    env.out("x=1; echo kept > /tmp/x").await;
    let first = job(&rig);
    happens("stop n4");
    assert_eq!(env.out("echo $x; cat /tmp/x").await, "1\nkept");
    happens("up n4");
    in_time("it is back", || slurm("sinfo", &["-h", "-p", "frail", "-o", "%t"]) == "mix").await;
    env.env.outpost().disconnect();
    assert_eq!(env.out("echo $x; cat /tmp/x").await, "1\nkept");
    assert_eq!(job(&rig), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_is_opened_again_and_leaves_no_step() {
    let Some(rig) = rig(|_| ()) else { return };
    let env = rig.open().await;
    env.out("x=1").await;
    let id = job(&rig);
    let streams = || {
        let want = format!("--jobid={id}");
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| {
            let args = std::fs::read(entry.path().join("cmdline")).ok()?;
            let args = String::from_utf8_lossy(&args).into_owned();
            let is_ours = args.contains("srun\0") && args.contains(&want);
            is_ours.then(|| entry.file_name().to_str()?.parse::<u32>().ok()).flatten()
        });
        pids.collect::<Vec<_>>()
    };
    let steps = || {
        let said = slurm("squeue", &["-h", "--steps", "-j", &id.to_string(), "-o", "%i"]);
        said.lines().filter(|step| !step.contains("batch") && !step.contains("extern")).count()
    };
    assert!(!streams().is_empty());
    for pid in streams() {
        kill(pid);
    }
    assert_eq!(env.out("echo $x").await, "1");
    in_time("one step is left", || steps() == 1).await;
    env.env.outpost().disconnect();
    in_time("none is left", || steps() == 0 && streams().is_empty()).await;
    assert_eq!(env.out("echo $x").await, "1");
}
