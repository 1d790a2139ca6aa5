//! Places without bash: dash stands for every plain sh.

use crate::rig::{World, fine, said};

const DASH: &str = "/bin/dash";

fn world(persistent: &str) -> World {
    // Every Debian has it; elsewhere the failure names what to install.
    assert!(std::path::Path::new(DASH).exists(), "{DASH} is missing: install dash");
    World::new().with("FARSHELL_SHELL", DASH).with("TERMINAL_LOCAL_PERSISTENT", persistent)
}

#[test]
fn a_plain_sh_keeps_directory_and_exports_in_both_modes() {
    for persistent in ["true", "false"] {
        let world = world(persistent);
        assert_eq!(world.run("echo out; echo err >&2; cd /tmp; export A=1; b=2"), said("out\n", "err\n", 0));
        let b = if persistent == "true" { "2" } else { "" };
        assert_eq!(world.run("echo $PWD $A [$b]"), fine(&format!("/tmp 1 [{b}]\n")));
        assert_eq!(world.run("cd /usr; export A=3; exit 5").code, 5);
        assert_eq!(world.run("echo $? $PWD $A"), fine("5 /usr 3\n"));
    }
}

#[test]
fn a_plain_sh_survives_what_ends_it() {
    for persistent in ["true", "false"] {
        let world = world(persistent);
        // What does not parse would be asked about.
        assert_eq!(world.call(&["config", "set", "approvals.mode", "auto"]).code, 0);
        world.run("export A=kept");
        for (command, code) in
            [("echo 'unfinished", 2), ("kill -9 $$", 137), ("exec sh -c 'exit 9'", 9), ("set -e; false", 1)]
        {
            assert_eq!(world.run(command).code, code, "{command}");
            assert_eq!(world.run("echo $A"), fine("kept\n"), "after {command}");
        }
        assert_eq!(world.call(&["run", "--workdir", "/usr", "pwd"]), fine("/usr\n"));
        assert_eq!(world.call(&["run", "--workdir", "/no/such/dir", "pwd"]).code, 126);
        assert_eq!(
            world.call(&["run", "--timeout", "0.3", "echo before; sleep 1000; echo after"]).stdout,
            "before\n"
        );
    }
}
