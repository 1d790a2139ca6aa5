//! Images and snapshots: real layers.

use crate::rig::Emulator;
use farshell_modal_proto::client::*;
use tonic::Code;

#[tokio::test]
async fn a_snapshot_is_what_was_there() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let source = modal.sandbox().await;
    let setup = "set -e; mkdir -p /data/dir; echo one > /data/file; ln /data/file /data/hard; ln -s file /data/soft
        chmod 4751 /data/file; chown 12:34 /data/dir; touch -d '2001-02-03 04:05:06 UTC' /data/dir
        rm /etc/passwd-; rm -r /etc/skel; mkdir /etc/skel; echo new > /etc/skel/new; mv /etc/hostname /etc/renamed
        truncate -s 1G /data/sparse; mkfifo /data/pipe
        python3 -c 'import os; os.setxattr(\"/data/file\", \"user.mark\", b\"kept\"); os.setxattr(\"/data\", \"trusted.mark\", b\"too\")'";
    let prepared = source.ran(source.shell(&format!("touch /etc/passwd-; {setup}"))).await;
    assert_eq!(prepared.0, 0, "{prepared:?}");
    let image_id = source.snapshot(-1).await.unwrap();
    assert!(image_id.starts_with("im-") && image_id.len() == 25, "{image_id}");
    // From here on they have nothing to do with each other.
    source.sh("echo two > /data/file; touch /data/more; rm /data/soft").await;
    let wish = Sandbox { image_id: image_id.clone(), ..modal.definition(&[]) };
    let (restored, other) = (modal.create(wish.clone()).await, modal.create(wish).await);
    let look = "cat /data/file; ls /data; stat -c '%a %h' /data/file; stat -c '%u:%g %Y' /data/dir; readlink /data/soft
        stat -c %s /data/sparse; du -k /data/sparse | cut -f1; ls /etc/skel; test -p /data/pipe && echo pipe
        test -e /etc/passwd- || echo deleted; test -e /etc/hostname || echo moved
        python3 -c 'import os; print(os.getxattr(\"/data/file\", \"user.mark\"), os.getxattr(\"/data\", \"trusted.mark\"))'";
    let expected = "one\ndir\nfile\nhard\npipe\nsoft\nsparse\n4751 2\n12:34 981173106\nfile\n1073741824\n0\nnew\npipe\ndeleted\nmoved\nb'kept' b'too'\n";
    assert_eq!(restored.sh(look).await, expected);
    restored.sh("rm -r /data; echo mine > /mine").await;
    assert_eq!(other.sh(look).await, expected);
    assert_eq!(source.sh("cat /data/file; ls /mine 2>/dev/null || echo none").await, "two\nnone\n");
    // A snapshot of what stands on a snapshot.
    let image_id = restored.snapshot(-1).await.unwrap();
    let again = modal.create(Sandbox { image_id, ..modal.definition(&[]) }).await;
    assert_eq!(
        again.sh("cat /mine; test -e /data || echo gone; cat /etc/skel/new").await,
        "mine\ngone\nnew\n"
    );
}

#[tokio::test]
async fn it_is_over_after_its_time() {
    let Some(emulator) = Emulator::start(&["--second-ms", "50"]) else { return };
    let modal = emulator.client().await;
    let sandbox = modal.sandbox().await;
    for ttl in [None, Some(0), Some(-2)] {
        let refused = sandbox.snapshot_as(&crate::rig::unique(), ttl).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{ttl:?}");
    }
    let (short, ever) = (sandbox.snapshot(10).await.unwrap(), sandbox.snapshot(-1).await.unwrap());
    let ask = |id: &str| modal.ask(ImageFromIdRequest { image_id: id.into() });
    let mut client = modal.client.clone();
    let over = loop {
        match client.image_from_id(ask(&short)).await {
            Ok(found) => assert_eq!(found.into_inner().image_id, short),
            Err(status) => break status,
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(over.code(), Code::NotFound);
    let refused = modal.try_create(Sandbox { image_id: short, ..modal.definition(&[]) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    client.image_from_id(ask(&ever)).await.unwrap();

    // What is deleted is gone, also from the disk, once nobody stands on it.
    let layers = emulator.dir.path().join("emulator/layers");
    let standing = modal.create(Sandbox { image_id: ever.clone(), ..modal.definition(&[]) }).await;
    standing.sh("true").await;
    client.image_delete(modal.ask(ImageDeleteRequest { image_id: ever.clone() })).await.unwrap();
    assert_eq!(client.image_from_id(ask(&ever)).await.unwrap_err().code(), Code::NotFound);
    let again = client.image_delete(modal.ask(ImageDeleteRequest { image_id: ever })).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);
    assert_eq!(standing.sh("echo here").await, "here\n");
    let count = || std::fs::read_dir(&layers).unwrap().count();
    assert_eq!(count(), 1);
    modal.terminate(&standing.id).await;
    let before = std::time::Instant::now();
    while count() > 0 {
        assert!(before.elapsed() < crate::rig::PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// As Modal's own clients have it, which is too little for many gigabytes. What has begun goes on, and is found by its name.
#[tokio::test]
async fn who_sets_no_limit_has_55_seconds() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let sandbox = modal.sandbox().await;
    emulator.arm(r#"[{"kind":"slow-snapshot","ms":57000}]"#);
    let begun = std::time::Instant::now();
    let cut = sandbox.snapshot_as("big", Some(-1)).await.unwrap_err();
    assert_eq!((cut.code(), begun.elapsed().as_secs() >= 55), (Code::DeadlineExceeded, true), "{cut}");
    let image = sandbox.snapshot_as("big", Some(-1)).await.unwrap();
    assert_eq!(emulator.http("GET", "snapshots", ""), format!("[\"{image}\"]"), "it is one");
}

#[tokio::test]
async fn a_long_chain() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let mut image_id = modal.image.clone();
    for number in 0..40 {
        let sandbox = modal.create(Sandbox { image_id, ..modal.definition(&[]) }).await;
        sandbox.sh(&format!("echo {number} >> /all; echo {number} > /{number}")).await;
        image_id = sandbox.snapshot(-1).await.unwrap();
        modal.terminate(&sandbox.id).await;
    }
    let last = modal.create(Sandbox { image_id, ..modal.definition(&[]) }).await;
    assert_eq!(last.sh("wc -l < /all; cat /0 /20 /39").await, "40\n0\n20\n39\n");
}

#[tokio::test]
async fn of_the_first_kind() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let sandbox = modal.first_kind(modal.definition(&["sleep", "infinity"])).await;
    sandbox.sh("echo kept > /kept").await;
    let wish = SandboxSnapshotFsRequest { sandbox_id: sandbox.id.clone(), timeout: 55.0 };
    let taken = modal.client.clone().sandbox_snapshot_fs(modal.ask(wish)).await.unwrap().into_inner();
    assert_eq!(taken.result.unwrap().status(), generic_result::GenericStatus::Success);
    let wish = Sandbox { image_id: taken.image_id, ..modal.definition(&[]) };
    assert_eq!(modal.first_kind(wish.clone()).await.sh("cat /kept").await, "kept\n");
    assert_eq!(modal.create(wish).await.sh("cat /kept").await, "kept\n");
}

#[tokio::test]
async fn what_an_image_runs_is_run() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let from = format!("FROM {}", crate::rig::TAG);
    let lines =
        [from.as_str(), "ENV COLOUR=blue", "RUN echo $COLOUR > /colour && mkdir /work", "WORKDIR /work"];
    let image = modal.build(&lines).await.unwrap();
    assert_eq!(modal.build(&lines).await.unwrap(), image, "built once");
    let sandbox = modal.create(Sandbox { image_id: image, ..modal.definition(&[]) }).await;
    assert_eq!(sandbox.sh("cat /colour; echo $COLOUR; pwd").await, "blue\nblue\n/work\n");
    let failed = modal.build(&[&from, "RUN exit 9"]).await.unwrap_err();
    assert!(failed.contains("RUN exit 9"), "{failed}");
    let refused = modal.build(&[&from, "COPY a b"]).await.unwrap_err();
    assert!(refused.contains("COPY"), "{refused}");
    assert_eq!(
        std::fs::read_dir(emulator.dir.path().join("emulator"))
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("build-") })
            .count(),
        0
    );
}

#[tokio::test]
async fn a_directory_is_an_image() {
    let busybox =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| std::path::Path::new(path).exists());
    let Some(busybox) = busybox else {
        eprintln!("skipped: busybox (busybox-static) is not installed");
        return;
    };
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    std::fs::copy(busybox, root.path().join("bin/busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", root.path().join("bin/sh")).unwrap();
    let image = format!("tiny:1={}", root.path().display());
    let Some(emulator) = Emulator::start(&["--image", &image]) else { return };
    let modal = emulator.client().await;
    let image_id = modal.build(&["FROM tiny:1"]).await.unwrap();
    let sandbox = modal.create(Sandbox { image_id, ..modal.definition(&[]) }).await;
    assert_eq!(sandbox.sh("busybox ls /bin; echo x > /bin/new").await, "busybox\nsh\n");
    assert!(!root.path().join("bin/new").exists());
}
