//! Limits hold, and what breaks them stays inside.

use crate::rig::Rig;
use farshell_engine::Kind;
use farshell_engine::backend::{Backend, Support};

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_hog_is_killed_and_its_container_lives() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.container.memory_mb = Some(128));
    let env = rig.open().await;
    let hog = "python3 -c \"
x = []
while True: x.append(bytearray(1 << 20))\"";
    let ran = env.run(hog).await;
    assert_eq!(ran.code(), 137, "{ran:?}");
    assert_eq!(env.out("echo alive").await, "alive");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_meets_the_limit() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.pids_limit = Some(64));
    let env = rig.open().await;
    // Whatever becomes of the shell that started it.
    let _ =
        env.try_run("timeout -s KILL 3 bash -c 'bomb() { bomb | bomb & }; bomb; sleep 2' 2>/dev/null").await;
    let count = rig.docker(&["top", &env.id(), "-o", "pid"]).lines().count();
    assert!(count <= 65, "{count} processes");
    env.env.destroy().await.unwrap();
    assert_eq!(rig.open().await.out("echo again").await, "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_told_as_they_hold() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.container.disk_mb = Some(1024));
    let place = rig.backend().provision(&rig.spec("default"), &()).await.unwrap();
    let limits = place.limits();
    let of = |name: &str| limits.iter().find(|limit| limit.name == name).unwrap();
    assert_eq!((of("cpu").value.as_str(), of("cpu").support), ("1 cores", Support::Enforced));
    assert_eq!((of("processes").value.as_str(), of("processes").support), ("256", Support::Enforced));
    assert_eq!(of("memory").value, "512 MB");
    assert_eq!(of("disk").value, "1024 MB");
    // The rig's engine has no storage driver that could.
    assert_eq!(of("disk").support, Support::NotEnforced);
    assert!(of("disk").note.is_some());
    let id = place.identity().id;
    let inside = rig.docker(&[
        "inspect",
        "-f",
        "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.NanoCpus}}",
        &id,
    ]);
    assert_eq!(inside, "536870912 536870912 1000000000");
    // A found one says the same.
    assert_eq!(rig.backend().find(&rig.spec("default")).await.unwrap().unwrap().limits(), limits);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_the_engine_refuses_is_an_error() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.container.cpu = Some(10_000.0));
    let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Invalid, "{error}");
    assert_eq!(error.hint.as_deref(), Some("lower container_cpu"));
    assert!(rig.backend().survey().await.unwrap().is_empty());
}
