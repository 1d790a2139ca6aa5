//! Limits hold as they are told to.

use crate::rig::Rig;
use farshell_engine::backend::Support;

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_told_as_they_hold() {
    let Some(rig) = Rig::busybox() else { return };
    let place = rig.open().await;
    place.out("true").await;
    let limits = rig.find().await.unwrap().limits();
    let of = |name: &str| limits.iter().find(|limit| limit.name == name).unwrap();
    assert_eq!(of("cpu").value, "1 cores");
    assert_eq!((of("processes").value.as_str(), of("processes").support), ("256", Support::Enforced));
    assert_eq!((of("disk").value.as_str(), of("disk").support), ("2048 MB", Support::NotEnforced));
    assert_eq!(of("memory").value, "1024 MB");
    assert_ne!(of("memory").support, Support::NotEnforced);
    for limit in &limits {
        assert!(limit.support == Support::Enforced || limit.note.is_some(), "{limit:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_hog_ends_and_its_instance_lives() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.container.memory_mb = Some(200));
    let env = rig.open().await;
    let ran = env.run("python3 -c 'x = bytearray(400 << 20)'").await;
    assert!(ran.code() != 0, "{ran:?}");
    assert_eq!(env.out("python3 -c 'x = bytearray(50 << 20); print(1)'").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_meets_the_limit_and_others_of_the_user_do_not() {
    let Some(rig) = Rig::new() else { return };
    let other = rig.open_task("other").await;
    let env = rig.open().await;
    let count = "ls -d /proc/[0-9]* | wc -l";
    let _ =
        env.try_run("timeout -s KILL 3 bash -c 'bomb() { bomb | bomb & }; bomb; sleep 2' 2>/dev/null").await;
    // This instance has as many processes as it may have, at most; another has its own number.
    assert_eq!(other.out("for i in $(seq 100); do sleep 20 & done; jobs | wc -l").await, "100");
    let processes: u32 = other.out(count).await.parse().unwrap();
    assert!(processes < 200, "{processes}");
    env.env.destroy().await.unwrap();
    assert_eq!(rig.open().await.out("echo again").await, "again");
}
