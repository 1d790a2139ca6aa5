//! Names and numbers are those of Modal's own package.

use std::io::Write;
use std::process::{Command, Stdio};

/// `scripts/test modal` names a Python that has the package.
#[test]
fn descriptors_are_modals() {
    let Some(python) = std::env::var_os("FARSHELL_TEST_MODAL_PYTHON") else {
        assert!(std::env::var_os("CI").is_none(), "FARSHELL_TEST_MODAL_PYTHON is not set");
        eprintln!("skipped: FARSHELL_TEST_MODAL_PYTHON is not set (scripts/test modal sets it)");
        return;
    };
    let mut child = Command::new(python)
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compare.py"), "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(farshell_modal_proto::DESCRIPTORS).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
