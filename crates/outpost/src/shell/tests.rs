use super::*;

#[test]
fn a_shell_is_not_lost_before_its_report_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Shell::start(&Program::find().unwrap(), dir.path().join("shell")).unwrap();
    while !shell.waits() || sys::pipe_fill(shell.reports.read.as_fd()) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!shell.lost());
    assert!(matches!(shell.reports()[..], [Report::Ready { .. }]));
    assert!(shell.lost());
    sys::kill_child(shell.pid, libc::SIGKILL);
}

#[test]
fn versions_are_read() {
    assert!(
        at_least_4_4("5.2.15(1)-release")
            && at_least_4_4("4.4.0(1)")
            && !at_least_4_4("4.3.48(1)")
            && !at_least_4_4("-")
    );
}
