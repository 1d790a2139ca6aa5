use super::*;
use crate::files::testing::{Caller, Scene, mkfifo, skipped_as_root};
use farshell_protocol::file::{self, Version};
use serde_bytes::ByteBuf;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn to(path: &str) -> Write {
    Write {
        path: ByteBuf::from(path),
        mode: None,
        set_mode: false,
        parents: false,
        create_only: false,
        expect: None,
    }
}

fn write(scene: &Scene, write: &Write, content: &str) -> Result<(file::Stat, bool), Failure> {
    let (first, second) = content.split_at(content.len() / 2);
    let mut caller = Caller::uploading(&[first.as_bytes(), second.as_bytes()]);
    match serve(&scene.context, write, &mut caller)? {
        FileReply::Written { stat, created } => Ok((stat, created)),
        other => panic!("{other:?}"),
    }
}

fn read(scene: &Scene, path: &str) -> String {
    std::fs::read_to_string(scene.path(path)).unwrap()
}

fn mode_of(scene: &Scene, path: &str) -> u32 {
    std::fs::metadata(scene.path(path)).unwrap().mode() & 0o7777
}

fn set_mode(scene: &Scene, path: &str, mode: u32) {
    std::fs::set_permissions(scene.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
}

fn version_of(scene: &Scene, path: &str) -> Version {
    version(&rustix::fs::lstat(scene.path(path)).unwrap())
}

#[test]
fn a_new_file_and_its_replacement() {
    let scene = Scene::new();
    let (stat, created) = write(&scene, &to("file"), "one").unwrap();
    assert!(created);
    assert_eq!(stat.path, scene.path("file").as_os_str().as_bytes());
    assert_eq!((stat.version, stat.size), (version_of(&scene, "file"), 3));
    let (stat, created) = write(&scene, &to("file"), "").unwrap();
    assert!(!created);
    assert_eq!((stat.version, stat.size), (version_of(&scene, "file"), 0));
    assert_eq!(scene.names(), ["file"]);
}

#[test]
fn modes_of_new_and_old_files() {
    let scene = Scene::new();
    write(&scene, &to("plain"), "").unwrap();
    std::fs::write(scene.path("reference"), "").unwrap();
    assert_eq!(mode_of(&scene, "plain"), mode_of(&scene, "reference"));
    assert_eq!(0o666 & !umask(), mode_of(&scene, "reference"));

    write(&scene, &Write { mode: Some(0o755), ..to("script") }, "").unwrap();
    assert_eq!(mode_of(&scene, "script"), 0o755);
    write(&scene, &Write { mode: Some(0o600), ..to("script") }, "").unwrap();
    assert_eq!(mode_of(&scene, "script"), 0o755);
    write(&scene, &Write { mode: Some(0o4711), set_mode: true, ..to("script") }, "").unwrap();
    assert_eq!(mode_of(&scene, "script"), 0o4711);
    write(&scene, &to("script"), "").unwrap();
    assert_eq!(mode_of(&scene, "script"), 0o4711);
}

#[test]
fn the_owner_is_kept_where_that_is_allowed() {
    if !rustix::process::geteuid().is_root() {
        println!("the_owner_is_kept_where_that_is_allowed: skipped, because only uid 0 may give files away");
        return;
    }
    let scene = Scene::new();
    let path = scene.file("file", "");
    std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    let (stat, _) = write(&scene, &to("file"), "new").unwrap();
    assert_eq!((stat.uid, stat.gid), (1234, 4321));
}

#[test]
fn links_stay_links() {
    let scene = Scene::new();
    scene.file("dir/file", "old");
    symlink("dir/file", scene.path("second")).unwrap();
    symlink(scene.path("second"), scene.path("first")).unwrap();
    let (stat, created) = write(&scene, &to("first"), "new").unwrap();
    assert!(!created);
    assert_eq!(stat.path, scene.path("first").as_os_str().as_bytes());
    assert_eq!(read(&scene, "dir/file"), "new");
    assert!(scene.path("first").is_symlink() && scene.path("second").is_symlink());

    // A relative link below a linked directory starts at the directory itself.
    std::fs::create_dir(scene.path("dir/sub")).unwrap();
    symlink("dir/sub", scene.path("jump")).unwrap();
    symlink("../other", scene.path("dir/sub/up")).unwrap();
    write(&scene, &to("jump/up"), "up").unwrap();
    assert_eq!(read(&scene, "dir/other"), "up");
}

#[test]
fn a_dangling_link_makes_its_target() {
    let scene = Scene::new();
    symlink("target", scene.path("link")).unwrap();
    assert!(write(&scene, &to("link"), "new").unwrap().1);
    assert_eq!(read(&scene, "target"), "new");
    assert!(scene.path("link").is_symlink());

    symlink("missing/target", scene.path("far")).unwrap();
    assert_eq!(write(&scene, &to("far"), "").unwrap_err().kind, ErrorKind::NotFound);
    write(&scene, &Write { parents: true, ..to("far") }, "made").unwrap();
    assert_eq!(read(&scene, "missing/target"), "made");
    // A name that starts with a tilde is a name when a link says it.
    symlink("~", scene.path("tilde")).unwrap();
    write(&scene, &to("tilde"), "").unwrap();
    assert!(scene.path("~").is_file());
}

#[test]
fn a_circle_of_links_is_invalid() {
    let scene = Scene::new();
    symlink("b", scene.path("a")).unwrap();
    symlink("a", scene.path("b")).unwrap();
    let failure = write(&scene, &to("a"), "").unwrap_err();
    assert_eq!((failure.kind, failure.errno), (ErrorKind::Invalid, Some(Errno::LOOP.raw_os_error())));
}

#[test]
fn what_is_no_file_is_not_replaced() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("dir")).unwrap();
    symlink("dir", scene.path("link")).unwrap();
    mkfifo(&scene.path("fifo"));
    for path in ["dir", "dir/", "dir/.", "link", "new/", "fifo", "/dev/null", "/", "."] {
        assert_eq!(write(&scene, &to(path), "x").unwrap_err().kind, ErrorKind::Invalid, "{path}");
    }
    assert_eq!(scene.names(), ["dir", "fifo", "link"]);
}

#[test]
fn create_only_never_replaces() {
    let scene = Scene::new();
    let create = |path| Write { create_only: true, ..to(path) };
    assert!(write(&scene, &create("file"), "one").unwrap().1);
    assert_eq!(write(&scene, &create("file"), "two").unwrap_err().kind, ErrorKind::AlreadyExists);
    symlink("nowhere", scene.path("dangling")).unwrap();
    assert_eq!(write(&scene, &create("dangling"), "").unwrap_err().kind, ErrorKind::AlreadyExists);

    // Somebody else is faster, at the last moment.
    let path = scene.path("race");
    let mut caller = Caller::uploading(&[b"mine"]);
    caller.at_end = Some(Box::new(move || std::fs::write(path, "theirs").unwrap()));
    let failure = serve(&scene.context, &create("race"), &mut caller).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::AlreadyExists);
    assert_eq!(read(&scene, "race"), "theirs");
    assert_eq!(scene.names(), ["dangling", "file", "race"]);
}

#[test]
fn a_stale_version_changes_nothing() {
    let scene = Scene::new();
    let path = scene.file("file", "one");
    let expecting = |version| Write { expect: Some(version), ..to("file") };
    let seen = version_of(&scene, "file");
    let (stat, _) = write(&scene, &expecting(seen), "two").unwrap();
    assert_eq!(write(&scene, &expecting(seen), "three").unwrap_err().kind, ErrorKind::Stale);
    write(&scene, &expecting(stat.version), "three").unwrap();

    let seen = version_of(&scene, "file");
    let mut caller = Caller::uploading(&[b"mine"]);
    caller.at_end = Some(Box::new(move || std::fs::write(path, "theirs").unwrap()));
    let failure = serve(&scene.context, &expecting(seen), &mut caller).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Stale);
    assert_eq!(read(&scene, "file"), "theirs");

    std::fs::remove_file(scene.path("file")).unwrap();
    assert_eq!(write(&scene, &expecting(seen), "x").unwrap_err().kind, ErrorKind::Stale);
    assert!(scene.names().is_empty());
}

#[test]
fn a_caller_that_goes_leaves_everything_as_it_was() {
    let scene = Scene::new();
    scene.file("file", "old");
    for path in ["file", "new", "made/on/the/way"] {
        let mut caller = Caller::uploading(&[b"half of"]);
        caller.broken = true;
        let cwd = scene.context.cwd.clone();
        caller.at_end = Some(Box::new(move || {
            // At this moment the temporary exists, and a sweep would know it.
            let found = walk(&cwd).into_iter().any(|name| crate::files::is_leftover(name.as_bytes()));
            assert!(found);
        }));
        serve(&scene.context, &Write { parents: true, ..to(path) }, &mut caller).unwrap_err();
        assert_eq!(scene.names(), ["file"]);
    }
    assert_eq!(read(&scene, "file"), "old");
}

fn walk(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            names.extend(walk(&entry.path()));
        }
    }
    names
}

#[test]
fn parents_are_made_on_request() {
    let scene = Scene::new();
    assert_eq!(write(&scene, &to("a/b/c"), "x").unwrap_err().kind, ErrorKind::NotFound);
    write(&scene, &Write { parents: true, ..to("a/b/c") }, "x").unwrap();
    assert_eq!(read(&scene, "a/b/c"), "x");
    scene.file("file", "");
    let failure = write(&scene, &Write { parents: true, ..to("file/x") }, "x").unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Invalid);
}

#[test]
fn a_reader_of_the_old_file_keeps_it() {
    let scene = Scene::new();
    let path = scene.file("file", "old");
    let mut reader = File::open(path).unwrap();
    write(&scene, &to("file"), "new").unwrap();
    let mut content = String::new();
    std::io::Read::read_to_string(&mut reader, &mut content).unwrap();
    assert_eq!(content, "old");
}

#[test]
fn a_full_disk_changes_nothing() {
    let Some(disk) = small_disk() else {
        println!("a_full_disk_changes_nothing: skipped, because no small file system can be mounted here");
        return;
    };
    let scene = Scene::under(disk.path());
    scene.file("file", "old");
    let failure = write(&scene, &to("file"), &"x".repeat(1 << 20)).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Exhausted);
    assert_eq!(read(&scene, "file"), "old");
    assert_eq!(scene.names(), ["file"]);
}

/// A tmpfs of 256 KiB, gone at the end of the test.
struct Disk(tempfile::TempDir);

impl Disk {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn small_disk() -> Option<Disk> {
    let dir = tempfile::tempdir().unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
        .arg(dir.path())
        .stderr(std::process::Stdio::null())
        .status();
    mount.is_ok_and(|status| status.success()).then(|| Disk(dir))
}

#[test]
fn a_directory_that_may_not_be_written() {
    if skipped_as_root("a_directory_that_may_not_be_written") {
        return;
    }
    let scene = Scene::new();
    scene.file("dir/file", "old");
    set_mode(&scene, "dir", 0o500);
    let failure = write(&scene, &to("dir/file"), "new").unwrap_err();
    assert_eq!(failure.kind, ErrorKind::PermissionDenied);
    assert!(failure.message.contains("directory is not writable"), "{failure}");
    set_mode(&scene, "dir", 0o700);
    assert_eq!(read(&scene, "dir/file"), "old");
}
