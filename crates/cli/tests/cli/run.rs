//! `farshell run`: streams, exit codes, state.

use crate::rig::{PATIENCE, World, fine, finish, is_running, said, unique_sleep, wait_until};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn streams_go_where_they_belong_and_the_code_is_the_commands() {
    let world = World::new();
    assert_eq!(world.run("echo out; echo err >&2; exit 7"), said("out\n", "err\n", 7));
    assert_eq!(world.run("true"), fine(""));
    assert_eq!(world.run("exit 255").code, 255);
    let missing = world.run("no-such-program-here");
    assert_eq!((missing.code, missing.stderr.contains("no-such-program-here")), (127, true), "{missing:?}");
}

#[test]
fn a_signal_is_128_plus_its_number() {
    let world = World::new();
    assert_eq!(world.run("sh -c 'kill -9 $$'").code, 137);
    assert_eq!(world.run("kill -9 $$").code, 137);
    assert_eq!(world.run("sh -c 'kill -TERM $$'").code, 143);
    assert_eq!(world.run("echo still there"), fine("still there\n"));
}

#[test]
fn one_argument_is_a_line_and_several_are_words() {
    let world = World::new().with("X", "y");
    assert_eq!(world.call(&["run", "echo $X; echo *"]), fine("y\n*\n"));
    assert_eq!(world.call(&["run", "echo", "$X", "a  b", "it's", "*"]), fine("$X a  b it's *\n"));
    assert_eq!(world.call(&["run", "printf", "%s,", "-n", "--json"]), fine("-n,--json,"));
    assert_eq!(world.call(&["run", "--", "echo", "--", "x"]), fine("-- x\n"));
}

#[test]
fn state_lasts_between_calls() {
    let world = World::new();
    assert_eq!(world.run("cd /tmp; export A=1"), fine(""));
    assert_eq!(world.run("echo $PWD $A"), fine("/tmp 1\n"));
}

#[test]
fn with_a_persistent_shell_everything_lasts() {
    let world = World::new().with("TERMINAL_LOCAL_PERSISTENT", "true");
    assert_eq!(world.run("b=2; f() { echo \"f $1\"; }; set -o noglob"), fine(""));
    assert_eq!(world.run("f $b *"), fine("f 2\n"));
    assert_eq!(world.run("echo *"), fine("*\n"));
}

#[test]
fn sessions_and_tasks_are_apart() {
    let world = World::new();
    world.run("export A=default");
    world.call(&["run", "--session", "two", "export A=two"]);
    world.call(&["run", "--task", "other", "export A=other"]);
    let ask = |args: &[&str]| world.call(&[&["run"], args, &["echo $A"]].concat());
    assert_eq!(ask(&[]), fine("default\n"));
    assert_eq!(ask(&["--session", "two"]), fine("two\n"));
    assert_eq!(ask(&["--task", "other"]), fine("other\n"));
    assert_eq!(ask(&["--task", "other", "--session", "two"]), fine("\n"));
}

#[test]
fn a_session_begins_where_the_call_was_made() {
    let world = World::new();
    assert_eq!(world.run("pwd -P"), fine(&format!("{}\n", world.work().canonicalize().unwrap().display())));
    let elsewhere = World::new().with("TERMINAL_CWD", "/usr");
    assert_eq!(elsewhere.run("pwd"), fine("/usr\n"));
}

#[test]
fn a_workdir_is_for_one_call() {
    let world = World::new();
    world.run("cd /usr");
    assert_eq!(world.call(&["run", "--workdir", "/tmp", "pwd"]), fine("/tmp\n"));
    assert_eq!(world.call(&["run", "--workdir", "lib", "pwd"]), fine("/usr/lib\n"));
    assert_eq!(world.run("pwd"), fine("/usr\n"));
    let missing = world.call(&["run", "--workdir", "/no/such/dir", "echo ran"]);
    assert_eq!((missing.code, missing.stdout.as_str()), (126, ""), "{missing:?}");
    assert!(missing.stderr.contains("/no/such/dir"), "{missing:?}");
}

#[test]
fn input_comes_from_a_file_a_pipe_or_nowhere() {
    let world = World::new();
    let file = world.file("input", "one\ntwo\n");
    assert_eq!(world.run("cat"), fine(""));
    assert_eq!(world.call(&["run", "--stdin", file.to_str().unwrap(), "wc -l"]), fine("2\n"));
    assert_eq!(world.call_with_input(&["run", "--stdin", "-", "tr a-z A-Z"], b"hello\n"), fine("HELLO\n"));
    assert_eq!(world.call_with_input(&["run", "--stdin", "-", "cat"], b""), fine(""));
    // Our own input is not read unless that is asked for.
    assert_eq!(world.call_with_input(&["run", "cat"], b"hello\n"), fine(""));
    let missing = world.call(&["run", "--stdin", "/no/such/file", "cat"]);
    assert_eq!(
        missing,
        said(
            "",
            "farshell: opening /no/such/file for --stdin: No such file or directory (os error 2)\n\
         hint: the file is one of this machine; `-` stands for standard input\n",
            125,
        )
    );
}

#[test]
fn much_input_arrives_whole() {
    let world = World::new();
    let input: Vec<u8> = (0..5_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = world.work().join("input");
    std::fs::write(&file, &input).unwrap();
    let sum = |said: crate::rig::Said| {
        assert_eq!(said.code, 0, "{said:?}");
        said.stdout.split_whitespace().next().unwrap().to_owned()
    };
    let expected = sum(world.run("sha256sum input"));
    assert_eq!(sum(world.call_with_input(&["run", "--stdin", "-", "sha256sum"], &input)), expected);
    assert_eq!(sum(world.call(&["run", "--stdin", "input", "sha256sum"])), expected);
}

#[test]
fn a_command_need_not_read_its_input() {
    let world = World::new();
    let input = vec![b'x'; 4 << 20];
    assert_eq!(world.call_with_input(&["run", "--stdin", "-", "head -c 3"], &input), fine("xxx"));
    assert_eq!(world.call_with_input(&["run", "--stdin", "-", "true"], &input), fine(""));
}

#[test]
fn input_is_sent_as_it_arrives() {
    use std::io::Write;
    let world = World::new();
    let mut child = world
        .command(&["run", "--stdin", "-", "while read -r l; do echo \"got $l\"; done"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("got {word}"));
    }
    drop(stdin);
    assert_eq!(finish(child).code, 0);
}

#[test]
fn output_is_shown_as_it_arrives() {
    let world = World::new();
    world.run("true");
    let seconds = unique_sleep();
    let mut child = world.command(&["run", &format!("echo first; sleep {seconds}")]).spawn().unwrap();
    let mut line = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"first\n");
    assert!(child.try_wait().unwrap().is_none());
    assert_eq!(world.call(&["env", "rm"]).code, 0);
    // Its environment was ended under it, and it with that.
    let code = finish(child).code;
    assert!([137, 143].contains(&code), "{code}");
    assert!(!is_running(&seconds));
}

#[test]
fn a_timeout_is_124_and_leaves_nothing() {
    let world = World::new();
    world.run("export KEPT=1");
    let seconds = unique_sleep();
    let start = Instant::now();
    let command = format!("echo begun; (setsid sleep {seconds} &) ; sleep {seconds} & sleep {seconds}");
    let timed_out = world.call(&["run", "--timeout", "3", &command]);
    assert_eq!((timed_out.code, timed_out.stdout.as_str()), (124, "begun\n"), "{timed_out:?}");
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(!is_running(&seconds));
    assert_eq!(world.run("echo $KEPT"), fine("1\n"));
}

#[test]
fn timeouts_that_make_no_sense_are_refused() {
    let world = World::new();
    for wrong in ["0", "-1", "soon", "nan", "inf", "0.0001", "1e40", ""] {
        assert_eq!(
            world.call(&["run", "--timeout", wrong, "echo ran"]),
            said(
                "",
                &format!(
                    "farshell: reading --timeout: {wrong:?} is not a number of seconds above 0\n\
                 hint: give a number above 0 and up to 600, such as 10 or 0.5\n"
                ),
                125,
            )
        );
    }
    assert_eq!(
        world.call(&["run", "--timeout", "601", "echo ran"]),
        said(
            "",
            "farshell: reading --timeout: 601 s is more than max_foreground_timeout, which is 600 s\n\
         hint: give at most 600 s, or raise the limit with `farshell config set max_foreground_timeout SECONDS`\n",
            125,
        )
    );
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let world = World::new();
    let mut child = world.command(&["run", "yes"]).spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"y\n");
    assert_eq!(finish(child), said("", "", 141));
    let after = world.run("echo free");
    assert_eq!(after, fine("free\n"));
}

#[test]
fn a_full_disk_is_said() {
    let world = World::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = world.command(&["run", "echo x; sleep 100"]).stdout(full).spawn().unwrap();
    assert_eq!(
        finish(child),
        said(
            "",
            "farshell: writing to standard output: No space left on device (os error 28)\nhint: the command was killed\n",
            125,
        )
    );
}

#[test]
fn a_slow_reader_gets_everything() {
    let world = World::new();
    let mut child = world.command(&["run", "seq 1 400000"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (mut all, mut piece) = (Vec::new(), vec![0; 256 << 10]);
    loop {
        std::thread::sleep(Duration::from_millis(10));
        match stdout.read(&mut piece).unwrap() {
            0 => break,
            n => all.extend_from_slice(&piece[..n]),
        }
    }
    let expected: String = (1..=400_000).map(|i| format!("{i}\n")).collect();
    assert!(all == expected.as_bytes(), "{} of {} bytes", all.len(), expected.len());
    assert_eq!(finish(child).code, 0);
}

#[test]
fn many_calls_at_once_on_a_fresh_home() {
    let world = World::new();
    let children: Vec<_> = (0..20)
        .map(|i| {
            let session = format!("s{}", i % 4);
            world.command(&["run", "--session", &session, &format!("echo {i}")]).spawn().unwrap()
        })
        .collect();
    for (i, child) in children.into_iter().enumerate() {
        assert_eq!(finish(child), fine(&format!("{i}\n")));
    }
    let entries = std::fs::read_dir(world.hermes().join("farshell/run")).unwrap().flatten();
    let daemons = entries.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(daemons, 1);
}

#[test]
fn secrets_of_the_agent_are_not_seen() {
    let world = World::new()
        .with("OPENAI_API_KEY", "secret")
        .with("GH_TOKEN", "secret")
        .with("SUDO_PASSWORD", "secret")
        .with("HERMES_OTHER", "secret")
        .with("NPM_TOKEN", "seen")
        .with("GITHUB_TOKEN", "passed")
        .with("TERMINAL_ENV_PASSTHROUGH", "GITHUB_TOKEN,FROM_FILE")
        .with("VIRTUAL_ENV", "/venv");
    std::fs::write(world.hermes().join(".env"), "FROM_FILE=filed\n").unwrap();
    let home = world.user_home();
    let seen =
        world.run("env | grep -E 'secret|^NPM|^GITHUB|^FROM|^VIRTUAL|^HERMES|^TERMINAL_|^HOME' | sort");
    assert_eq!(
        seen,
        fine(&format!(
            "FROM_FILE=filed\nGITHUB_TOKEN=passed\nHERMES_REAL_HOME={0}\nHOME={0}\nNPM_TOKEN=seen\nVIRTUAL_ENV=/venv\n",
            home.display()
        ))
    );
}

#[test]
fn home_is_the_profiles_where_there_is_one() {
    let world = World::new();
    let profile = world.hermes().join("home");
    let asked = |session: &str, mode: &str| {
        let mut command =
            world.command(&["run", "--session", session, "echo $HOME; echo $HERMES_REAL_HOME; cd; pwd"]);
        finish(command.env("TERMINAL_HOME_MODE", mode).spawn().unwrap())
    };
    let real = world.user_home();
    let shown = |home: &std::path::Path| fine(&format!("{0}\n{1}\n{0}\n", home.display(), real.display()));
    assert_eq!(asked("a", "auto"), shown(&real));
    assert_eq!(asked("b", "profile"), shown(&profile));
    assert_eq!(asked("c", "auto"), shown(&profile));
    assert_eq!(asked("d", "real"), shown(&real));
}

#[test]
fn start_files_are_sourced_unless_others_are_named() {
    let world = World::new();
    std::fs::write(world.user_home().join(".bashrc"), "export FROM=bashrc\n").unwrap();
    std::fs::write(world.user_home().join("mine"), "export MINE=1\n").unwrap();
    assert_eq!(world.run("echo $FROM $MINE"), fine("bashrc\n"));
    let asked = |session: &str, name: &str, value: &str| {
        let mut command = world.command(&["run", "--session", session, "echo $FROM $MINE"]);
        finish(command.env(name, value).spawn().unwrap())
    };
    assert_eq!(asked("a", "TERMINAL_SHELL_INIT_FILES", "~/mine"), fine("1\n"));
    assert_eq!(asked("b", "TERMINAL_AUTO_SOURCE_BASHRC", "no"), fine("\n"));
}

#[test]
fn another_backend_is_refused_and_never_replaced() {
    let world = World::new();
    let refused = said(
        "",
        "farshell: preparing the modal backend: there is no token for Modal\n\
         hint: `modal token new` makes a token and writes it to ~/.modal.toml; or set MODAL_TOKEN_ID and \
         MODAL_TOKEN_SECRET, for example with `farshell config set MODAL_TOKEN_ID -`\n",
        125,
    );
    assert_eq!(world.call(&["run", "--backend", "modal", "touch ran"]), refused);
    let mut command = world.command(&["run", "touch ran"]);
    assert_eq!(finish(command.env("TERMINAL_ENV", "modal").spawn().unwrap()), refused);
    // One that is there and can't serve.
    let mut command = world.command(&["run", "--backend", "docker", "touch ran"]);
    let refused = finish(command.env("DOCKER_HOST", "unix:///nowhere/docker.sock").spawn().unwrap());
    assert_eq!((refused.stdout.as_str(), refused.code), ("", 125));
    assert!(
        refused.stderr.contains("Docker is not running") && refused.stderr.contains("hint:"),
        "{refused:?}"
    );
    let refused = world.call(&["run", "--backend", "daytona", "touch ran"]);
    assert_eq!((refused.stdout.as_str(), refused.code), ("", 125));
    assert!(
        refused.stderr.contains("DAYTONA_API_KEY is not set")
            && refused.stderr.contains("farshell config set DAYTONA_API_KEY -"),
        "{refused:?}"
    );
    assert!(!world.work().join("ran").exists());
}

#[test]
fn an_unknown_backend_names_the_six() {
    let world = World::new();
    assert_eq!(
        world.call(&["run", "--backend", "dokcer", "touch ran"]),
        said(
            "",
            "farshell: checking the settings: terminal.backend: \"dokcer\" is not one of local, docker, ssh, singularity, \
         modal, daytona (the command line); did you mean docker?\n\
         hint: `farshell config explain KEY` shows where a value comes from, `farshell config set` and `unset` change it\n",
            125,
        )
    );
    assert!(!world.work().join("ran").exists());
}

#[test]
fn settings_that_are_wrong_are_all_named() {
    let world = World::new().with("TERMINAL_LIFETIME_SECONDS", "long");
    std::fs::write(world.hermes().join("config.yaml"), "terminal:\n  tiemout: 5\n  timeout: 700\n").unwrap();
    let config = world.hermes().join("config.yaml");
    let config = config.display();
    assert_eq!(
        world.run("touch ran"),
        said(
            "",
            &format!(
                "farshell: checking the settings: 3 settings can't be used:\n  \
             terminal.tiemout is not a setting ({config} line 2); did you mean terminal.timeout?\n  \
             terminal.lifetime_seconds: \"long\" is not a whole number of seconds, at least 1 (TERMINAL_LIFETIME_SECONDS in the environment)\n  \
             terminal.timeout: 700 ({config} line 3) is more than terminal.max_foreground_timeout: 600 (default); lower the first or raise the second\n\
             hint: `farshell config explain KEY` shows where a value comes from, `farshell config set` and `unset` change it\n"
            ),
            125,
        )
    );
    assert!(!world.work().join("ran").exists());
}

#[test]
fn a_name_that_is_none_is_refused() {
    let world = World::new();
    for (option, what) in [("--task", "task name"), ("--session", "session name")] {
        let refused = world.call(&["run", option, "../x", "true"]);
        assert_eq!(
            refused,
            said(
                "",
                &format!(
                    "farshell: reading {option}: \"../x\" is not a {what}: 1 to 64 of the characters A-Z a-z 0-9 . _ - are needed, \
                 not starting with . or -\n"
                ),
                125,
            )
        );
    }
}

#[test]
fn an_environment_ends_when_it_is_removed() {
    let world = World::new();
    let seconds = unique_sleep();
    world.run(&format!("export A=1; sleep {seconds} >/dev/null 2>&1 &"));
    wait_until("the background process", || is_running(&seconds));
    assert_eq!(world.call(&["env", "rm"]), fine(""));
    assert!(!is_running(&seconds));
    assert_eq!(world.run("echo \"<$A>\""), fine("<>\n"));
    // There may be none.
    assert_eq!(world.call(&["env", "rm", "never"]), fine(""));
}
