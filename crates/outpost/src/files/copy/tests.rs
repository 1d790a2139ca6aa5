use super::*;
use crate::files::testing::{Caller, Scene, mkfifo};
use farshell_protocol::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn copy(scene: &Scene, from: &str, to: &str, replace: bool) -> Result<u64, Failure> {
    match serve_copy(&scene.context, from.as_bytes(), to.as_bytes(), replace, &mut Caller::default())? {
        FileReply::Copied { bytes } => Ok(bytes),
        other => panic!("{other:?}"),
    }
}

fn move_it(scene: &Scene, from: &str, to: &str, replace: bool) -> Result<(), Failure> {
    let reply = serve_move(&scene.context, from.as_bytes(), to.as_bytes(), replace, &mut Caller::default())?;
    assert_eq!(reply, FileReply::Done);
    Ok(())
}

fn read(scene: &Scene, path: &str) -> String {
    std::fs::read_to_string(scene.path(path)).unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_file_with_its_mode() {
    let scene = Scene::new();
    set_mode(&scene.file("from", "content"), 0o4751);
    assert_eq!(copy(&scene, "from", "to", false), Ok(7));
    assert_eq!((read(&scene, "to").as_str(), mode_of(&scene.path("to"))), ("content", 0o751));
    assert_eq!(copy(&scene, "from", "to", false).unwrap_err().kind, ErrorKind::AlreadyExists);
    scene.file("from", "new");
    assert_eq!(copy(&scene, "from", "to", true), Ok(3));
    assert_eq!(read(&scene, "to"), "new");

    // A link is followed at the source; at the target it is what is replaced.
    symlink("from", scene.path("link")).unwrap();
    symlink("to", scene.path("other")).unwrap();
    copy(&scene, "link", "other", true).unwrap();
    assert!(!scene.path("other").is_symlink());
    assert_eq!(scene.names(), ["from", "link", "other", "to"]);
}

#[test]
fn what_can_not_be_copied_leaves_nothing() {
    let scene = Scene::new();
    scene.file("file", "");
    scene.file("dir/sub/file", "");
    mkfifo(&scene.path("dir/sub/fifo"));
    symlink("dir", scene.path("link")).unwrap();
    std::fs::hard_link(scene.path("file"), scene.path("hard")).unwrap();
    for (from, to, kind, word) in [
        ("missing", "to", ErrorKind::NotFound, "missing"),
        ("file", "missing/to", ErrorKind::NotFound, "missing"),
        ("file", "to/", ErrorKind::Invalid, "directory"),
        ("file/", "to", ErrorKind::Invalid, "directory"),
        ("file", "dir", ErrorKind::Invalid, "directory"),
        ("dir", "file", ErrorKind::Invalid, "directory"),
        ("file", "file", ErrorKind::Invalid, "same file"),
        ("file", "hard", ErrorKind::Invalid, "same file"),
        ("dir/sub/fifo", "to", ErrorKind::Invalid, "named pipe"),
        ("dir", "to", ErrorKind::Invalid, "sub/fifo"),
        ("dir", "dir", ErrorKind::Invalid, "inside"),
        ("dir", "dir/new", ErrorKind::Invalid, "inside"),
        ("dir", "link/sub/new", ErrorKind::Invalid, "inside"),
        ("link", "dir/sub/new", ErrorKind::Invalid, "inside"),
        (".", "dir/new", ErrorKind::Invalid, "inside"),
        ("/", "dir/new", ErrorKind::Invalid, "inside"),
        ("file", ".", ErrorKind::Invalid, "`.`"),
        ("file", "/", ErrorKind::Invalid, "root"),
    ] {
        let failure = copy(&scene, from, to, true).unwrap_err();
        assert_eq!(failure.kind, kind, "{from} {to}: {failure}");
        assert!(failure.message.contains(word), "{from} {to}: {failure}");
    }
    assert_eq!(scene.names(), ["dir", "file", "hard", "link"]);
}

fn make_tree(scene: &Scene) {
    scene.file("tree/a/file", "12345");
    scene.file("tree/a/b/deep", "123");
    std::fs::write(scene.path("tree").join(OsStr::from_bytes(b"\xfe\n")), "1").unwrap();
    symlink("../outside", scene.path("tree/link")).unwrap();
    symlink("/etc", scene.path("tree/dir-link")).unwrap();
    set_mode(&scene.path("tree/a/file"), 0o640);
    set_mode(&scene.path("tree/a/b"), 0o550);
}

fn check_tree(root: &Path) {
    assert_eq!(std::fs::read(root.join("a/file")).unwrap(), b"12345");
    assert_eq!(std::fs::read(root.join("a/b/deep")).unwrap(), b"123");
    assert_eq!(std::fs::read(root.join(OsStr::from_bytes(b"\xfe\n"))).unwrap(), b"1");
    assert_eq!(std::fs::read_link(root.join("link")).unwrap(), Path::new("../outside"));
    assert_eq!(std::fs::read_link(root.join("dir-link")).unwrap(), Path::new("/etc"));
    assert_eq!((mode_of(&root.join("a/file")), mode_of(&root.join("a/b"))), (0o640, 0o550));
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 4);
}

#[test]
fn a_tree_with_its_modes_and_links() {
    let scene = Scene::new();
    make_tree(&scene);
    assert_eq!(copy(&scene, "tree", "copy", false), Ok(9));
    check_tree(&scene.path("copy"));
    check_tree(&scene.path("tree"));
    std::fs::create_dir(scene.path("empty")).unwrap();
    copy(&scene, "tree/", "empty/", true).unwrap();
    check_tree(&scene.path("empty"));
    // A directory with something in it is not replaced, and not mixed into either.
    assert_eq!(copy(&scene, "tree", "copy", true).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(scene.names(), ["copy", "empty", "tree"]);
}

#[test]
fn a_cancelled_copy_leaves_nothing() {
    let scene = Scene::new();
    make_tree(&scene);
    let mut caller = Caller { cancelled: true, ..Caller::default() };
    serve_copy(&scene.context, b"tree", b"copy", false, &mut caller).unwrap_err();
    assert_eq!(scene.names(), ["tree"]);
}

#[test]
fn moves_within_a_file_system() {
    let scene = Scene::new();
    scene.file("a", "a");
    scene.file("b", "b");
    assert_eq!(move_it(&scene, "a", "b", false).unwrap_err().kind, ErrorKind::AlreadyExists);
    move_it(&scene, "a", "c", false).unwrap();
    move_it(&scene, "c", "b", true).unwrap();
    assert_eq!(read(&scene, "b"), "a");
    move_it(&scene, "b", "b", false).unwrap();
    assert_eq!(scene.names(), ["b"]);

    // Two names of one file become one.
    std::fs::hard_link(scene.path("b"), scene.path("hard")).unwrap();
    move_it(&scene, "hard", "b", true).unwrap();
    assert_eq!(scene.names(), ["b"]);

    // A link is moved as a link.
    symlink("b", scene.path("link")).unwrap();
    move_it(&scene, "link", "moved", false).unwrap();
    assert!(scene.path("moved").is_symlink());

    make_tree(&scene);
    move_it(&scene, "tree/", "there", false).unwrap();
    check_tree(&scene.path("there"));
    for (from, to, kind) in [
        ("there", "there/x", ErrorKind::Invalid),
        ("there", "b", ErrorKind::Invalid),
        ("b", "there", ErrorKind::Invalid),
        ("b/", "new", ErrorKind::Invalid),
        ("missing", "new", ErrorKind::NotFound),
        ("b", "missing/new", ErrorKind::NotFound),
        ("there/..", "new", ErrorKind::Invalid),
        ("~", "new", ErrorKind::Invalid),
    ] {
        let failure = move_it(&scene, from, to, true).unwrap_err();
        assert_eq!(failure.kind, kind, "{from} {to}: {failure}");
    }
}

#[test]
fn moves_across_file_systems() {
    let scene = Scene::new();
    let Some(other) = other_file_system(&scene) else {
        println!("moves_across_file_systems: skipped, because there is no second file system to write to");
        return;
    };
    let there = |name: &str| other.path(name).to_str().unwrap().to_owned();
    let path = scene.file("file", "content");
    set_mode(&path, 0o640);
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    move_it(&scene, "file", &there("file"), false).unwrap();
    let moved = std::fs::metadata(other.path("file")).unwrap();
    assert_eq!((moved.mode() & 0o7777, moved.modified().unwrap(), moved.len()), (0o640, time, 7));

    scene.file("file", "second");
    let failure = move_it(&scene, "file", &there("file"), false).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::AlreadyExists);
    move_it(&scene, "file", &there("file"), true).unwrap();
    assert_eq!(std::fs::read(other.path("file")).unwrap(), b"second");

    symlink("file", scene.path("link")).unwrap();
    move_it(&scene, "link", &there("link"), false).unwrap();
    assert!(other.path("link").is_symlink());

    make_tree(&scene);
    move_it(&scene, "tree", &there("tree"), false).unwrap();
    check_tree(&other.path("tree"));
    assert!(scene.names().is_empty());

    // One bad file, and the whole tree stays where it was.
    mkfifo(&other.path("tree/a/fifo"));
    let failure = move_it(&scene, &there("tree"), "back", false).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Invalid);
    assert!(scene.names().is_empty() && other.path("tree/a/file").exists());
    set_mode(&other.path("tree/a/b"), 0o750);
}

fn other_file_system(scene: &Scene) -> Option<Scene> {
    let here = std::fs::metadata(&scene.context.cwd).unwrap().dev();
    let other = Path::new("/dev/shm");
    std::fs::metadata(other).is_ok_and(|metadata| metadata.dev() != here).then(|| Scene::under(other))
}
