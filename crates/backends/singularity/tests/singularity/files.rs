//! Files that last, and files in one file of a fixed size.

use crate::rig::{Env, Rig};
use farshell_engine::backend::{Backend, Support};

#[tokio::test(flavor = "multi_thread")]
async fn kept_files_outlive_the_instance_and_are_removed_when_asked() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo work > /workspace/x; echo home > ~/x; echo layer > /x; mkdir -m 0 /workspace/locked").await;
    env.env.destroy().await.unwrap();
    let again = rig.open().await;
    assert_eq!(again.out("cat /workspace/x ~/x; ls /x 2>/dev/null || true").await, "work\nhome");
    let (backend, spec, kept) = (rig.backend(), rig.spec("default"), rig.files());
    assert_eq!(backend.kept_files(&spec).await, Some(kept.display().to_string()));
    assert_eq!(std::fs::read_to_string(kept.join("workspace/x")).unwrap(), "work\n");
    // Not while it is used.
    backend.remove_files(&spec).await.unwrap_err();
    again.env.destroy().await.unwrap();
    backend.remove_files(&spec).await.unwrap();
    backend.remove_files(&spec).await.unwrap();
    assert_eq!((kept.exists(), backend.kept_files(&spec).await), (false, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_still_there_after_a_while_in_which_none_were_kept() {
    let Some(rig) = Rig::busybox() else { return };
    let spec = |rig: &Rig, kept: bool| {
        let mut spec = rig.spec("default");
        spec.settings.insert("container_persistent".into(), kept.to_string());
        spec
    };
    let env = Env::open(&rig.backend(), &spec(&rig, true)).await;
    env.out("echo kept > /workspace/x; echo kept > ~/x").await;
    rig.find().await.unwrap().suspend().await.unwrap();
    let rig = rig.with(|s| s.container.persistent = false);
    let env = Env::open(&rig.backend(), &spec(&rig, false)).await;
    assert_eq!(env.out("ls /workspace ~; echo gone > /workspace/y").await, "/root:\n\n/workspace:");
    env.env.destroy().await.unwrap();
    let rig = rig.with(|s| s.container.persistent = true);
    let env = Env::open(&rig.backend(), &spec(&rig, true)).await;
    assert_eq!(env.out("ls /workspace; cat /workspace/x ~/x").await, "x\nkept\nkept");
    env.env.destroy().await.unwrap();
    // Also by whoever keeps nothing.
    let rig = rig.with(|s| s.container.persistent = false);
    let kept = rig.files();
    assert_eq!(rig.backend().kept_files(&rig.spec("default")).await, Some(kept.display().to_string()));
    rig.backend().remove_files(&rig.spec("default")).await.unwrap();
    assert!(!kept.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_in_a_file_is_full_when_it_is_and_its_files_last() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| {
        s.disk_image = true;
        s.container.disk_mb = Some(64);
    });
    let env = rig.open().await;
    assert_eq!(
        env.out("echo $HOME; echo kept > /workspace/x; echo kept > ~/x; cat /workspace/x ~/x").await,
        "/root\nkept\nkept"
    );
    let full = env.run("head -c 100m /dev/zero > /workspace/big").await;
    assert!(full.code() != 0 && full.stderr.contains("No space left"), "{full:?}");
    // Removing takes a block of its own, so room is made by emptying.
    env.out(": > /workspace/big && rm /workspace/big && sync").await;
    let disk = rig.find().await.unwrap().limits().into_iter().find(|limit| limit.name == "disk").unwrap();
    assert_eq!((disk.value.as_str(), disk.support), ("64 MB", Support::Enforced));
    rig.find().await.unwrap().suspend().await.unwrap();
    assert_eq!(rig.open().await.out("cat /workspace/x ~/x").await, "kept\nkept");
    rig.find().await.unwrap().destroy().await.unwrap();
    assert_eq!(rig.open().await.out("cat /workspace/x ~/x").await, "kept\nkept");
}
