//! Each failure has its own kind, and says what to do.

use crate::rig::{OwnHost, Rig};
use farshell_config::choice::HostKeyPolicy;
use farshell_engine::Kind;

#[tokio::test]
async fn a_changed_host_key_is_refused() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    rig.open().await.out("true").await;
    host.act("rekey", &[]);
    host.act("kill", &[]);
    host.act("start", &[]);
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::IdentityChanged, "{error}");
    let known = rig.home.path().join("known_hosts");
    let line = format!("line 1 of {}", known.display());
    assert!(error.message.contains(&line), "{error}");
    let remedy = format!("ssh-keygen -f {} -R '[{}]:2222'", known.display(), host.address);
    assert!(error.hint.as_ref().unwrap().contains(&remedy), "{error:?}");
    // Under a name of the user's own, it is still the host's that is noted.
    let file = rig.config.ssh_config.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}Host far\n  HostName {}\n  Port 2222\n", host.address)).unwrap();
    let rig = rig.with(|settings| {
        settings.host = "far".into();
        settings.port = 22;
    });
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::IdentityChanged, "{error}");
    assert!(error.hint.as_ref().unwrap().contains(&remedy), "{error:?}");
}

#[tokio::test]
async fn a_strict_policy_knows_its_hosts() {
    let Some(rig) = Rig::new() else { return };
    let strict = rig.with(|settings| settings.host_key_policy = HostKeyPolicy::Strict);
    let error = strict.refusal().await;
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.message.contains("host key is not known"), "{error}");
    assert!(error.hint.unwrap().contains("ssh_host_key_policy"));
    let rig = strict.with(|settings| settings.host_key_policy = HostKeyPolicy::AcceptNew);
    rig.open().await.out("true").await;
    let strict = rig.with(|settings| settings.host_key_policy = HostKeyPolicy::Strict);
    strict.open().await.out("true").await;
}

#[tokio::test]
async fn an_account_that_is_not_there_is_a_refused_login() {
    let Some(rig) = Rig::new() else { return };
    let error = rig.with(|settings| settings.user = "nobody-of-this-name".into()).refusal().await;
    assert_eq!(error.kind, Kind::PermissionDenied, "{error}");
    assert!(error.message.contains("publickey"), "{error}");
    let hint = error.hint.unwrap();
    assert!(
        hint.contains("ssh_key") && hint.contains("TERMINAL_SSH_KEY") && hint.contains("ssh-add"),
        "{hint}"
    );
}

#[tokio::test]
async fn a_key_that_is_not_there_is_named() {
    let Some(rig) = Rig::new() else { return };
    let error = rig.with(|settings| settings.key = Some("/no/such/key".into())).refusal().await;
    assert_eq!(error.kind, Kind::Invalid, "{error}");
    assert!(error.message.contains("/no/such/key"), "{error}");
}

#[tokio::test]
async fn a_host_that_nobody_knows_is_named() {
    let Some(rig) = Rig::new() else { return };
    let error = rig.with(|settings| settings.host = "no-such-host.invalid".into()).refusal().await;
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.message.contains("no-such-host.invalid"), "{error}");
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_told() {
    let Some(rig) = Rig::new() else { return };
    let error = rig.with(|settings| settings.port = 4).refusal().await;
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.message.contains("refused") && error.hint.unwrap().contains("ssh_port"));
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_told_in_time() {
    let Some(host) = OwnHost::start(&[]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let rig = rig.with(|settings| settings.options = vec!["ConnectTimeout=2".into()]);
    host.act("line", &["cut"]);
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::TimedOut, "{error}");
    assert!(error.hint.unwrap().contains("firewall"));
}

#[tokio::test]
async fn what_is_missing_or_wrong_is_named() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|settings| settings.options = vec!["NoSuchOption=yes".into()]);
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::Invalid, "{error}");
    assert!(error.message.to_lowercase().contains("nosuchoption"), "{error}");
    let error = rig.with(|settings| settings.host.clear()).refusal().await;
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.hint.unwrap().contains("TERMINAL_SSH_HOST"));
}

#[tokio::test]
async fn a_machine_without_a_client_says_so() {
    let Some(mut rig) = Rig::new() else { return };
    rig.config.environment.insert("PATH".into(), "/nonexistent".into());
    let error = rig.refusal().await;
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.hint.unwrap().contains("openssh-client"));
}
