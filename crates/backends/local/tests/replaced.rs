//! An outpost whose own file is gone, as that of somebody who was overtaken by another who put the same one there.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn an_outpost_without_its_file_starts_its_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("outpost"), dir.path().join("place"));
    std::fs::write(&file, farshell_bundle::for_arch(std::env::consts::ARCH).unwrap().bytes).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::create_dir(&place).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700)).unwrap();
    let script = r#"exec 3<"$1"; rm "$1"; exec /proc/self/fd/3 start --dir "$2" --lease 1"#;
    let ran = Command::new("sh").args(["-c", script, "sh"]).args([&file, &place]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(place.join("sock").exists());
}
