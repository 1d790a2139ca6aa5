use super::*;
use crate::files::testing::{Caller, Scene, mkfifo, skipped_as_root};
use farshell_protocol::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

const RECURSIVE: Removal = Removal { recursive: true, missing_ok: false };
const PLAIN: Removal = Removal { recursive: false, missing_ok: false };

fn remove(scene: &Scene, path: &str, how: Removal) -> Result<u64, Failure> {
    match super::remove(&scene.context, path.as_bytes(), how, &mut Caller::default())? {
        FileReply::Removed { entries } => Ok(entries),
        other => panic!("{other:?}"),
    }
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn directories_with_and_without_parents() {
    let scene = Scene::new();
    let make = |path: &str, parents, mode| make_dir(&scene.context, path.as_bytes(), parents, mode);
    make("one", false, None).unwrap();
    assert_eq!(make("one", false, None).unwrap_err().kind, ErrorKind::AlreadyExists);
    make("one", true, Some(0o700)).unwrap();
    assert_eq!(make("a/b", false, None).unwrap_err().kind, ErrorKind::NotFound);
    make("a/b/c/", true, Some(0o1777)).unwrap();
    assert_eq!(mode_of(&scene.path("a/b/c")), 0o1777);
    assert_eq!(mode_of(&scene.path("a/b")), mode_of(&scene.path("one")));
    scene.file("file", "");
    assert_eq!(make("file", true, None).unwrap_err().kind, ErrorKind::AlreadyExists);
    assert_eq!(make("file/x", true, None).unwrap_err().kind, ErrorKind::Invalid);
    symlink("nowhere/at/all", scene.path("dangling")).unwrap();
    make("dangling/x", true, None).unwrap_err();
    symlink("a", scene.path("link")).unwrap();
    make("link/new", true, None).unwrap();
    assert!(scene.path("a/new").is_dir());
}

#[test]
fn files_links_and_what_is_not_there() {
    let scene = Scene::new();
    scene.file("file", "");
    scene.file("target/kept", "");
    symlink("target", scene.path("link")).unwrap();
    mkfifo(&scene.path("fifo"));
    for path in ["file", "link", "fifo"] {
        assert_eq!(remove(&scene, path, RECURSIVE), Ok(1));
    }
    assert_eq!(scene.names(), ["target"]);
    assert!(scene.path("target/kept").exists());
    let failure = remove(&scene, "target", PLAIN).unwrap_err();
    assert_eq!((failure.kind, failure.errno), (ErrorKind::Invalid, Some(39)));

    assert_eq!(remove(&scene, "missing", RECURSIVE).unwrap_err().kind, ErrorKind::NotFound);
    let missing_ok = Removal { recursive: false, missing_ok: true };
    for path in ["missing", "missing/x", "missing/../x", "target/kept/x"] {
        assert_eq!(remove(&scene, path, missing_ok), Ok(0), "{path}");
    }
    std::fs::remove_file(scene.path("target/kept")).unwrap();
    assert_eq!(remove(&scene, "target/", PLAIN), Ok(1));
}

#[test]
fn links_in_a_tree_are_not_followed() {
    let scene = Scene::new();
    scene.file("outside/precious", "kept");
    scene.file("tree/a/b/file", "");
    symlink(scene.path("outside"), scene.path("tree/a/dir-link")).unwrap();
    symlink(scene.path("outside/precious"), scene.path("tree/file-link")).unwrap();
    symlink("..", scene.path("tree/a/b/up")).unwrap();
    assert_eq!(remove(&scene, "tree", RECURSIVE), Ok(7));
    assert_eq!(scene.names(), ["outside"]);
    assert!(scene.path("outside/precious").exists());

    // With a slash the kernel would follow; we refuse.
    symlink("outside", scene.path("link")).unwrap();
    assert_eq!(remove(&scene, "link/", RECURSIVE).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn a_directory_swapped_for_a_link_while_the_tree_is_removed() {
    let scene = Scene::new();
    for n in 0..40 {
        scene.file(&format!("outside/{n}"), "kept");
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Whenever there is such a directory, a link to the outside takes its place.
            let link = scene.path("swap");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = symlink(scene.path("outside"), &link);
                for n in 0..20 {
                    let victim = scene.path(&format!("tree/{n}"));
                    let _ = std::fs::rename(&victim, scene.path("aside"));
                    let _ = std::fs::rename(&link, &victim);
                    let _ = std::fs::remove_dir_all(scene.path("aside"));
                }
            }
        });
        for _ in 0..50 {
            for n in 0..20 {
                let _ = std::fs::create_dir_all(scene.path(&format!("tree/{n}/sub")));
            }
            let _ = remove(&scene, "tree", RECURSIVE);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!((0..40).all(|n| scene.path(&format!("outside/{n}")).exists()));
}

#[test]
fn roots_homes_and_dots_are_refused() {
    let scene = Scene::new();
    scene.file("dir/file", "");
    std::fs::write(scene.context.home.join("file"), "").unwrap();
    symlink(&scene.context.home, scene.path("to-home")).unwrap();
    let parent = scene.context.home.parent().unwrap().to_str().unwrap().to_owned();
    for path in [
        "/", "//", "~", "~/", "~/.", ".", "..", "dir/.", "dir/..", "dir/../", "", "../home", &parent,
        "/tmp/..",
    ] {
        let failure = remove(&scene, path, RECURSIVE).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::Invalid, "{path:?}: {failure}");
    }
    assert!(scene.context.home.join("file").exists() && scene.path("dir/file").exists());
    // The link to it is only a link.
    assert_eq!(remove(&scene, "to-home", RECURSIVE), Ok(1));
}

#[test]
fn no_tree_is_too_deep() {
    let scene = Scene::new();
    let mut dir = rustix::fs::open(&scene.context.cwd, OFlags::PATH, Mode::empty()).unwrap();
    let depth = 3000;
    for _ in 0..depth {
        rustix::fs::mkdirat(&dir, "a-name-that-makes-paths-long", Mode::from_raw_mode(0o700)).unwrap();
        rustix::fs::mkdirat(&dir, "beside", Mode::from_raw_mode(0o700)).unwrap();
        dir = rustix::fs::openat(&dir, "a-name-that-makes-paths-long", OFlags::PATH, Mode::empty()).unwrap();
    }
    drop(dir);
    assert_eq!(remove(&scene, "a-name-that-makes-paths-long", RECURSIVE), Ok(2 * depth - 1));
    assert_eq!(scene.names(), ["beside"]);
}

#[test]
fn more_entries_than_are_held_at_once() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("many")).unwrap();
    for n in 0..BATCH * 2 + 10 {
        std::fs::File::create(scene.path(&format!("many/{n}"))).unwrap();
    }
    assert_eq!(remove(&scene, "many", RECURSIVE), Ok(BATCH as u64 * 2 + 11));
}

#[test]
fn a_cancelled_removal_stops() {
    let scene = Scene::new();
    scene.file("tree/file", "");
    let mut caller = Caller { cancelled: true, ..Caller::default() };
    super::remove(&scene.context, b"tree", RECURSIVE, &mut caller).unwrap_err();
    assert!(scene.path("tree/file").exists());
}

#[test]
fn a_tree_that_may_not_be_changed() {
    if skipped_as_root("a_tree_that_may_not_be_changed") {
        return;
    }
    let scene = Scene::new();
    scene.file("tree/dir/file", "");
    std::fs::set_permissions(scene.path("tree/dir"), std::fs::Permissions::from_mode(0o500)).unwrap();
    let failure = remove(&scene, "tree", RECURSIVE).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::PermissionDenied);
    assert!(failure.message.contains("tree/dir/file"), "{failure}");
    std::fs::set_permissions(scene.path("tree/dir"), std::fs::Permissions::from_mode(0o700)).unwrap();
}
