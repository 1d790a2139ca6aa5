use super::*;
use crate::files::testing::{Caller, Scene};
use std::os::unix::fs::{MetadataExt, symlink};

fn ask(scene: &Scene, op: BelowOp, path: &str) -> Below {
    Below::new(op, scene.context.cwd.as_os_str().as_bytes().to_vec(), path.as_bytes().to_vec())
}

fn serve_it(scene: &Scene, below: &Below, caller: &mut Caller) -> Result<FileReply, Failure> {
    serve(&scene.context, below, caller)
}

#[test]
fn a_file_is_put_and_found_below_and_nowhere_else() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("dir")).unwrap();
    symlink(&scene.context.home, scene.path("link")).unwrap();
    let put =
        Below { mode: Some(0o4640), mtime_ns: Some(3_000_000_000), ..ask(&scene, BelowOp::Put, "dir/file") };
    let reply = serve_it(&scene, &put, &mut Caller::uploading(&[b"con", b"tent"])).unwrap();
    assert!(matches!(reply, FileReply::Written { created: true, .. }), "{reply:?}");
    let meta = std::fs::metadata(scene.path("dir/file")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.len()), (0o640, 3, 7));

    let mut caller = Caller::default();
    let read = Below { offset: Some(3), len: Some(2), ..ask(&scene, BelowOp::Read, "dir/file") };
    serve_it(&scene, &read, &mut caller).unwrap();
    assert_eq!(caller.bytes(), b"te");

    for op in [BelowOp::Put, BelowOp::Read, BelowOp::List, BelowOp::MakeDir, BelowOp::Remove, BelowOp::Set] {
        for path in ["link/x", "../home/x", "/etc"] {
            let failure = serve_it(&scene, &ask(&scene, op, path), &mut Caller::default()).unwrap_err();
            assert_eq!(failure.kind, ErrorKind::Invalid, "{op:?} {path}: {failure}");
        }
    }
    assert_eq!(std::fs::read_dir(&scene.context.home).unwrap().count(), 0);
}

#[test]
fn a_hash_is_of_the_first_bytes() {
    let scene = Scene::new();
    scene.file("file", "abcdef");
    let mut caller = Caller::default();
    let hash = Below { len: Some(3), ..ask(&scene, BelowOp::Hash, "file") };
    let reply = serve_it(&scene, &hash, &mut caller).unwrap();
    assert!(matches!(reply, FileReply::Read { bytes: 3, changed: false, .. }), "{reply:?}");
    use sha2::Digest;
    assert_eq!(caller.bytes(), sha2::Sha256::digest("abc")[..]);
}

#[test]
fn an_upload_that_is_cut_off_is_kept_only_if_asked() {
    let scene = Scene::new();
    let cut = || Caller { broken: true, ..Caller::uploading(&[b"half"]) };
    serve_it(&scene, &ask(&scene, BelowOp::Put, "small"), &mut cut()).unwrap_err();
    assert!(scene.names().is_empty());
    let large = |offset| Below { offset: Some(offset), ..ask(&scene, BelowOp::Put, "large") };
    serve_it(&scene, &large(0), &mut cut()).unwrap_err();
    let part = farshell_beneath::part_name(b"large").into_string().unwrap();
    assert_eq!(scene.names(), [part]);
    let failure = serve_it(&scene, &large(5), &mut Caller::default()).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Stale);
    serve_it(&scene, &large(4), &mut Caller::uploading(&[b" and half"])).unwrap();
    assert_eq!(scene.names(), ["large"]);
    assert_eq!(std::fs::read(scene.path("large")).unwrap(), b"half and half");
}

#[test]
fn links_directories_lists_and_removal() {
    let scene = Scene::new();
    let call = |below: Below| serve_it(&scene, &below, &mut Caller::default());
    assert_eq!(call(ask(&scene, BelowOp::MakeDir, "dir")), Ok(FileReply::Done));
    let link = Below { link: Some(ByteBuf::from("/etc")), ..ask(&scene, BelowOp::Link, "dir/link") };
    assert_eq!(call(link), Ok(FileReply::Done));
    let FileReply::Stat(stat) = call(ask(&scene, BelowOp::Stat, "dir/link")).unwrap() else { panic!() };
    assert_eq!((stat.kind, stat.link), (FileType::Symlink, Some(ByteBuf::from("/etc"))));
    assert_eq!(call(ask(&scene, BelowOp::List, "dir")), Ok(FileReply::Listed { total: 1, truncated: false }));
    assert!(matches!(call(ask(&scene, BelowOp::List, "")), Ok(FileReply::Listed { total: 1, .. })));
    let FileReply::Stat(root) = call(ask(&scene, BelowOp::Stat, "")).unwrap() else { panic!() };
    assert_eq!(root.kind, FileType::Dir);
    assert_eq!(call(ask(&scene, BelowOp::Sync, "")), Ok(FileReply::Done));
    assert_eq!(call(ask(&scene, BelowOp::Remove, "dir")), Ok(FileReply::Removed { entries: 2 }));
    assert_eq!(call(ask(&scene, BelowOp::Remove, "dir")), Ok(FileReply::Removed { entries: 0 }));
}
