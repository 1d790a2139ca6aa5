//! From the first connection to the last.

use crate::rig::{Rig, var};
use farshell_engine::backend::{Backend, Severity};
use std::time::Duration;

#[tokio::test]
async fn commands_run_on_the_host() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    assert_eq!(env.out("id -un").await, rig.config.settings.user);
    assert_eq!(env.out("cd /usr && x=1").await, "");
    assert_eq!(env.out("echo $PWD $x").await, "/usr 1");
    assert_eq!(env.run("exit 3").await.code(), 3);
    let machine = env.out("cat /etc/machine-id; id -u").await.replace('\n', "/");
    let identity = env.env.identity();
    assert_eq!((identity.id, identity.name), (machine, env.out("uname -n").await));
    assert_eq!(rig.masters().len(), 1);
    env.env.destroy().await.unwrap();
}

#[tokio::test]
async fn no_variable_of_ours_goes_there() {
    let Some(mut rig) = Rig::new() else { return };
    for name in ["LC_TEST_SECRET", "LANG", "FARSHELL_TEST_SECRET"] {
        rig.config.environment.insert(name.into(), "leaked".into());
    }
    // As the stock configuration of Debian does. What SetEnv gives, the user has chosen for the host.
    let file = rig.config.ssh_config.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap() + "SendEnv LANG LC_* FARSHELL_*\n";
    std::fs::write(&file, text).unwrap();
    let env = rig.open().await;
    assert_eq!(env.run("env | grep leaked").await.stdout, "");
    let home = rig.home.path().to_string_lossy().into_owned();
    assert_eq!(env.run(&format!("env | grep -F {home}")).await.stdout, "");
}

#[tokio::test]
async fn what_is_there_is_found_listed_and_removed() {
    let Some(rig) = Rig::new() else { return };
    let (backend, spec) = (rig.backend(), rig.spec("found"));
    assert!(backend.find(&spec).await.unwrap().is_none());
    assert_eq!(backend.survey().await.unwrap(), []);
    let env = rig.try_open("found").await.unwrap();
    env.out("sleep 1000 & echo $! >~/sleeper").await;
    let other = Rig::new().unwrap();
    assert_eq!(other.backend().survey().await.unwrap(), [], "another home's");
    let all = backend.survey().await.unwrap();
    assert_eq!(all.len(), 1);
    assert!(all[0].alive && all[0].task == Some(spec.task.clone()), "{all:?}");
    assert!(all[0].age.unwrap() < Duration::from_secs(60));
    let place = backend.find(&spec).await.unwrap().unwrap();
    assert_eq!(place.identity(), env.env.identity());
    env.env.outpost().disconnect();
    backend.remove_found(&all[0]).await.unwrap();
    backend.remove_found(&all[0]).await.unwrap();
    assert_eq!(backend.survey().await.unwrap(), []);
    let again = rig.try_open("found").await.unwrap();
    assert_eq!(again.run("kill -0 $(cat ~/sleeper)").await.code(), 1);
    for name in ["found", "found-00000000-1", "../x-1-1"] {
        let mut found = all[0].clone();
        found.name = name.into();
        assert!(backend.remove_found(&found).await.is_err(), "{name}");
    }
    again.env.destroy().await.unwrap();
    again.env.destroy().await.unwrap();
}

#[tokio::test]
async fn a_connection_is_shared_and_closed_by_nobody() {
    let Some(rig) = Rig::new() else { return };
    let one = rig.try_open("one").await.unwrap();
    let two = rig.try_open("two").await.unwrap();
    assert_eq!(one.out("echo one").await, "one");
    two.env.destroy().await.unwrap();
    assert_eq!(one.out("echo still").await, "still");
    assert_eq!(rig.masters().len(), 1);
    let other = Rig::new().unwrap();
    other.open().await.out("true").await;
    assert_eq!((rig.masters().len(), other.masters().len()), (1, 1), "another home has its own");
}

#[tokio::test]
async fn many_tasks_fit_through_one_connection_to_a_stock_daemon() {
    let Some(rig) = Rig::new() else { return };
    let rig = std::sync::Arc::new(rig);
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let rig = std::sync::Arc::clone(&rig);
            tokio::spawn(async move {
                let env = rig.try_open(&format!("many{n}")).await.unwrap();
                assert_eq!(env.out(&format!("echo {n}")).await, n.to_string());
                env
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap());
    }
    assert_eq!(rig.masters().len(), 1);
    for (n, env) in all.iter().enumerate() {
        assert_eq!(env.out(&format!("echo {n} again")).await, format!("{n} again"));
    }
}

#[tokio::test]
async fn the_next_process_finds_everything() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("y=kept; cd /var").await;
    let master = rig.master_pid();
    // What a killed process leaves: nothing is closed, nothing is said.
    std::mem::forget(env);
    let env = rig.open().await;
    assert_eq!(env.out("echo $y $PWD").await, "kept /var");
    assert_eq!(rig.master_pid(), master);
}

#[tokio::test]
async fn a_check_says_what_is_there() {
    let Some(rig) = Rig::new() else { return };
    let findings = rig.backend().check().await;
    assert!(findings.iter().all(|f| f.severity == Severity::Good), "{findings:?}");
    assert!(findings.iter().any(|f| f.what.contains("OpenSSH")) && findings.len() >= 4, "{findings:?}");
    let rig = rig.with(|settings| settings.user = "nobody-of-this-name".into());
    let findings = rig.backend().check().await;
    assert!(findings.iter().any(|f| f.severity == Severity::Problem && f.hint.is_some()), "{findings:?}");
}

/// Nothing but the settings names a key.
#[tokio::test]
async fn the_key_of_the_settings_opens_the_jump_host_too() {
    let Some(rig) = Rig::new() else { return };
    let file = rig.config.ssh_config.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("IdentityFile")).collect();
    std::fs::write(&file, text.join("\n") + "\n").unwrap();
    let user = rig.config.settings.user.clone();
    let first = format!("{user}@{}:{}", rig.config.settings.host, rig.config.settings.port);
    let behind = var("FARSHELL_TEST_SSH_BEHIND").unwrap();
    let rig = rig.with(|settings| {
        settings.host = behind;
        settings.jump = Some(first);
    });
    assert_eq!(rig.open().await.out("id -un").await, user);
}

#[tokio::test]
async fn a_jump_host_leads_to_a_host_behind_it() {
    let Some(rig) = Rig::new() else { return };
    let user = rig.config.settings.user.clone();
    let first = format!("{user}@{}:{}", rig.config.settings.host, rig.config.settings.port);
    let behind = var("FARSHELL_TEST_SSH_BEHIND").unwrap();
    let here = rig.open().await.env.identity();
    let rig = rig.with(|settings| {
        settings.host = behind.clone();
        settings.jump = Some(first.clone());
    });
    let env = rig.open().await;
    assert_eq!(env.out("id -un").await, user);
    assert_ne!(env.env.identity().id, here.id);
    drop(env);

    // The same from the user's own configuration, under a name of its own.
    let rig = Rig::new().unwrap().with(|settings| {
        settings.host = "far".into();
        settings.port = 22;
    });
    let file = rig.config.ssh_config.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap()
        + &format!("Host far\n  HostName {behind}\n  Port 2222\n  ProxyJump {first}\n");
    std::fs::write(&file, text).unwrap();
    let env = rig.open().await;
    assert_ne!(env.env.identity().id, here.id);
}
