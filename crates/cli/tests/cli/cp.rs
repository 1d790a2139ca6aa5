//! `farshell cp` on this machine: the environment's files are this machine's, too, so both sides can be looked at.

use crate::rig::{Said, World, fine, finish, wait_until};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A file that is large enough to be gone on with.
const LARGE: usize = 64 << 20;

fn root(world: &World) -> PathBuf {
    let root = world.work();
    std::fs::canonicalize(root).unwrap()
}

/// Path, kind and mode, time, content or link.
type Leaf = (PathBuf, String, (i64, i64), Vec<u8>);

/// Everything below a directory.
fn tree(dir: &Path) -> Vec<Leaf> {
    let mut all = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let content = match () {
                () if meta.is_dir() => {
                    dirs.push(path.clone());
                    Vec::new()
                }
                () if meta.is_symlink() => std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
                () => std::fs::read(&path).unwrap(),
            };
            let mode = if meta.is_symlink() { "link".into() } else { format!("{:o}", meta.mode()) };
            let time = (meta.mtime(), meta.mtime_nsec());
            all.push((path.strip_prefix(dir).unwrap().to_owned(), mode, time, content));
        }
    }
    all.sort();
    all
}

fn sample(dir: &Path) {
    std::fs::create_dir_all(dir.join("a/b/empty")).unwrap();
    for n in 0..200 {
        std::fs::write(dir.join(format!("a/b/{n}")), format!("file {n}\n").repeat(n)).unwrap();
    }
    std::fs::write(dir.join(OsStr::from_bytes(b"a/\xff\n:name")), "no text").unwrap();
    std::fs::write(dir.join("run"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(dir.join("run"), std::fs::Permissions::from_mode(0o751)).unwrap();
    std::fs::set_permissions(dir.join("a/b"), std::fs::Permissions::from_mode(0o750)).unwrap();
    symlink("../../etc", dir.join("a/out")).unwrap();
    symlink("b/1", dir.join("a/in")).unwrap();
    symlink(OsString::from("nowhere\n"), dir.join("a/dangling")).unwrap();
}

fn ok(said: &Said) {
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
}

#[test]
fn a_tree_is_alike_on_both_sides_and_not_copied_twice() {
    let world = World::new();
    let root = root(&world);
    sample(&root.join("src"));
    let there = root.join("there");
    ok(&world.call(&["cp", "src", &format!(":{}", there.display())]));
    assert_eq!(tree(&root.join("src")), tree(&there));
    let again = world.json(&["cp", "--json", "src", &format!(":{}", there.display())]);
    assert_eq!((again["files"].as_u64(), again["unchanged"].as_u64()), (Some(0), Some(205)), "{again}");
    assert_eq!((again["backend"].as_str(), again["failed"].as_u64()), (Some("local"), Some(0)));
    // And back, through a relative path.
    ok(&world.call(&["cp", ":there", "back"]));
    assert_eq!(tree(&root.join("src")), tree(&root.join("back")));
    // What has changed is copied, and nothing else.
    std::fs::write(there.join("a/b/7"), "changed").unwrap();
    let third = world.json(&["cp", "--json", ":there", "back"]);
    assert_eq!((third["files"].as_u64(), third["bytes"].as_u64()), (Some(1), Some(7)), "{third}");
    assert_eq!(std::fs::read(root.join("back/a/b/7")).unwrap(), b"changed");
}

#[test]
fn where_it_goes() {
    let world = World::new();
    let root = root(&world);
    std::fs::write(root.join("file"), "1").unwrap();
    std::fs::create_dir(root.join("dir")).unwrap();
    std::fs::write(root.join("dir/x"), "2").unwrap();
    std::fs::create_dir(root.join("there")).unwrap();
    ok(&world.call(&["cp", "file", ":new/name"]));
    ok(&world.call(&["cp", "file", ":there"]));
    ok(&world.call(&["cp", "dir", ":there/"]));
    ok(&world.call(&["cp", "dir", ":as/it/is"]));
    ok(&world.call(&["cp", "file", "dir", ":both/"]));
    ok(&world.call(&["cp", "dir/.", "default:all"]));
    // An environment on this machine sees the same directories.
    let itself = world.call(&["cp", ".", ":within/it"]);
    assert_eq!(itself.code, 125, "{itself:?}");
    assert!(itself.stderr.contains("into itself"), "{itself:?}");
    for (path, content) in [
        ("new/name", "1"),
        ("there/file", "1"),
        ("there/dir/x", "2"),
        ("as/it/is/x", "2"),
        ("both/file", "1"),
        ("both/dir/x", "2"),
        ("all/x", "2"),
    ] {
        assert_eq!(std::fs::read_to_string(root.join(path)).unwrap(), content, "{path}");
    }
    // A link that is named is followed.
    symlink("dir", root.join("link")).unwrap();
    symlink("file", root.join("linked")).unwrap();
    ok(&world.call(&["cp", ":link", ":linked", "back/"]));
    assert!(root.join("back/link").is_dir() && !root.join("back/link").is_symlink());
    assert_eq!(std::fs::read_to_string(root.join("back/linked")).unwrap(), "1");
}

#[test]
fn one_file_by_pipe() {
    let world = World::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    ok(&world.call_with_input(&["cp", "-", ":new/pipe"], &bytes));
    assert_eq!(std::fs::read(world.work().join("new/pipe")).unwrap(), bytes);
    std::fs::write(world.work().join("text"), "out\n").unwrap();
    assert_eq!(world.call(&["cp", ":text", "-"]), fine("out\n"));
    let missing = world.call(&["cp", ":missing", "-"]);
    assert_eq!((missing.code, missing.stdout.as_str()), (125, ""));
    assert!(missing.stderr.contains("no such file"), "{missing:?}");
}

#[test]
fn what_makes_no_sense_is_said() {
    let world = World::new();
    for (args, text) in [
        (&["a", "b"][..], "none of them is in an environment"),
        (&[":a", ":b"], "one side has to be this machine"),
        (&["x:a", "y:b"], "one side has to be this machine"),
        (&["a", "-", ":b"], "`-` stands for one file"),
        (&["no task:a", "b"], "./a:b"),
        (&["missing", ":b"], "o such file"),
    ] {
        let said = world.call(&[&["cp"], args].concat());
        assert!(said.code == 125 && said.stderr.contains(text), "{args:?}: {said:?}");
    }
    assert_eq!(world.call(&["cp", "a"]).code, 2);
}

#[test]
fn what_can_not_be_copied_is_named_and_the_rest_is_copied() {
    let world = World::new();
    let root = root(&world);
    std::fs::create_dir_all(root.join("src/dir")).unwrap();
    std::fs::write(root.join("src/a"), "a").unwrap();
    std::fs::write(root.join("src/dir/b"), "b").unwrap();
    std::fs::write(root.join("src/c"), "c").unwrap();
    let fifo = root.join("src/fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // A directory is where a file should be, and a link to elsewhere where a directory should be.
    std::fs::create_dir_all(root.join("there/a/full")).unwrap();
    std::fs::create_dir(root.join("elsewhere")).unwrap();
    symlink("../elsewhere", root.join("there/dir")).unwrap();
    let said = world.call(&["cp", "--json", "src", ":there"]);
    assert_eq!(said.code, 1, "{said:?}");
    let json = said.json();
    let counts = ["files", "skipped", "failed"].map(|name| json[name].as_u64().unwrap());
    assert_eq!(counts, [1, 1, 2], "{json}");
    for text in ["src/a: a directory is in the way", "src/dir: a symbolic link is in the way", "a named pipe"]
    {
        assert!(said.stderr.contains(text), "{text}: {}", said.stderr);
    }
    assert_eq!(std::fs::read_to_string(root.join("there/c")).unwrap(), "c");
    assert_eq!(std::fs::read_dir(root.join("elsewhere")).unwrap().count(), 0);
    // Only if asked.
    std::fs::write(root.join("there/extra"), "").unwrap();
    std::fs::remove_file(&fifo).unwrap();
    ok(&world.call(&["cp", "--delete", "src", ":there"]));
    assert_eq!(tree(&root.join("src")), tree(&root.join("there")));
    assert_eq!(std::fs::read_dir(root.join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn content_counts_if_asked() {
    let world = World::new();
    let root = root(&world);
    std::fs::create_dir(root.join("src")).unwrap();
    std::fs::write(root.join("src/x"), "one").unwrap();
    ok(&world.call(&["cp", "src", ":there"]));
    let time = std::fs::metadata(root.join("src/x")).unwrap().modified().unwrap();
    std::fs::write(root.join("there/x"), "two").unwrap();
    std::fs::File::options().write(true).open(root.join("there/x")).unwrap().set_modified(time).unwrap();
    let lazy = world.json(&["cp", "--json", "src", ":there"]);
    assert_eq!(lazy["unchanged"], 1, "{lazy}");
    let thorough = world.json(&["cp", "--json", "--checksum", "src", ":there"]);
    assert_eq!(thorough["files"], 1, "{thorough}");
    assert_eq!(std::fs::read(root.join("there/x")).unwrap(), b"one");
    // Another time is no other content.
    std::fs::File::options()
        .write(true)
        .open(root.join("there/x"))
        .unwrap()
        .set_modified(time + std::time::Duration::from_secs(9))
        .unwrap();
    let same = world.json(&["cp", "--json", "--checksum", "src", ":there"]);
    assert_eq!(same["unchanged"], 1, "{same}");
    assert_eq!(std::fs::metadata(root.join("there/x")).unwrap().modified().unwrap(), time);
}

fn part_of(dir: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(dir).ok()?;
    let mut parts = entries.flatten().filter(|e| e.file_name().as_bytes().starts_with(b".farshell-part-"));
    parts.next().and_then(|part| part.metadata().ok()).map(|meta| meta.len())
}

/// `kill -9` in the middle of a large file, in both directions; and the rest comes with the next call.
#[test]
fn a_killed_copy_goes_on_where_it_stopped() {
    let world = World::new();
    let root = root(&world);
    let bytes: Vec<u8> = (0..LARGE).map(|n| (n / 97 + n % 251) as u8).collect();
    std::fs::create_dir_all(root.join("src")).unwrap();
    std::fs::write(root.join("src/big"), &bytes).unwrap();
    // The server is there, so that killing hits the copy.
    ok(&world.call(&["run", "true"]));
    for (from, to, dir) in [("src", ":there", "there"), (":src", "back", "back")] {
        let dir = root.join(dir);
        let killed = (0..20).any(|_| {
            let mut child = world.command(&["cp", from, to]).stdout(Stdio::null()).spawn().unwrap();
            wait_until("a part", || {
                part_of(&dir).is_some_and(|size| size > 5 << 20) || dir.join("big").exists()
            });
            child.kill().unwrap();
            child.wait().unwrap();
            // One that was too fast is made again.
            let whole = dir.join("big").exists();
            if whole {
                std::fs::remove_dir_all(&dir).unwrap();
            }
            !whole
        });
        assert!(killed, "it was too fast to be killed");
        // Nobody writes any more when the server has seen the end of it.
        let size = || part_of(&dir);
        let mut before = size();
        wait_until("silence", || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let now = size();
            std::mem::replace(&mut before, now) == now
        });
        let said = finish(world.command(&["cp", "--json", from, to]).spawn().unwrap());
        ok(&said);
        let json = said.json();
        let (sent, kept) = (json["bytes"].as_u64().unwrap(), json["resumed_bytes"].as_u64().unwrap());
        assert_eq!((sent + kept, kept > 0), (LARGE as u64, true), "{json}");
        assert!(std::fs::read(dir.join("big")).unwrap() == bytes, "the bytes are the same");
        assert_eq!(part_of(&dir), None);
    }
}

/// What is there of an earlier attempt may be of another file.
#[test]
fn a_part_that_is_not_the_beginning_is_not_gone_on_with() {
    let world = World::new();
    let root = root(&world);
    let bytes = vec![7_u8; 5 << 20];
    std::fs::write(root.join("big"), &bytes).unwrap();
    std::fs::create_dir(root.join("there")).unwrap();
    let part = root.join("there").join(farshell_beneath::part_name(b"big"));
    std::fs::write(&part, vec![8_u8; 1 << 20]).unwrap();
    let json = world.json(&["cp", "--json", "big", ":there/"]);
    assert_eq!((json["bytes"].as_u64(), json["resumed_bytes"].as_u64()), (Some(5 << 20), Some(0)), "{json}");
    assert!(std::fs::read(root.join("there/big")).unwrap() == bytes);
    assert!(!part.exists());
}

/// The server is killed again and again in the middle; the copy goes on with the next one.
#[test]
fn a_copy_survives_the_server() {
    let world = World::new();
    let root = root(&world);
    std::fs::create_dir(root.join("src")).unwrap();
    for n in 0..400 {
        std::fs::write(root.join(format!("src/{n}")), vec![n as u8; 20_000]).unwrap();
    }
    ok(&world.call(&["run", "true"]));
    let child = world.command(&["cp", "--json", "src", ":there"]).spawn().unwrap();
    for files in [20, 150] {
        wait_until("some files", || {
            std::fs::read_dir(root.join("there")).is_ok_and(|dir| dir.count() > files)
        });
        world.kill_server();
    }
    let said = finish(child);
    ok(&said);
    assert_eq!(said.json()["failed"], 0);
    assert_eq!(tree(&root.join("src")), tree(&root.join("there")));
}
