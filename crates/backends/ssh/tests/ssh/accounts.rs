//! Accounts and hosts of all kinds.

use crate::rig::{OwnHost, Rig, var};
use farshell_engine::Kind;

#[tokio::test]
async fn any_login_shell_will_do() {
    for user in ["USER_FISH", "USER_CSH", "USER_SH", "USER_NOISY", "USER_SECOND"] {
        let Some(address) = var("FARSHELL_TEST_SSH") else { return };
        let rig = Rig::at(&address, &format!("FARSHELL_TEST_SSH_{user}")).unwrap();
        let env = rig.open().await;
        assert_eq!(
            env.out("id -un; echo \"a'b\\\"c\"").await,
            format!("{}\na'b\"c", rig.config.settings.user),
            "{user}"
        );
    }
}

#[tokio::test]
async fn accounts_do_not_meet() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    let second = var("FARSHELL_TEST_SSH_USER_SECOND").unwrap();
    let id = env.env.identity().id;
    let rig = rig.with(|settings| settings.user = second);
    let other = rig.open().await;
    assert_ne!(other.env.identity().id, id);
    assert_eq!(rig.masters().len(), 2);
}

#[tokio::test]
async fn a_banner_is_not_in_the_way() {
    let banner = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(banner.path(), "Authorized users only!\n".repeat(50)).unwrap();
    let Some(host) = OwnHost::start(&[&format!("Banner {}", banner.path().display())]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER_NOISY").unwrap();
    assert_eq!(rig.open().await.run("echo fine").await.stdout, "fine");
}

#[tokio::test]
async fn one_session_is_enough() {
    let Some(host) = OwnHost::start(&["MaxSessions 1"]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let (one, two) = (rig.try_open("one").await.unwrap(), rig.try_open("two").await.unwrap());
    assert_eq!((one.out("echo 1").await, two.out("echo 2").await), ("1".into(), "2".into()));
    assert_eq!(rig.masters().len(), 1);
    one.env.destroy().await.unwrap();
}

#[tokio::test]
async fn a_host_that_forwards_nothing_gives_sessions() {
    let Some(host) = OwnHost::start(&["DisableForwarding yes", "MaxSessions 3"]) else { return };
    let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
    let mut all = Vec::new();
    for n in 0..8 {
        let env = rig.try_open(&format!("t{n}")).await.unwrap();
        assert_eq!(
            env.out(&format!("echo {n}; head -c 100000 /dev/zero | wc -c")).await,
            format!("{n}\n100000")
        );
        all.push(env);
    }
    assert!(rig.masters().len() > 1, "{:?}", rig.masters());
    for env in &all {
        env.out("true").await;
        env.env.destroy().await.unwrap();
    }
}

/// A command of the host's own that runs what was asked for in the end, as those do that log or limit.
#[tokio::test]
async fn a_forced_command_that_goes_on_is_not_in_the_way() {
    for line in [
        "ForceCommand echo logged >&2; exec sh -c \"$SSH_ORIGINAL_COMMAND\"",
        "ForceCommand echo logged; eval \"$SSH_ORIGINAL_COMMAND\"",
        // One more shell reads it.
        "ForceCommand sh -c \"echo logged >&2; exec sh -c \\\"$SSH_ORIGINAL_COMMAND\\\"\"",
    ] {
        for lines in [&[line][..], &[line, "DisableForwarding yes"]] {
            let Some(host) = OwnHost::start(lines) else { return };
            let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
            let env = rig.try_open("default").await.unwrap_or_else(|error| panic!("{lines:?}: {error}"));
            assert_eq!(
                env.out("echo \"a'b\"; head -c 100000 /dev/zero | wc -c").await,
                "a'b\n100000",
                "{lines:?}"
            );
            env.env.destroy().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_forced_command_is_told() {
    for (line, part) in [
        ("ForceCommand echo This account is for backups only", "backups only"),
        ("ForceCommand internal-sftp", "did not run it"),
        ("ForceCommand /usr/sbin/nologin", "not available"),
        ("ForceCommand rbash -c \"$SSH_ORIGINAL_COMMAND\"", "restricted"),
    ] {
        let Some(host) = OwnHost::start(&[line]) else { return };
        let rig = Rig::at(&host.address, "FARSHELL_TEST_SSH_USER").unwrap();
        let error = rig.refusal().await;
        assert_eq!(error.kind, Kind::Unavailable, "{line}: {error}");
        assert!(error.message.contains(part), "{line}: {error}");
        assert!(error.hint.unwrap().contains("ForceCommand"), "{line}");
    }
}
