//! What a container can't do, seen from inside.

use crate::rig::Rig;
use farshell_engine::backend::Backend;

/// A line of `/proc/self/status`.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn privileges_are_dropped() {
    let Some(rig) = Rig::new() else { return };
    // CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID
    for (capabilities, mask) in [(None, "00000000000000cb"), (Some(Vec::new()), "0000000000000000")] {
        let rig = Rig::new().unwrap().with(|s| {
            if let Some(capabilities) = capabilities {
                s.cap_add = capabilities;
            }
        });
        let env = rig.open().await;
        let status = env.out("cat /proc/self/status").await;
        for name in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(field(&status, name), mask, "{name}");
        }
        for name in ["CapInh", "CapAmb"] {
            let set = u64::from_str_radix(&field(&status, name), 16).unwrap();
            assert_eq!(set & !u64::from_str_radix(mask, 16).unwrap(), 0, "{name}");
        }
        assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("1".into(), "2".into()));
        assert_eq!(env.out("cat /proc/1/comm").await, "docker-init");
        // Without any privilege, too, there are places for files.
        assert_eq!(env.out("echo a > /workspace/x; echo b > ~/x; cat /workspace/x ~/x").await, "a\nb");
        // mount(2) is refused whatever the arguments.
        assert_ne!(env.run("mount -t tmpfs x /mnt").await.code(), 0);
    }
    drop(rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_namespace_is_the_hosts() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    for name in ["pid", "net", "ipc", "mnt", "uts"] {
        let outside = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        let inside = env.out(&format!("readlink /proc/self/ns/{name}")).await;
        assert_ne!(inside, outside.to_string_lossy(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scratch_space_is_limited_and_only_tmp_runs_programs() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.read_only = true);
    let env = rig.open().await;
    let mounts = env.out("cat /proc/mounts").await;
    for (path, size, noexec) in
        [("/tmp", "size=524288k", false), ("/var/tmp", "size=262144k", true), ("/run", "size=65536k", true)]
    {
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(path)).unwrap();
        let options: Vec<&str> = line.split(' ').nth(3).unwrap().split(',').collect();
        assert!(options.contains(&size) && options.contains(&"nosuid"), "{line}");
        assert_eq!(options.contains(&"noexec"), noexec, "{line}");
    }
    let program = "printf '#!/bin/sh\\necho ran\\n' > D/x && chmod +x D/x && D/x";
    assert_eq!(env.out(&program.replace('D', "/tmp")).await, "ran");
    assert_ne!(env.run(&program.replace('D', "/var/tmp")).await.code(), 0);
    let full = env.run("head -c 300m /dev/zero > /var/tmp/big").await;
    assert!(full.code() != 0 && full.stderr.contains("No space left"), "{full:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_root_leaves_the_places_for_files_writable() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.read_only = true);
    let env = rig.open().await;
    for dir in ["/workspace", "/root", "/tmp", "/var/tmp", "/run"] {
        assert_eq!(env.run(&format!("touch {dir}/x")).await.code(), 0, "{dir}");
    }
    for dir in ["/", "/etc", "/usr/bin", "/.farshell", "/.farshell/b"] {
        assert!(env.run(&format!("touch {dir}/x")).await.stderr.contains("Read-only"), "{dir}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outposts_program_can_not_be_changed_from_inside() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    for command in ["touch /.farshell/b/x", "echo x > /.farshell/b/run-x86_64", "rm /.farshell/b/run-x86_64"]
    {
        assert_ne!(env.run(command).await.code(), 0, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_network_is_none() {
    let Some(rig) = Rig::new() else { return };
    for network in [true, false] {
        let rig = Rig::new().unwrap().with(|s| s.network = network);
        let env = rig.open().await;
        let devices = env.out("ls /sys/class/net").await;
        assert_eq!(devices.contains("eth0"), network, "{devices}");
    }
    drop(rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn extra_arguments_reach_the_container() {
    let Some(rig) = Rig::new() else { return };
    let args =
        ["--shm-size=16m", "--hostname", "box", "--ulimit=nofile=100:200", "--add-host", "peer:10.1.2.3"];
    let rig = rig.with(|s| s.extra_args = args.map(Into::into).into());
    let env = rig.open().await;
    let said = env
        .out("hostname; ulimit -n; grep peer /etc/hosts; df -k /dev/shm | tail -1 | awk '{print $2}'")
        .await;
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["box", "100", "10.1.2.3", "peer", "16384"]);
    let rig = Rig::new().unwrap().with(|s| s.extra_args = vec!["--privileged".into()]);
    let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
    assert!(error.message.contains("--privileged"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_host_user_is_in_the_environment() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    let variables = env.out("tr '\\0' '\\n' < /proc/1/environ | cut -d= -f1 | sort | tr '\\n' ' '").await;
    assert_eq!(variables.trim(), "HOME HOSTNAME PATH");
}
