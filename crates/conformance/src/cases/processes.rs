//! Processes of their own: shell commands and programs outside of a session's shell.

use crate::case::{Done, Failure, cases, check, check_eq};
use crate::env::{Env, code};
use farshell_engine::capture::Capture;
use farshell_engine::client::new_process_id;
use farshell_engine::{Kind, RunOptions};
use farshell_protocol::process::{Attach, End, Size, Start, State, Stdin, Surroundings, What};
use serde_bytes::ByteBuf;
use std::time::{Duration, Instant};

cases! {
    Any:
        a_shell_command_of_its_own,
        a_program_needs_no_shell,
        a_program_that_is_not_there,
        a_command_from_a_sessions_state,
        a_command_from_a_busy_sessions_state,
        a_relative_directory_starts_from_the_sessions,
        variables_and_directory,
        exit_and_signal_are_told_apart,
        usage_is_told,
        a_repeated_id_starts_nothing,
        twenty_starts_at_once_under_one_id,
        another_command_under_a_used_id_is_refused,
        a_start_in_the_background_returns_at_once,
        late_output_of_background_children,
        two_hundred_at_once @ 120,
        signals_reach_the_process,
        the_list_of_processes,
        what_is_not_known_is_said,
        a_timeout_kills_the_tree,
        an_end_leaves_daemons_alone_until_they_are_killed,
        a_large_command_of_its_own,
        a_dropped_call_leaves_the_process_running,
        input_by_offset,
        an_end_without_output_is_told_to_who_waits_for_it,
        a_command_that_ends_its_shell_leaves_nothing_open,
        an_id_that_nobody_wants_any_more_is_never_started;
}

fn kind_of<T: std::fmt::Debug>(result: farshell_engine::Result<T>) -> Result<Kind, Failure> {
    match result {
        Err(error) => Ok(error.kind),
        Ok(value) => Err(Failure::new(format!("an error was expected, not {value:?}"))),
    }
}

async fn a_shell_command_of_its_own(env: &Env) -> Done {
    let ran = env.own(env.shell("echo out; echo err >&2; pwd; exit 7")).await?;
    let found = (ran.code(), ran.out(), ran.err());
    check_eq!(found, (7, format!("out\n{}\n", env.dir), "err\n".to_owned()), "a shell command");
    check_eq!(ran.status.session, None, "it belongs to no session");
    Ok(())
}

async fn a_program_needs_no_shell(env: &Env) -> Done {
    let args: &[&[u8]] = &[b"printf", b"[%s]", b"a b", b"$HOME", b"'\"", b"\n", b"\xff\xfe", b"", b"*"];
    let ran = env.own(env.exec(args)).await?;
    check_eq!(ran.stdout, b"[a b][$HOME]['\"][\n][\xff\xfe][][*]".to_vec(), "arguments arrive as they are");
    let ran = env.own(env.exec(&[b"/bin/sh", b"-c", b"exit 3"])).await?;
    check_eq!(ran.code(), 3, "a program by its path");
    Ok(())
}

async fn a_program_that_is_not_there(env: &Env) -> Done {
    let missing = env.outpost().start(env.exec(&[b"/does/not/exist"])).await;
    let text = missing.as_ref().err().map(ToString::to_string).unwrap_or_default();
    check_eq!(kind_of(missing)?, Kind::NotFound, "a program that is not there");
    check!(text.contains("/does/not/exist"), "the error names it: {text}");
    env.own(env.shell("echo text >file; chmod 644 file")).await?;
    let refused = env.outpost().start(env.exec(&[env.path("file").as_bytes()])).await;
    check_eq!(kind_of(refused)?, Kind::PermissionDenied, "a file that is no program");
    check_eq!(kind_of(env.outpost().start(env.exec(&[])).await)?, Kind::Invalid, "no program at all");
    check_eq!(
        kind_of(env.outpost().start(env.exec(&[b"a\0b"])).await)?,
        Kind::Invalid,
        "a NUL in an argument"
    );
    Ok(())
}

fn from_session(env: &Env, command: &str) -> Start {
    let surroundings = Surroundings { cwd: None, ..env.surroundings() };
    let what = What::Shell { command: command.into(), session: Some(env.session()), surroundings };
    crate::env::process(what)
}

async fn a_command_from_a_sessions_state(env: &Env) -> Done {
    env.says("mkdir sub; cd sub; v=var; export E=exported", "").await?;
    let ran = env.own(from_session(env, "echo $v $E $PWD; v=changed; cd /")).await?;
    let expected = format!("var exported {}\n", env.path("sub"));
    check_eq!((ran.code(), ran.out(), ran.err()), (0, expected, String::new()), "it has the session's state");
    if env.subject.bash() {
        env.says("a=(1 2); f(){ echo f:$v; }; shopt -s extglob", "").await?;
        let ran = env.own(from_session(env, "f; echo ${a[1]}; shopt -q extglob && echo on")).await?;
        check_eq!((ran.code(), ran.out()), (0, "f:var\n2\non\n".to_owned()), "what only bash has");
    }
    env.says("echo $v $PWD", &format!("var {}\n", env.path("sub"))).await
}

async fn a_command_from_a_busy_sessions_state(env: &Env) -> Done {
    env.says("v=before", "").await?;
    let busy = env.command(format!("v=during; {}", env.nap(1)));
    let meanwhile = async {
        env.await_naps(1).await?;
        let ran = env.own(from_session(env, "echo $v")).await?;
        check!(
            ["before\n", "during\n"].contains(&ran.out().as_str()),
            "its state is one of the two: {:?}",
            ran.out()
        );
        env.outpost().kill(vec![busy.id.clone()], Duration::ZERO).await?;
        Ok::<_, Failure>(())
    };
    tokio::try_join!(env.run_with(&busy), meanwhile)?;
    Ok(())
}

async fn a_relative_directory_starts_from_the_sessions(env: &Env) -> Done {
    env.says("mkdir -p here/below && cd here", "").await?;
    for (dir, expected) in
        [("below", env.path("here/below")), ("..", env.dir.clone()), ("/usr", "/usr".into())]
    {
        let mut start = from_session(env, "pwd -P");
        if let What::Shell { surroundings, .. } = &mut start.what {
            surroundings.cwd = Some(dir.into());
        }
        let ran = env.own(start).await?;
        check_eq!((ran.code(), ran.out()), (0, format!("{expected}\n")), "{dir}");
    }
    Ok(())
}

async fn variables_and_directory(env: &Env) -> Done {
    let mut start = env.shell("printf '%s|' \"$A\" \"$PWD\"; /usr/bin/env | wc -l");
    let What::Shell { surroundings, .. } = &mut start.what else { return Ok(()) };
    surroundings.env.push((ByteBuf::from("A"), ByteBuf::from("x\ny z")));
    surroundings.cwd = Some(b"/usr".to_vec());
    let ran = env.own(start.clone()).await?;
    check!(ran.out().starts_with("x\ny z|/usr|"), "{:?}", ran.out());

    let argv = [b"/usr/bin/env"].iter().map(|a| ByteBuf::from(*a)).collect();
    let surroundings = Surroundings { clear_env: true, ..env.surroundings() };
    let ran = env.own(crate::env::process(What::Exec { argv, surroundings })).await?;
    check_eq!(ran.out(), format!("FARSHELL_CASE={}\n", env.mark), "the whole environment");

    let mut nowhere = env.shell("true");
    if let What::Shell { surroundings, .. } = &mut nowhere.what {
        surroundings.cwd = Some(b"/does/not/exist".to_vec());
    }
    check_eq!(kind_of(env.outpost().start(nowhere).await)?, Kind::NotFound, "a directory that is not there");
    Ok(())
}

async fn exit_and_signal_are_told_apart(env: &Env) -> Done {
    for (command, end) in [
        ("exit 137", End::Exited(137)),
        ("kill -9 $$", End::Signaled(9)),
        ("kill -15 $$; sleep 5", End::Signaled(15)),
        ("exit 0", End::Exited(0)),
        ("exec sh -c 'kill -6 $$'", End::Signaled(6)),
    ] {
        let ran = env.own(env.shell(command)).await?;
        check_eq!(ran.status.state, State::Ended(end), "{command:?}");
    }
    Ok(())
}

async fn usage_is_told(env: &Env) -> Done {
    let ran = env.own(env.shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")).await?;
    let Some(usage) = ran.status.usage else { return Err(Failure::new("no usage in the status")) };
    check!(usage.user_us > 1000 && usage.max_rss_kib > 100, "{usage:?}");
    check!(ran.status.elapsed_us > 1000, "elapsed: {} µs", ran.status.elapsed_us);
    Ok(())
}

async fn a_repeated_id_starts_nothing(env: &Env) -> Done {
    let start = env.shell("echo x >>runs; echo out; sleep 0.2");
    for _ in 0..3 {
        let ran = env.own(start.clone()).await?;
        check_eq!(ran.out(), "out\n", "the output, each time from the start");
        env.outpost().start(start.clone()).await?;
    }
    env.await_file("runs", "x\n").await?;
    let command = env.command("echo y >>runs2; echo out");
    for _ in 0..3 {
        check_eq!(
            env.run_with(&command).await?.out(),
            "out\n",
            "a session's command, each time from the start"
        );
    }
    env.await_file("runs2", "y\n").await
}

async fn twenty_starts_at_once_under_one_id(env: &Env) -> Done {
    let start = env.shell("echo x >>runs; sleep 0.2; echo out");
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (outpost, start) = (env.outpost().clone(), start.clone());
        calls.spawn(async move {
            let mut capture = Capture::unlimited();
            outpost.run(start, &mut capture).await.map(|status| (code(&status), capture.stdout.to_bytes()))
        });
    }
    while let Some(ended) = calls.join_next().await {
        check_eq!(ended??, (0, b"out\n".to_vec()), "each of the twenty");
    }
    env.await_file("runs", "x\n").await
}

async fn another_command_under_a_used_id_is_refused(env: &Env) -> Done {
    let start = env.shell("echo one");
    env.own(start.clone()).await?;
    let other = Start { id: start.id.clone(), ..env.shell("echo two >>two") };
    check_eq!(kind_of(env.outpost().start(other).await)?, Kind::AlreadyExists, "another command");
    let other = Start { stdin: Stdin::Pipe, ..start.clone() };
    check_eq!(kind_of(env.outpost().start(other).await)?, Kind::AlreadyExists, "other input");
    let other = RunOptions { id: start.id, ..env.command("echo two >>two") };
    env.says("true", "").await?;
    let mut unused = Capture::unlimited();
    let refused = env.environment.run(&other, &mut unused).await;
    check_eq!(kind_of(refused)?, Kind::AlreadyExists, "a command of a session");
    env.says("ls", "").await
}

async fn a_start_in_the_background_returns_at_once(env: &Env) -> Done {
    let start = env.shell("echo begun; sleep 30; echo never");
    let begun = Instant::now();
    let status = env.outpost().start(start.clone()).await?;
    check!(begun.elapsed() < Duration::from_secs(20), "it came back after {:?}", begun.elapsed());
    check_eq!(status.state, State::Running, "the state");
    check!(status.pid > 0, "it has a number");
    check_eq!(env.outpost().info().await?.running, 1, "processes that run");
    env.outpost().kill(vec![start.id.clone()], Duration::ZERO).await?;
    let status = env.ended(&start.id).await?;
    check_eq!(status.state, State::Ended(End::Signaled(9)), "killed without grace");
    Ok(())
}

async fn late_output_of_background_children(env: &Env) -> Done {
    let start = env.shell("(while ! [ -e gate ]; do sleep 0.05; done; echo late; echo lerr >&2) & echo now");
    let ran = env.own(start.clone()).await?;
    check_eq!(ran.out(), "now\n", "at the exit");
    let attach = Attach { from: 0, lossless: true, until_closed: true };
    let mut capture = Capture::unlimited();
    let attached = async { Ok(env.outpost().attach(start.id, attach, &mut capture).await?) };
    let (status, _) = tokio::try_join!(attached, env.own(env.shell("touch gate")))?;
    check_eq!(capture.stdout.to_bytes(), b"now\nlate\n".to_vec(), "stdout in the end");
    check_eq!(capture.stderr.to_bytes(), b"lerr\n".to_vec(), "stderr in the end");
    check!(!status.output.open, "nobody holds it any more");
    Ok(())
}

async fn two_hundred_at_once(env: &Env) -> Done {
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200 {
        let (outpost, start) = (
            env.outpost().clone(),
            env.shell(&format!("echo a{number}; sleep 2; echo b{number} >&2; exit {}", number % 100)),
        );
        calls.spawn(async move {
            let mut capture = Capture::unlimited();
            let status = outpost.run(start, &mut capture).await?;
            Ok::<_, Failure>((number, code(&status), capture.stdout.to_bytes(), capture.stderr.to_bytes()))
        });
    }
    let mut count = 0;
    while let Some(ended) = calls.join_next().await {
        let (number, code, out, err) = ended??;
        let expected =
            (number % 100, format!("a{number}\n").into_bytes(), format!("b{number}\n").into_bytes());
        check_eq!((code, out, err), expected, "process {number}");
        count += 1;
    }
    check_eq!(count, 200, "processes that ended");

    let ids: Vec<_> = (0..200).map(|_| new_process_id()).collect();
    let nap = env.nap(1);
    for id in &ids {
        env.outpost().start(Start { id: id.clone(), ..env.shell(&nap) }).await?;
    }
    env.await_naps(200).await?;
    let results = env.outpost().kill(ids, Duration::from_millis(500)).await?;
    check!(results.len() == 200 && results.iter().all(|r| r.1.killed >= 1 && r.1.left == 0), "{results:?}");
    check_eq!(env.naps().await?, 0, "processes left");
    Ok(())
}

async fn signals_reach_the_process(env: &Env) -> Done {
    let command =
        "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let start = env.shell(command);
    let id = start.id.clone();
    let signalling = async {
        await_log(env, &id, "ready\n").await?;
        env.outpost().signal(id.clone(), 10).await?;
        await_log(env, &id, "ready\nusr1\n").await?;
        env.outpost().signal(id.clone(), 15).await?;
        Ok::<_, Failure>(())
    };
    let (ran, ()) = tokio::try_join!(env.own(start), signalling)?;
    check_eq!((ran.code(), ran.out()), (5, "ready\nusr1\nterm\n".to_owned()), "the output");
    check_eq!(kind_of(env.outpost().signal(id, 15).await)?, Kind::Invalid, "a signal to what has ended");
    Ok(())
}

/// Waits until a process has printed this, and nothing else, to stdout.
pub(super) async fn await_log(env: &Env, id: &farshell_protocol::ProcessId, expected: &str) -> Done {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let view = farshell_protocol::process::View::Only(farshell_protocol::process::Stream::Stdout);
        let found = match env.outpost().read_log(id.clone(), view, 0, 1 << 20).await {
            Ok(piece) => String::from_utf8_lossy(&piece.bytes).into_owned(),
            Err(error) if error.kind == Kind::NotFound => String::new(),
            Err(error) => return Err(error.into()),
        };
        if found == expected {
            return Ok(());
        }
        if Instant::now() > deadline {
            check_eq!(found, expected, "the log of {id} after 20 s");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn the_list_of_processes(env: &Env) -> Done {
    let running = env.shell(&env.nap(1));
    env.outpost().start(running.clone()).await?;
    let ended = env.shell("exit 3");
    env.own(ended.clone()).await?;
    let command = env.command("echo in a session");
    env.run_with(&command).await?;
    let list = env.outpost().processes().await?;
    let found: Vec<_> =
        list.iter().map(|s| (s.id.clone(), code(s), s.title.clone(), s.session.is_some())).collect();
    let expected = vec![
        (running.id.clone(), -1, env.nap(1), false),
        (ended.id, 3, "exit 3".to_owned(), false),
        (command.id, 0, "echo in a session".to_owned(), true),
    ];
    check_eq!(found, expected, "the list");
    env.outpost().kill(vec![running.id], Duration::ZERO).await?;
    Ok(())
}

async fn what_is_not_known_is_said(env: &Env) -> Done {
    let id = new_process_id;
    let outpost = env.outpost();
    let mut unused = Capture::unlimited();
    let size = Size { rows: 1, cols: 1 };
    let view = farshell_protocol::process::View::Arrival;
    check_eq!(kind_of(outpost.status(id()).await)?, Kind::NotFound, "status");
    check_eq!(kind_of(outpost.kill(vec![id()], Duration::ZERO).await)?, Kind::NotFound, "kill");
    check_eq!(kind_of(outpost.signal(id(), 15).await)?, Kind::NotFound, "signal");
    check_eq!(kind_of(outpost.resize(id(), size).await)?, Kind::NotFound, "resize");
    check_eq!(kind_of(outpost.forget(id()).await)?, Kind::NotFound, "forget");
    check_eq!(kind_of(outpost.read_log(id(), view, 0, 1).await)?, Kind::NotFound, "read_log");
    check_eq!(kind_of(outpost.stdin(id(), 0, vec![1], false).await)?, Kind::NotFound, "stdin");
    check_eq!(
        kind_of(outpost.attach(id(), Attach::foreground(), &mut unused).await)?,
        Kind::NotFound,
        "attach"
    );
    Ok(())
}

async fn a_timeout_kills_the_tree(env: &Env) -> Done {
    let command = format!(
        "trap '' TERM; {} & (setsid {} &) ; sh -c 'trap \"\" TERM; {} | {}'; echo never",
        env.nap(1),
        env.nap(2),
        env.nap(3),
        env.nap(4)
    );
    let run = |limit: Duration| {
        let timeout_ms = Some(limit.as_secs() * 1000);
        env.own(Start { timeout_ms, grace_ms: 300, ..env.shell(&command) })
    };
    let ran = env.timed_with_naps(4, run).await?;
    check!(ran.status.timed_out, "the time was up: {:?}", ran.status);
    check_eq!(ran.out(), "", "the output");
    check!(ran.status.kill.is_some_and(|k| k.killed >= 5 && k.left == 0), "{:?}", ran.status.kill);
    check_eq!(env.naps().await?, 0, "processes left");
    Ok(())
}

async fn an_end_leaves_daemons_alone_until_they_are_killed(env: &Env) -> Done {
    let start = env.shell(&format!("setsid {} & exit 0", env.nap(1)));
    env.own(start.clone()).await?;
    env.await_naps(1).await?;
    let results = env.outpost().kill(vec![start.id], Duration::from_millis(300)).await?;
    check_eq!(results.iter().map(|r| (r.1.killed, r.1.left)).collect::<Vec<_>>(), vec![(1, 0)], "the kill");
    check_eq!(env.naps().await?, 0, "processes left");
    Ok(())
}

async fn a_large_command_of_its_own(env: &Env) -> Done {
    for size in [60_000, 70_000, 130_000, 1 << 20] {
        let ran = env.own(env.shell(&format!("v='{}'; echo ${{#v}}", "x".repeat(size)))).await?;
        check_eq!(ran.out(), format!("{size}\n"), "a command of {size} bytes");
    }
    Ok(())
}

async fn a_dropped_call_leaves_the_process_running(env: &Env) -> Done {
    let start = env.shell("echo begun; sleep 1; echo finished");
    let call = env.own(start.clone());
    let dropped = tokio::time::timeout(Duration::from_millis(300), call).await;
    check!(dropped.is_err(), "the call was given up");
    let mut capture = Capture::unlimited();
    let status = env.outpost().attach(start.id, Attach::foreground(), &mut capture).await?;
    check_eq!((code(&status), capture.stdout.to_bytes()), (0, b"begun\nfinished\n".to_vec()), "what it did");
    Ok(())
}

async fn input_by_offset(env: &Env) -> Done {
    let start = Start { stdin: Stdin::Pipe, ..env.exec(&[b"cat"]) };
    let id = start.id.clone();
    let outpost = env.outpost();
    outpost.start(start).await?;
    check_eq!(outpost.stdin(id.clone(), 0, b"abc".to_vec(), false).await?, 3, "taken");
    check_eq!(outpost.stdin(id.clone(), 0, b"abc".to_vec(), false).await?, 3, "taken after a repeat");
    check_eq!(outpost.stdin(id.clone(), 1, b"bcdef".to_vec(), false).await?, 6, "taken after an overlap");
    check_eq!(kind_of(outpost.stdin(id.clone(), 9, b"x".to_vec(), false).await)?, Kind::Invalid, "a hole");
    check_eq!(outpost.stdin(id.clone(), 6, b"\0end".to_vec(), true).await?, 10, "taken in the end");
    check_eq!(outpost.stdin(id.clone(), 6, b"\0end".to_vec(), true).await?, 10, "the end repeated");
    let status = env.ended(&id).await?;
    check_eq!(code(&status), 0, "cat ends when its input does");
    let mut capture = Capture::unlimited();
    outpost.attach(id, Attach::foreground(), &mut capture).await?;
    check_eq!(capture.stdout.to_bytes(), b"abcdef\0end".to_vec(), "what cat printed");
    Ok(())
}

async fn an_end_without_output_is_told_to_who_waits_for_it(env: &Env) -> Done {
    let start = env.shell("for i in 1 2 3; do echo $i; sleep 0.1; done; exit 7");
    env.outpost().start(start.clone()).await?;
    let mut capture = Capture::unlimited();
    let status = env.outpost().attach(start.id.clone(), Attach::end_only(), &mut capture).await?;
    check_eq!((status.state, capture.output.total()), (State::Ended(End::Exited(7)), 0), "while it ran");
    let status = env.outpost().attach(start.id, Attach::end_only(), &mut capture).await?;
    check_eq!((status.state, capture.output.total()), (State::Ended(End::Exited(7)), 0), "afterwards");
    Ok(())
}

async fn a_command_that_ends_its_shell_leaves_nothing_open(env: &Env) -> Done {
    // The next shell is started at the same moment, and must not be seen to hold what belongs to this command.
    for _ in 0..40 {
        let ran = env.run("echo out; /bin/true; exit 3").await?;
        check_eq!((ran.code(), ran.status.output.open), (3, false), "the command");
    }
    Ok(())
}

async fn an_id_that_nobody_wants_any_more_is_never_started(env: &Env) -> Done {
    let outpost = env.outpost();
    let start = env.shell("echo late >late");
    check_eq!(kind_of(outpost.forbid(start.id.clone()).await)?, Kind::NotFound, "before it arrives");
    for _ in 0..2 {
        check_eq!(kind_of(outpost.start(start.clone()).await)?, Kind::AlreadyExists, "when it arrives");
        check_eq!(kind_of(outpost.forbid(start.id.clone()).await)?, Kind::NotFound, "afterwards");
    }
    check_eq!(env.run("test -e late").await?.code(), 1, "what it would have written");
    let known = env.shell("exit 7");
    outpost.start(known.clone()).await?;
    outpost.forbid(known.id.clone()).await?;
    check_eq!(code(&env.ended(&known.id).await?), 7, "one that was there goes on");
    Ok(())
}
