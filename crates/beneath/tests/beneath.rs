//! Nothing outside of the directory is reached, whatever is in it.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

use farshell_beneath::{Root, is_ours, mtime_ns, part_name, temporary_name};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

struct Scene {
    dir: tempfile::TempDir,
    root: Root,
}

impl Scene {
    /// A directory `in` to work in, and beside it `out` with a file `secret`.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        std::fs::write(dir.path().join("out/secret"), "secret").unwrap();
        let root = Root::open(&dir.path().join("in")).unwrap();
        Self { dir, root }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Nothing has changed beside the directory.
    fn untouched(&self) {
        assert_eq!(names(&self.path("out")), ["secret"]);
        assert_eq!(std::fs::read_to_string(self.path("out/secret")).unwrap(), "secret");
        assert_eq!(names(self.dir.path()), ["in", "out"]);
    }
}

fn names(dir: &Path) -> Vec<String> {
    let list = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        list.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn put(root: &Root, path: &str, content: &str) -> Result<(), Errno> {
    let mut put = root.spot(path.as_bytes())?.put()?;
    put.write(content.as_bytes()).unwrap();
    put.finish(0o644, Some(1_000_000_007)).map(drop)
}

#[test]
fn paths_that_lead_out_are_no_paths() {
    let scene = Scene::new();
    for path in
        ["", "/", "/etc/passwd", "..", "../out/x", "a/../../out/x", ".", "a/.", "./a", "a//b", "a/", "a\0b"]
    {
        assert_eq!(scene.root.spot(path.as_bytes()).unwrap_err(), Errno::INVAL, "{path:?}");
    }
    assert_eq!(scene.root.dir(b"..").unwrap_err(), Errno::INVAL);
    scene.untouched();
}

#[test]
fn no_link_is_followed_on_the_way_or_at_the_end() {
    let scene = Scene::new();
    symlink("../out", scene.path("in/dir")).unwrap();
    symlink(scene.path("out/secret"), scene.path("in/file")).unwrap();
    for path in ["dir/new", "dir/secret", "file/x"] {
        assert_eq!(scene.root.spot(path.as_bytes()).unwrap_err(), Errno::NOTDIR, "{path}");
    }
    let file = scene.root.spot(b"file").unwrap();
    assert_eq!(file.open().unwrap_err(), Errno::LOOP);
    assert_eq!(scene.root.dir(b"dir").unwrap_err(), Errno::NOTDIR);
    assert_eq!(scene.root.set(b"file", Some(0o777), None).unwrap_err(), Errno::LOOP);
    assert_eq!(scene.root.spot(b"dir").unwrap().make_dir(), Err(Errno::NOTDIR));
    // A file takes the place of the link, not of what it leads to.
    put(&scene.root, "file", "mine").unwrap();
    assert!(!scene.path("in/file").is_symlink());
    scene.root.spot(b"dir").unwrap().remove().unwrap();
    scene.untouched();
}

#[test]
fn a_file_appears_whole_with_its_mode_and_time() {
    let scene = Scene::new();
    let mut begun = scene.root.spot(b"file").unwrap().put().unwrap();
    begun.write(b"half").unwrap();
    let there = names(&scene.path("in"));
    assert!(there.len() == 1 && is_ours(there[0].as_bytes()), "{there:?}");
    drop(begun);
    assert!(names(&scene.path("in")).is_empty());
    let mut put = scene.root.spot(b"file").unwrap().put().unwrap();
    put.write(b"whole").unwrap();
    let stat = put.finish(0o6751, Some(-1)).unwrap();
    let meta = std::fs::metadata(scene.path("in/file")).unwrap();
    assert_eq!((meta.ino(), meta.mode() & 0o7777, mtime_ns(&stat)), (stat.st_ino, 0o751, -1));
}

#[test]
fn a_part_is_gone_on_with_by_one_at_a_time() {
    let scene = Scene::new();
    let spot = || scene.root.spot(b"big").unwrap();
    let mut first = spot().go_on(0).unwrap();
    first.write(b"0123456789").unwrap();
    assert_eq!(spot().go_on(0).unwrap_err(), Errno::AGAIN);
    drop(first);
    assert_eq!(names(&scene.path("in")), [part_name(b"big").to_str().unwrap()]);
    assert_eq!(spot().go_on(11).unwrap_err(), Errno::STALE);
    // What is beyond the offset was not compared, and goes.
    let mut second = spot().go_on(4).unwrap();
    second.write(b"abc").unwrap();
    second.finish(0o600, None).unwrap();
    assert_eq!(names(&scene.path("in")), ["big"]);
    assert_eq!(std::fs::read(scene.path("in/big")).unwrap(), b"0123abc");
}

#[test]
fn a_part_that_somebody_else_has_laid_out_is_not_used() {
    let scene = Scene::new();
    let part = scene.path("in").join(part_name(b"big"));
    let go_on = || scene.root.spot(b"big").unwrap().go_on(0).unwrap_err();
    symlink("../out/secret", &part).unwrap();
    assert_eq!(go_on(), Errno::INVAL);
    std::fs::remove_file(&part).unwrap();
    // A second name of a file that is elsewhere.
    std::fs::hard_link(scene.path("out/secret"), &part).unwrap();
    assert_eq!(go_on(), Errno::INVAL);
    std::fs::remove_file(&part).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &part, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    assert_eq!(go_on(), Errno::INVAL);
    scene.untouched();
}

#[test]
fn what_is_special_is_not_opened() {
    let scene = Scene::new();
    let fifo = scene.path("in/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    std::fs::create_dir(scene.path("in/dir")).unwrap();
    assert_eq!(scene.root.spot(b"fifo").unwrap().open().unwrap_err(), Errno::INVAL);
    assert_eq!(scene.root.spot(b"dir").unwrap().open().unwrap_err(), Errno::ISDIR);
    assert_eq!(scene.root.set(b"fifo", Some(0o600), None).unwrap_err(), Errno::INVAL);
    assert_eq!(put(&scene.root, "dir", "x").unwrap_err(), Errno::ISDIR);
    assert_eq!(names(&scene.path("in")), ["dir", "fifo"], "nothing unfinished stays");
}

#[test]
fn links_directories_and_removal() {
    let scene = Scene::new();
    let spot = |path: &str| scene.root.spot(path.as_bytes()).unwrap();
    assert_eq!(spot("a").make_dir(), Ok(true));
    assert_eq!(spot("a").make_dir(), Ok(false));
    spot("a/link").link(b"../../out", Some(5)).unwrap();
    spot("a/link").link(b"\xff", None).unwrap();
    assert_eq!(std::fs::read_link(scene.path("in/a/link")).unwrap().as_os_str().as_bytes(), b"\xff");
    assert_eq!(spot("a").link(b"x", None), Err(Errno::ISDIR));
    scene.root.set(b"a", Some(0o500), Some(1_000_000_000)).unwrap();
    let meta = std::fs::metadata(scene.path("in/a")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.mtime()), (0o500, 1));
    std::fs::set_permissions(scene.path("in/a"), std::fs::Permissions::from_mode(0o700)).unwrap();
    symlink("../../out", scene.path("in/a/out")).unwrap();
    spot("a").remove().unwrap();
    spot("a").remove().unwrap();
    assert!(names(&scene.path("in")).is_empty());
    scene.untouched();
}

/// The one who has the directory swaps it for a link again and again while files are written into it.
#[test]
fn a_directory_that_is_swapped_for_a_link_leads_nowhere() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("in/dir")).unwrap();
    symlink("../out", scene.path("in/link")).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (dir, link) = (scene.path("in/dir"), scene.path("in/link"));
            while !over.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &dir, rustix::fs::CWD, &link, exchange).unwrap();
            }
        });
        let mut ends = [0, 0];
        for n in 0..20_000 {
            match put(&scene.root, &format!("dir/{}", n % 10), "x") {
                Ok(()) => ends[0] += 1,
                Err(Errno::NOTDIR) => ends[1] += 1,
                Err(error) => panic!("{error}"),
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(|end| *end > 0), "both were met: {ends:?}");
    });
    scene.untouched();
}

#[test]
fn our_names_are_known() {
    assert!(is_ours(temporary_name().unwrap().as_bytes()));
    assert!(is_ours(part_name(b"x").as_bytes()));
    for other in
        [&b".farshell-part-"[..], b".farshell-tmp-mine", b"farshell-part-0123456789abcdef01234567", b""]
    {
        assert!(!is_ours(other));
    }
}
