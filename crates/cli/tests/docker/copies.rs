//! Files into a container and out of it.

use crate::world::Docker;

#[test]
fn a_tree_goes_into_the_container_and_comes_back() {
    let Some(docker) = Docker::new() else { return };
    let world = docker.world();
    let src = world.work().join("src");
    std::fs::create_dir_all(src.join("a/b")).unwrap();
    for n in 0..100 {
        std::fs::write(src.join(format!("a/b/{n}")), format!("{n}\n")).unwrap();
    }
    std::os::unix::fs::symlink("/etc", src.join("out")).unwrap();
    let push = world.json(&["cp", "--json", "src", ":/tmp/there"]);
    assert_eq!((push["files"].as_u64(), push["backend"].as_str()), (Some(101), Some("docker")), "{push}");
    assert_eq!(docker.says("cat /tmp/there/a/b/42; readlink /tmp/there/out"), "42\n/etc\n");
    // What a container makes of its own tree leads nowhere on this machine.
    docker.says("cd /tmp/there; mkfifo pipe; ln -s /etc/passwd a/b/passwd; ln -s .. up");
    let said = world.call(&["cp", "--json", ":/tmp/there", "back"]);
    assert_eq!(said.code, 0, "{said:?}");
    let pull = said.json();
    assert_eq!((pull["files"].as_u64(), pull["skipped"].as_u64()), (Some(103), Some(1)), "{pull}");
    let back = world.work().join("back");
    assert_eq!(std::fs::read_link(back.join("a/b/passwd")).unwrap(), std::path::Path::new("/etc/passwd"));
    assert_eq!(std::fs::read_to_string(back.join("a/b/99")).unwrap(), "99\n");
    let again = world.json(&["cp", "--json", "src", ":/tmp/there"]);
    assert_eq!((again["files"].as_u64(), again["unchanged"].as_u64()), (Some(0), Some(101)), "{again}");
}
