//! Jobs are made, found again, put away and removed.

use crate::cluster::{all_jobs, in_time, job, jobs, rig, slurm};
use crate::rig::{Env, Rig};
use farshell_engine::Kind;
use farshell_engine::backend::{Backend, Severity};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// The directory of the node's in which the only outpost listens.
fn door(rig: &Rig) -> PathBuf {
    let text = std::fs::read_to_string(rig.private().join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    state["job"]["door"].as_str().unwrap().into()
}

fn processes(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let args = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    args.filter(|args| String::from_utf8_lossy(args).contains(word)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_made_and_found_again_with_its_state() {
    let Some(rig) = rig(|_| ()) else { return };
    let env = rig.open().await;
    assert_eq!(env.out("cd /tmp && x=1 && echo $x; echo $HOME; cat /proc/1/comm").await, "1\n/root\nappinit");
    // Another process, or a server after a restart.
    let again = rig.open().await;
    assert_eq!(again.id(), env.id());
    assert_eq!(again.out("echo $x $PWD").await, "1 /tmp");
    let found = jobs(&rig);
    assert_eq!(found.len(), 1, "{found:?}");
    let spec = rig.spec("default").hash("singularity");
    assert!(found[0].3.contains("task=default") && found[0].3.contains(&spec[..16]), "{found:?}");
    let surveyed = rig.backend().survey().await.unwrap();
    assert_eq!((surveyed.len(), surveyed[0].alive), (1, true));
    let place = rig.find().await.unwrap();
    assert!(!place.sleeps());
    let status = place.status().unwrap();
    assert!(
        status.contains(&format!("Slurm job {} on n", found[0].0)) && status.contains("left"),
        "{status}"
    );
    let limits: Vec<_> = place.limits().iter().map(|l| (l.name, l.value.clone())).collect();
    assert!(limits.contains(&("cpu", "1 cores".into())) && limits.contains(&("memory", "1024M".into())));
    let (door, name) = (door(&rig), rig.private().file_name().unwrap().to_str().unwrap().to_owned());
    assert!(door.join("s/sock").exists());
    env.env.destroy().await.unwrap();
    env.env.destroy().await.unwrap();
    assert!(!all_jobs().iter().any(|(other, _)| *other == name));
    assert_eq!((processes(&name), door.exists()), (0, false));
    assert!(rig.backend().survey().await.unwrap().is_empty());
    assert!(rig.find().await.is_none() && rig.noted().is_empty(), "{:?}", rig.noted());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_away_gives_its_node_back_and_is_woken_with_its_files() {
    let Some(rig) = rig(|_| ()) else { return };
    let env = rig.open().await;
    env.out("echo layer > /x; echo work > /workspace/x; echo home > ~/x").await;
    let first = job(&rig);
    rig.find().await.unwrap().suspend().await.unwrap();
    assert!(jobs(&rig).is_empty());
    let place = rig.find().await.unwrap();
    assert!(place.sleeps() && !rig.backend().survey().await.unwrap()[0].alive);
    // Connecting hands in nothing.
    assert_eq!(place.connect().await.unwrap_err().kind, Kind::Unavailable);
    let again = rig.open().await;
    assert_eq!(again.id(), env.id());
    assert_eq!(again.out("cat /x /workspace/x ~/x").await, "layer\nwork\nhome");
    assert_ne!(job(&rig), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_runs_out_gives_the_node_back() {
    let Some(rig) = rig(|_| ()) else { return };
    let mut spec = rig.spec("default");
    spec.lease = Duration::from_secs(1);
    let env = Env::open(&rig.backend(), &spec).await;
    env.out("echo kept > /workspace/x").await;
    let door = door(&rig);
    drop(env);
    in_time("the job ends", || jobs(&rig).is_empty()).await;
    assert!(!door.exists() && !rig.backend().survey().await.unwrap()[0].alive);
    assert_eq!(rig.open().await.out("cat /workspace/x").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_get_the_same_job() {
    let Some(rig) = rig(|_| ()) else { return };
    let opened: Vec<_> = (0..5)
        .map(|_| {
            // Each as a process of its own would.
            let (backend, spec) = (rig.backend(), rig.spec("default"));
            tokio::spawn(async move { Env::open(&backend, &spec).await })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for env in opened {
        let env = env.await.unwrap();
        env.out("true").await;
        ids.insert(env.id());
    }
    assert_eq!(ids.len(), 1);
    let name = rig.private().file_name().unwrap().to_str().unwrap().to_owned();
    let ever = slurm("squeue", &["-h", "--me", "-t", "all", "--name", &name, "-o", "%A"]);
    assert_eq!(ever.lines().count(), 1, "{ever}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_use_many_nodes() {
    // So that three of them fill a node.
    let Some(rig) = rig(|slurm| slurm.cpus = Some(10)) else { return };
    let tasks: Vec<String> = (0..5).map(|n| format!("t{n}")).collect();
    let mut opened = Vec::new();
    for task in &tasks {
        let (backend, spec) = (rig.backend(), rig.spec(task));
        opened.push(tokio::spawn(async move { Env::open(&backend, &spec).await }));
    }
    let mut ids = BTreeSet::new();
    for (n, env) in opened.into_iter().enumerate() {
        let env = env.await.unwrap();
        assert_eq!(env.out(&format!("echo {n} > /workspace/x; cat /workspace/x")).await, n.to_string());
        ids.insert(env.id());
    }
    let jobs = jobs(&rig);
    let nodes: BTreeSet<&str> = jobs.iter().map(|job| job.2.as_str()).collect();
    assert_eq!((ids.len(), jobs.len(), nodes), (5, 5, ["n1", "n2"].into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_killed_before_the_number_was_noted_leaves_one_job_that_is_found() {
    let Some(rig) = rig(|_| ()) else { return };
    rig.open().await.out("echo kept > /tmp/x").await;
    let path = rig.private().join("state.json");
    let mut state: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let id = job(&rig);
    state["job"]["id"] = serde_json::Value::Null;
    std::fs::write(&path, state.to_string()).unwrap();
    assert!(rig.backend().survey().await.unwrap()[0].alive);
    assert_eq!(rig.open().await.out("cat /tmp/x").await, "kept");
    assert_eq!(job(&rig), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_got_through_although_it_did_not_seem_so_is_found() {
    let Some(mut rig) = rig(|_| ()) else { return };
    let bin = rig.home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let fake = bin.join("sbatch");
    let text = "#!/bin/sh\n/usr/bin/sbatch \"$@\" >/dev/null\n\
                echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\nexit 1\n";
    std::fs::write(&fake, text).unwrap();
    std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let search = format!("{}:{}", bin.display(), rig.config.environment["PATH"]);
    rig.config.environment.insert("PATH".into(), search);
    rig.open().await.out("true").await;
    job(&rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_not_the_one_that_is_wanted_is_cancelled() {
    let Some(rig) = rig(|_| ()) else { return };
    let env = rig.open().await;
    env.out("true").await;
    let name = rig.private().file_name().unwrap().to_str().unwrap().to_owned();
    let stray = slurm("sbatch", &["--parsable", "-J", &name, "-o", "/dev/null", "--wrap", "sleep 1000"]);
    assert_eq!(rig.open().await.out("echo same").await, "same");
    in_time("it is gone", || !jobs(&rig).iter().any(|job| job.0.to_string() == stray)).await;
    job(&rig);
    env.out("true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_slurm_refuses_is_said_and_nothing_is_left_or_run_here() {
    let Some(rig) = rig(|slurm| slurm.partition = Some("nowhere".into())) else { return };
    let error = rig.refusal().await;
    assert!(error.message.contains("partition") && error.hint.is_some(), "{error}");
    assert!(rig.noted().is_empty(), "{:?}", rig.noted());
    let problems = |findings: Vec<farshell_engine::backend::Finding>| {
        let bad = findings.into_iter().filter(|finding| finding.severity == Severity::Problem);
        bad.map(|finding| finding.what).collect::<Vec<_>>().join("\n")
    };
    assert!(problems(rig.backend().check().await).contains("partition"));
    let mut rig = rig.with(|settings| settings.slurm.as_mut().unwrap().partition = Some("wide".into()));
    let findings = rig.backend().check().await;
    assert!(findings.iter().any(|finding| finding.what.contains("Slurm takes such jobs")), "{findings:?}");
    assert_eq!(problems(findings), "");
    rig.config.environment.insert("PATH".into(), rig.home.path().display().to_string());
    let said = problems(rig.backend().check().await);
    for program in ["sbatch", "squeue", "scancel", "srun"] {
        assert!(said.contains(program), "{said}");
    }
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(rig.noted().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_does_not_start_is_said_with_why() {
    let Some(rig) = rig(|_| ()) else { return };
    let rig = rig.with(|settings| settings.image = "/etc/passwd".into());
    let error = rig.refusal().await;
    assert!(error.message.contains("Slurm job") && error.message.contains("passwd"), "{error}");
    assert!(rig.noted().is_empty(), "{:?}", rig.noted());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_settings_replace_a_job_that_is_over_and_refuse_one_that_is_not() {
    let Some(rig) = rig(|_| ()) else { return };
    rig.open().await.out("echo kept > /workspace/x").await;
    let here = |rig: &Rig| {
        let mut config = rig.config.clone();
        config.settings.slurm = None;
        farshell_singularity::Singularity::new(config)
    };
    let mut other = rig.spec("default");
    other.settings.insert("singularity_slurm".into(), "none".into());
    let error = here(&rig).provision(&other, &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::SpecChanged, "{error}");
    // Found without the setting, it is still a job, and ended as one.
    let place = here(&rig).find(&other).await.unwrap().unwrap();
    place.destroy().await.unwrap();
    assert!(jobs(&rig).is_empty() && rig.noted().is_empty());
    let env = Env::open(&here(&rig), &other).await;
    assert_eq!(env.out("cat /workspace/x").await, "kept");
    assert!(jobs(&rig).is_empty());
    // And the other way round.
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::SpecChanged, "{error}");
}
