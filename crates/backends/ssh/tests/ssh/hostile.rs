//! What nobody wishes for: hosts that are dead, others than before or full of noise, and masters that hang.

use crate::rig::{Agent, OwnHost, Rig, var};
use farshell_engine::backend::Backend;
use farshell_engine::{Error, Kind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}

/// Has each login of a rig noted in a file.
fn noted(rig: &mut Rig) -> PathBuf {
    let (dir, log) = (rig.home.path().join("bin"), rig.home.path().join("logins"));
    std::fs::create_dir(&dir).unwrap();
    let path = rig.config.environment["PATH"].clone();
    // Who makes a connection says that it has no command (-N).
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" -N \"*) echo login >>{} ;; esac\nPATH={path} exec ssh \"$@\"\n",
        log.display()
    );
    let program = dir.join("ssh");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    rig.config.environment.insert("PATH".into(), format!("{}:{path}", dir.display()));
    log
}

fn logins(log: &PathBuf) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().lines().count()
}

async fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "in vain");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_dead_host_share_one_login() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let mut rig = rig.with(|settings| settings.options = vec!["ConnectTimeout=5".into()]);
    let log = noted(&mut rig);
    host.act("line", &["cut"]);
    let rig = Arc::new(rig);
    let callers: Vec<_> = (0..6)
        .map(|n| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move { rig.try_open(&format!("t{n}")).await.unwrap_err() })
        })
        .collect();
    for caller in callers {
        let error = caller.await.unwrap();
        assert_eq!(error.kind, Kind::TimedOut, "{error}");
        assert!(error.hint.is_some_and(|hint| hint.contains("firewall")));
    }
    assert_eq!(logins(&log), 1);
    // Whoever comes later tries anew.
    host.act("line", &[]);
    assert_eq!(rig.open().await.out("echo up").await, "up");
    assert_eq!(logins(&log), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_hosts_keep_nobody_else_waiting() {
    let Some(well) = Rig::new() else { return };
    let hosts: Vec<_> = (0..4).filter_map(|_| OwnHost::start(&[])).collect();
    let mut dead = Vec::new();
    for host in &hosts {
        let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
        let mut rig = rig.with(|settings| settings.options = vec!["ConnectTimeout=20".into()]);
        let log = noted(&mut rig);
        host.act("line", &["cut"]);
        dead.push((tokio::spawn(async move { rig.refusal().await }), log));
    }
    until(|| dead.iter().all(|(_, log)| logins(log) == 1)).await;
    assert_eq!(well.open().await.out("echo well").await, "well");
    assert!(dead.iter().all(|(caller, _)| !caller.is_finished()), "it waited for the dead ones");
    for host in &hosts {
        host.act("line", &[]);
    }
    for (caller, _) in dead {
        caller.abort();
        let _ = caller.await;
    }
}

fn is_another(error: &Error) {
    assert_eq!(error.kind, Kind::IdentityChanged, "{error}");
    assert!(error.message.contains("another machine"), "{error}");
    let hint = error.hint.as_ref().unwrap();
    assert!(hint.contains("ssh_host") && hint.contains("farshell env rm --forget ssh/default"), "{hint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_is_refused_every_time_and_left_alone() {
    for lines in [&[][..], &["DisableForwarding yes"]] {
        let Some(host) = OwnHost::start(lines) else { return };
        let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
        let env = rig.open().await;
        env.out("true").await;
        let (first, spec, was) = (host.dir().join("machine-id"), rig.spec("default"), env.env.identity());
        let kept = std::fs::read(&first).unwrap();
        std::fs::remove_file(&first).unwrap();
        host.act("reboot", &[]);
        for _ in 0..2 {
            is_another(&env.place.connect().await.unwrap_err());
            is_another(&env.place.destroy().await.unwrap_err());
            // As the next server does: it finds what there is, and makes what there is not.
            is_another(&rig.backend().find_again(&spec, &was).await.unwrap_err());
            is_another(&rig.backend().provision_again(&spec, &was, &()).await.unwrap_err());
        }
        assert_eq!(rig.backend().survey().await.unwrap(), [], "nothing is started there");

        // The first machine is back.
        std::fs::write(&first, kept).unwrap();
        host.act("reboot", &[]);
        assert!(rig.backend().find_again(&spec, &was).await.unwrap().is_none());
        let place = rig.backend().provision_again(&spec, &was, &()).await.unwrap();
        assert_eq!(place.identity(), was);
        assert!(rig.backend().find_again(&spec, &was).await.unwrap().is_some());

        // Nothing is known any more: any machine will do.
        std::fs::remove_file(&first).unwrap();
        host.act("reboot", &[]);
        assert_ne!(rig.open().await.env.identity(), was);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_asks_the_agent_of_who_called_last() {
    let Some(mut rig) = Rig::new() else { return };
    rig.config.settings.key = None;
    let file = rig.config.ssh_config.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let text: String =
        text.lines().filter(|line| !line.starts_with("IdentityFile")).collect::<Vec<_>>().join("\n");
    std::fs::write(&file, format!("{text}\nIdentityFile none\n")).unwrap();
    let socket = |n: u32| rig.home.path().join(format!("agent{n}"));
    let (first, second) = (socket(1), socket(2));
    let with = |socket: &PathBuf| ("SSH_AUTH_SOCK".to_owned(), socket.to_string_lossy().into_owned());

    let agent = Agent::start(&first);
    rig.config.environment.extend([with(&first)]);
    let env = rig.open().await;
    env.out("z=kept").await;

    // The user has logged out and in again.
    drop(agent);
    let agent = Agent::start(&second);
    rig.config.environment.extend([with(&second)]);
    rig.backend().called();
    signal("-9", &rig.master_pid());
    assert_eq!(env.out("echo $z").await, "kept");

    // Somebody without any agent comes in between.
    rig.config.environment.remove("SSH_AUTH_SOCK");
    rig.backend().called();
    signal("-9", &rig.master_pid());
    assert_eq!(env.out("echo $z").await, "kept");

    // Who called last has no agent that lives, and somebody before has.
    rig.config.environment.extend([with(&first)]);
    rig.backend().called();
    signal("-9", &rig.master_pid());
    assert_eq!(env.out("echo $z").await, "kept");
    env.env.destroy().await.unwrap();
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_hangs_is_given_up_within_thirty_seconds() {
    let (Some(stock), Some(session)) = (Rig::new(), var("FARSHELL_TEST_SSH_SESSION")) else { return };
    // Where a session carries the stream, too.
    let session = Rig::at(&session, "FARSHELL_TEST_SSH_USER").unwrap();
    tokio::join!(hangs(stock), hangs(session));
}

async fn hangs(rig: Rig) {
    let env = rig.open().await;
    env.out("z=kept").await;
    env.env.outpost().disconnect();
    let master = rig.master_pid();
    // It holds no lock that the next login waits for.
    let mut lock = rig.masters()[0].clone().into_os_string();
    lock.push(".lock");
    assert!(Command::new("flock").arg("-n").arg(&lock).arg("true").status().unwrap().success());
    signal("-STOP", &master);
    let begun = Instant::now();
    let on = env.try_run("echo $z").await;
    let took = begun.elapsed();
    signal("-KILL", &master);
    assert_eq!(on.unwrap().stdout, "kept");
    assert!(took < Duration::from_secs(30), "{took:?}");
    let master = rig.master_pid();
    signal("-STOP", &master);
    let begun = Instant::now();
    let other = rig.try_open("other").await;
    let took = begun.elapsed();
    signal("-KILL", &master);
    assert_eq!(other.unwrap().out("echo on").await, "on");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_found_for_a_while_is_no_host_that_is_gone() {
    let Some(rig) = Rig::new() else { return };
    let address = rig.config.settings.host.clone();
    let rig = rig.with(|settings| settings.host = "far".into());
    let file = rig.config.ssh_config.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let leads_to =
        |name: &str| std::fs::write(&file, format!("{text}Host far\n  HostName {name}\n")).unwrap();
    leads_to(&address);
    let env = rig.open().await;
    env.out("z=kept").await;
    leads_to("no..such");
    signal("-9", &rig.master_pid());
    env.env.outpost().disconnect();
    let error = env.place.connect().await.unwrap_err();
    assert_eq!(error.kind, Kind::Disconnected, "{error}");
    assert!(error.message.contains("no..such") && error.hint.is_some(), "{error}");
    leads_to(&address);
    assert_eq!(env.out("echo $z").await, "kept");
    // Where nothing has been reached yet, it is the setting that is wrong.
    leads_to("no..such");
    signal("-9", &rig.master_pid());
    assert_eq!(rig.refusal().await.kind, Kind::Unavailable);
    leads_to(&address);
}

#[tokio::test]
async fn noise_without_an_end_is_told_and_costs_one_login() {
    for (line, part) in [
        ("ForceCommand yes all is well", "all is well"),
        ("ForceCommand cat /dev/zero", "something else"),
        ("ForceCommand sh -c 'while :; do echo tick >&2; echo tock; done'", "tock"),
        ("ForceCommand sh -c 'echo open failed, refused by peer >&2; exit 1'", "open failed"),
    ] {
        let Some(host) = OwnHost::start(&[line]) else { return };
        let mut rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
        let log = noted(&mut rig);
        let error = rig.refusal().await;
        assert_eq!(error.kind, Kind::Unavailable, "{line}: {error}");
        assert!(error.message.contains(part) && error.message.len() < 2000, "{line}: {error}");
        assert!(error.hint.is_some_and(|hint| hint.contains("ForceCommand")), "{line}");
        assert_eq!(logins(&log), 1, "{line}");
    }
}

#[tokio::test]
async fn odd_names_of_directories_are_no_obstacle() {
    for name in ["100%", "a:b", "it's", "${HOME}", "[x]", "a b"] {
        let Some(mut rig) = Rig::new() else { return };
        // Where sockets would be.
        let dir = rig.home.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        rig.config.environment.insert("XDG_RUNTIME_DIR".into(), dir.to_string_lossy().into_owned());
        let env = rig.open().await;
        assert_eq!(env.out("echo fine").await, "fine", "{name}");
        env.env.destroy().await.unwrap();
    }
}
