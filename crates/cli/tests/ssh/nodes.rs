//! A name that leads to several machines which share files, as that of a cluster's login nodes.

use crate::copies::kill_masters;
use crate::rig::{self, Said, World};

fn refused(world: &World) {
    let said = world.run("touch ran-elsewhere");
    assert_eq!((said.stdout.as_str(), said.code), ("", 125), "{said:?}");
    assert!(said.stderr.contains("another machine"), "{said:?}");
    assert!(said.stderr.contains("farshell env rm --forget ssh/default"), "{said:?}");
}

#[test]
fn another_machine_is_refused_by_each_call_and_each_server_until_the_first_is_forgotten() {
    let Some(world) = crate::world() else { return };
    let (first, second) =
        (std::env::var("FARSHELL_TEST_SSH").unwrap(), std::env::var("FARSHELL_TEST_SSH_SESSION").unwrap());
    let script = world.file("line", "");
    let file = world.hermes().join("config.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    // Such machines have one host key, and these have not.
    let options = format!(
        "ssh_options: [\"ProxyCommand=bash {} %p\", \"StrictHostKeyChecking=no\", \"HostKeyAlias=nodes\", \"UserKnownHostsFile=/dev/null\", ",
        script.display()
    );
    std::fs::write(&file, config.replace("ssh_options: [", &options)).unwrap();
    let leads_to = |address: &str| {
        let text = format!("exec 3<>/dev/tcp/{address}/$1 || exit 255\ncat <&3 &\nexec cat >&3\n");
        std::fs::write(&script, text).unwrap();
        kill_masters(&world);
    };
    let fine =
        |said: Said, stdout: &str| assert_eq!((said.stdout.as_str(), said.code), (stdout, 0), "{said:?}");
    leads_to(&first);
    fine(world.run("z=kept"), "");
    let process = world.background(&[], "sleep 1000");
    leads_to(&second);
    refused(&world);
    refused(&world);
    world.kill_server();
    refused(&world);
    refused(&world);
    assert_eq!(world.json(&["ps", "--json"])["processes"][0]["state"], "running");

    leads_to(&first);
    fine(world.run("echo $z; ls ran-elsewhere 2>/dev/null; true"), "kept\n");

    leads_to(&second);
    refused(&world);
    assert_eq!(world.call(&["env", "rm", "--forget", "ssh/default"]).code, 0);
    fine(world.run("echo ${z-anew}"), "anew\n");
    assert_eq!(world.call(&["env", "rm"]).code, 0);

    // What was given up is still there, and is ended.
    leads_to(&first);
    fine(world.run("echo $z"), "kept\n");
    assert_eq!(world.call(&["env", "rm", "--force"]).code, 0);
    rig::wait_until(&process, || {
        world.json(&["env", "list", "--json"])["environments"] == serde_json::json!([])
    });
}
