//! Disks that are full or read-only.

use crate::common::*;
use farshell_store::{Kind, Store};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// A file system of its own, as small as needed.
struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    /// `None`, said, where this user can't have one.
    fn new(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        if !root(dir.path()) {
            println!("skipped: a file system of one's own needs root");
            return None;
        }
        if !mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], dir.path()) {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "root can't mount a tmpfs");
            println!("skipped: root can't mount a tmpfs here");
            return None;
        }
        Some(Self { dir })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Fills what room is left but `bytes`.
    fn fill(&self, bytes: u64) {
        let path = self.path().join("ballast");
        let mut size = 64 * 1024 * 1024;
        let mut written = 0;
        let mut file = fs::File::create(&path).unwrap();
        while size > 0 {
            match std::io::Write::write(&mut file, &vec![0; size]) {
                Ok(n) if n > 0 => written += n as u64,
                _ => size /= 2,
            }
        }
        file.set_len(written.saturating_sub(bytes)).unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.path().join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(self.path()).status();
        if !std::thread::panicking() {
            assert!(done.unwrap().success());
        }
    }
}

fn root(dir: &Path) -> bool {
    dir.metadata().unwrap().uid() == 0
}

fn mount(arguments: &[&str], on: &Path) -> bool {
    Command::new("mount").args(arguments).arg(on).status().is_ok_and(|status| status.success())
}

/// Adds events until there is no room left for one more.
async fn until_full(store: &Store) {
    let before = store.last_seq();
    let error = loop {
        if let Err(error) = store.append(note(&"x".repeat(1000))).await {
            break error;
        }
    };
    assert_eq!(error.kind, Kind::Full);
    assert_eq!(
        error.to_string(),
        "recording an event: no room on the disk\nhint: make room on the disk; what was recorded before is unharmed, \
         and it goes on by itself"
    );
    assert!(store.last_seq() > before);
}

#[tokio::test]
async fn a_full_disk_costs_nothing_that_was_there() {
    let Some(disk) = Disk::new("2m") else { return };
    let store = open(disk.path()).await;
    store.insert_process(process("p", "t"), None).await.unwrap();
    disk.fill(200 * 1024);
    until_full(&store).await;
    let before = all_events(&store).await;

    // The end of a process and its event need room, too: neither is recorded, then both.
    let error = store.complete("p", completion("p"), completed(1)).await.unwrap_err();
    assert_eq!(error.kind, Kind::Full);
    assert_eq!(store.unfinished().await.unwrap(), [process("p", "t")]);
    assert_eq!(all_events(&store).await, before);
    assert_eq!(store.last_seq(), before.len() as u64);
    disk.make_room();
    assert!(store.complete("p", completion("p"), completed(1)).await.unwrap());
    assert_eq!(store.last_seq(), before.len() as u64 + 1);

    // One that comes while the disk is full finds everything.
    disk.fill(200 * 1024);
    until_full(&store).await;
    let before = all_events(&store).await;
    let _ = store.close().await;
    let store = open(disk.path()).await;
    assert_eq!(all_events(&store).await, before);
    let _ = store.close().await;
    disk.make_room();
    let store = open(disk.path()).await;
    assert_eq!(all_events(&store).await, before);
    assert_eq!(completions(&before), ["p"]);
    assert_eq!(store.append(note("on")).await.unwrap(), before.len() as u64 + 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn beginning_on_a_full_disk_is_an_error_that_passes() {
    let Some(disk) = Disk::new("1m") else { return };
    for room in (0..=160 * 1024).step_by(4096) {
        disk.fill(room);
        match Store::open(disk.path()).await {
            Err(error) => assert_eq!(error.kind, Kind::Full, "{error}"),
            Ok((store, warnings)) => {
                assert_eq!(warnings, Vec::<String>::new());
                let _ = store.close().await;
            }
        }
        disk.make_room();
        let store = open(disk.path()).await;
        store.append(note("works")).await.unwrap();
        assert_eq!(all_events(&store).await.len(), 1);
        store.close().await.unwrap();
        for name in names(disk.path()) {
            fs::remove_file(disk.path().join(name)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_directory_that_may_not_be_written() {
    let readonly = async |dir: &Path, what: &str| {
        let error = Store::open(dir).await.unwrap_err();
        assert_eq!(error.kind, Kind::Readonly, "{what}: {error}");
        assert_eq!(
            error.hint.as_deref(),
            Some("check the owner and the mode of the files, and how the file system is mounted")
        );
    };
    if let Some(disk) = Disk::new("1m") {
        assert!(mount(&["-o", "remount,ro"], disk.path()));
        readonly(disk.path(), "empty").await;
        assert!(mount(&["-o", "remount,rw"], disk.path()));
        let store = open(disk.path()).await;
        store.append(note("kept")).await.unwrap();
        store.close().await.unwrap();
        let before = fs::read(disk.path().join("state.db")).unwrap();
        assert!(mount(&["-o", "remount,ro"], disk.path()));
        readonly(disk.path(), "filled").await;
        assert!(mount(&["-o", "remount,rw"], disk.path()));
        assert!(fs::read(disk.path().join("state.db")).unwrap() == before);
        assert_eq!(all_events(&open(disk.path()).await).await.len(), 1);
    }
    let dir = tempfile::tempdir().unwrap();
    if root(dir.path()) {
        return;
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).unwrap();
    readonly(dir.path(), "mode 500").await;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    open(dir.path()).await.close().await.unwrap();
    for mode in [0o400, 0o000] {
        fs::set_permissions(dir.path().join("state.db"), fs::Permissions::from_mode(mode)).unwrap();
        readonly(dir.path(), &format!("a file of mode {mode:o}")).await;
    }
}
