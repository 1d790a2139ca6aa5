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

/// Found on a busy machine: the command was over before the outpost read that the start files had been run, took the
/// command's exports for what they left, and every later command was without their functions.
#[test]
fn what_start_files_left_is_known_also_after_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rc");
    std::fs::write(&file, "rc() { :; }\n").unwrap();
    let mut shell = Shell::start(&Program::find().unwrap(), dir.path().join("shell")).unwrap();
    let init_files = [file.as_os_str().as_bytes().to_vec()];
    let takeover = Takeover { state: b"", cwd: b"/", init_files: &init_files, one_shot: true, pipes: None };
    shell.restore(&takeover).unwrap();
    while shell.first_state().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let [out, err] = [NamedPipe::new().unwrap(), NamedPipe::new().unwrap()];
    let command = Command {
        text: b"export A=1",
        stdin: None,
        stdout: &out.read,
        stderr: Some(&err.read),
        workdir: None,
        variables: &[],
        home: b"/",
        last_status: 0,
        save: true,
        one_shot: true,
        plain: false,
        direct: false,
        careful: false,
    };
    shell.run(&command).unwrap();
    while shell.saved_state().is_none_or(|(number, _)| number == 0) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (_, newest) = shell.saved_state().unwrap();
    assert!(!String::from_utf8_lossy(&newest).contains("rc ()"));
    assert!(String::from_utf8_lossy(&shell.first_state().unwrap()).contains("rc ()"));
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
