//! A disk that is full.

use crate::rig::{Said, World};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// A small file system for the state of a world.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m,mode=0700", "farshell-test"])
            .arg(at)
            .output()
            .unwrap();
        if mounted.status.success() {
            return Some(Self(at));
        }
        let why = String::from_utf8_lossy(&mounted.stderr);
        assert!(std::env::var_os("CI").is_none() || !rustix::process::getuid().is_root(), "{why}");
        eprintln!("skipped: a small file system can't be mounted: {why}");
        None
    }

    /// Leaves no byte of room.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        for size in [1 << 16, 4096, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn says_full(said: &Said) -> bool {
    ["no room", "No space", "disk is full"].iter().any(|text| said.stderr.contains(text))
}

#[test]
fn a_full_disk_is_said_and_costs_nothing() {
    let world = World::new();
    let state = world.hermes().join("farshell");
    let Some(disk) = Small::mount(&state) else { return };
    let kept = world.background(&[], "echo kept; sleep 1000");
    disk.fill();
    let mut refused = 0;
    for _ in 0..30 {
        let said = world.call(&["run", "--background", "sleep 1000"]);
        if said.code != 0 {
            assert_eq!(said.code, 125, "{said:?}");
            assert!(says_full(&said), "{said:?}");
            refused += 1;
        }
    }
    assert!(refused > 0, "something was refused");
    // What needs no disk still works, also after the server was killed.
    assert_eq!(world.run("echo hello").stdout, "hello\n");
    world.kill_server();
    let said = world.run("echo again");
    assert!(said.stdout == "again\n" || says_full(&said), "{said:?}");
    disk.empty();
    assert_eq!(world.run("echo room").stdout, "room\n");
    assert_eq!(world.call(&["logs", &kept]).stdout, "kept\n");
    let status = world.json(&["server", "status", "--json"]);
    assert_eq!(status["warnings"], serde_json::json!([]), "nothing was moved aside: {status}");
    let list = world.json(&["ps", "--json"]);
    let ids: Vec<&str> =
        list["processes"].as_array().unwrap().iter().map(|p| p["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&kept.as_str()), "{ids:?}");
    let next = world.background(&[], "exit 3");
    assert_eq!(world.call(&["wait", &next]).code, 3);
    world.call(&["env", "rm", "--all", "--force"]);
    world.call(&["server", "stop", "--force"]);
}
