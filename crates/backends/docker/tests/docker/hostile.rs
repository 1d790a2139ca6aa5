//! What a container puts into the shared directory, and who may talk to its outpost.

use crate::rig::{Rig, sockets};
use farshell_engine::Kind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_the_place_of_the_socket_is_not_followed() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("true").await;
    // A socket of this machine that the container must not lead anybody to.
    let trap = rig.home.path().join("trap");
    let listener = UnixListener::bind(&trap).unwrap();
    listener.set_nonblocking(true).unwrap();
    for (what, named) in [
        (format!("ln -s {} /.farshell/s/sock", trap.display()), "symbolic link"),
        ("mkdir /.farshell/s/sock".into(), "a directory"),
        ("echo > /.farshell/s/sock".into(), "a file"),
        ("python3 -c \"import os; os.mkfifo('/.farshell/s/sock')\"".into(), "something else"),
    ] {
        env.out(&format!("rm -rf /.farshell/s/sock; {what}")).await;
        let other = rig.open().await;
        let error = other.try_run("true").await.unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable, "{what}: {error}");
        assert!(error.message.contains(named), "{what}: {error}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // It can be removed, and made again.
    env.env.destroy().await.unwrap();
    rig.open().await.out("true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_inside_are_not_heard() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    let greeted = |uid: u32| {
        format!(
            "python3 -c \"
import os, socket
os.setgid({uid}); os.setuid({uid})
s = socket.socket(socket.AF_UNIX); s.connect('/.farshell/s/sock')
print(len(s.recv(100)) > 0)\""
        )
    };
    assert_eq!(env.out(&greeted(0)).await, "True");
    assert_eq!(env.out(&greeted(1234)).await, "False");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_on_this_machine_gets_to_the_socket() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("true").await;
    let socket = &sockets(rig.home.path())[0];
    let private = socket.parent().unwrap().parent().unwrap();
    let mode = std::fs::metadata(private).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let kept = rig.config.settings.sandbox_dir.join("docker/default");
    assert_eq!(std::fs::metadata(kept).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_into_the_containers_log_is_bounded() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.run("head -c 20m /dev/zero | tr '\\0' 'x' | fold -w 100 > /proc/1/fd/1").await;
    let path = rig.docker(&["inspect", "-f", "{{.LogPath}}", &env.id()]);
    // Only root may look.
    let Ok(log) = std::fs::metadata(path) else { return };
    let size = log.len();
    assert!(size <= 2 << 20, "{size} bytes of log");
}
