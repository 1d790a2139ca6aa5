//! Disks that are full: the engine's own, and one that is shared with the container.

use crate::own::{Disk, IMAGE, Own};
use crate::rig::{Rig, root};
use farshell_engine::Kind;
use farshell_engine::backend::Backend;

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_disk_is_full_says_so_and_goes_on_once_there_is_room() {
    if !root() {
        return;
    }
    let Some(own) = Own::small("full", 48) else { return };
    let rig = Rig::on(&own.host, IMAGE).unwrap();
    let env = rig.open().await;
    env.out("x=1; echo before > /before").await;
    // The container's own files.
    let filled = env.run("dd if=/dev/zero of=/fill bs=64k").await;
    assert_eq!(filled.code(), 1, "{filled:?}");
    assert!(filled.stderr.contains("No space left on device"), "{filled:?}");
    // Nothing can be written any more, and commands that need no room still run, in the same shell.
    let full = env.run("echo more > /more; echo $x").await;
    assert!(
        full.stderr.contains("No space left on device") || full.stderr.contains("write error"),
        "{full:?}"
    );
    assert_eq!(full.stdout, "1", "{full:?}");
    // Output has nowhere to wait: what the reader does not take at once is lost, and said to be.
    let much = env.run("head -c 3m /dev/zero").await;
    assert_eq!((much.stdout.len() as u64 + much.lost, much.code()), (3 << 20, 0));
    let log_error = much.status.output.log_error.unwrap_or_default();
    assert!(log_error.contains("No space left on device"), "{log_error}");
    // Others can have no container now, which is said as what it is.
    let error = rig.backend().provision(&rig.spec("other"), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Exhausted, "{error}");
    assert!(error.message.contains("no space left on device"), "{error}");
    assert!(error.hint.as_deref().unwrap_or_default().contains("make room"), "{error}");
    assert_eq!(rig.backend().survey().await.unwrap().len(), 1, "nothing is left of that");
    assert_eq!(
        env.out("rm /fill; cat /before; echo more > /more; cat /more; echo $x").await,
        "before\nmore\n1"
    );
    let other = rig.open_task("other").await;
    assert_eq!(other.out("echo fine").await, "fine");
    other.env.destroy().await.unwrap();
    drop(rig);
    drop(own);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_directory_that_is_full_is_the_commands_to_deal_with() {
    if !root() {
        return;
    }
    let Some(rig) = Rig::new() else { return };
    let _disk = Disk::new(&rig.home.path().join("sandboxes"), 8);
    let env = rig.open().await;
    let filled = env.run("x=1; cd /workspace; head -c 20m /dev/zero > fill").await;
    assert_eq!(filled.code(), 1, "{filled:?}");
    assert!(filled.stderr.contains("No space left on device"), "{filled:?}");
    let full = env.run("echo more > more; echo $x; head -c 3m /dev/zero").await;
    assert_eq!((full.stdout.len(), full.code()), (2 + (3 << 20), 0), "output has room elsewhere");
    assert_eq!(env.out("rm fill; echo more > more; cat more; echo $x").await, "more\n1");
    env.env.destroy().await.unwrap();
}
