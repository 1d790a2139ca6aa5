//! Processes with a terminal.

use super::processes::await_log;
use crate::case::{Done, Failure, cases, check, check_eq};
use crate::env::{Env, process};
use farshell_engine::Kind;
use farshell_engine::capture::Capture;
use farshell_protocol::process::{Attach, Size, Start, Stdin, Surroundings, WaitingFor, What};
use std::time::Duration;

cases! {
    Any:
        hermes_81756_a_terminal_is_one,
        its_size_can_be_changed,
        control_c_interrupts,
        control_d_ends_the_input,
        a_program_without_a_terminal_can_not_be_resized,
        killing_what_runs_in_a_terminal,
        output_up_to_the_end_is_kept,
        a_terminal_from_a_sessions_state,
        who_waits_for_input_is_seen;
}

const SIZE: Size = Size { rows: 24, cols: 80 };

fn in_terminal(env: &Env, command: &str) -> Start {
    let surroundings = Surroundings { pty: Some(SIZE), ..env.surroundings() };
    let what = What::Shell { command: command.into(), session: None, surroundings };
    Start { stdin: Stdin::Pipe, ..process(what) }
}

async fn hermes_81756_a_terminal_is_one(env: &Env) -> Done {
    let ran = env
        .own(in_terminal(env, "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo tty; stty size; echo err >&2"))
        .await?;
    check_eq!((ran.out(), ran.err()), ("tty\r\n24 80\r\nerr\r\n".to_owned(), String::new()), "in a terminal");
    Ok(())
}

async fn its_size_can_be_changed(env: &Env) -> Done {
    let start = in_terminal(
        env,
        "stty -echo; trap 'echo winch' WINCH; stty size; until read x; do :; done; stty size",
    );
    let id = start.id.clone();
    let outpost = env.outpost();
    outpost.start(start).await?;
    await_log(env, &id, "24 80\r\n").await?;
    outpost.resize(id.clone(), Size { rows: 50, cols: 132 }).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    outpost.stdin(id.clone(), 0, b"go\n".to_vec(), false).await?;
    env.ended(&id).await?;
    let mut capture = Capture::unlimited();
    outpost.attach(id, Attach { from: 0, lossless: true, until_closed: true }, &mut capture).await?;
    let out = String::from_utf8_lossy(&capture.stdout.to_bytes()).into_owned();
    check!(out.ends_with("50 132\r\n"), "the size afterwards: {out:?}");
    check!(out.contains("winch"), "the process was told: {out:?}");
    Ok(())
}

async fn control_c_interrupts(env: &Env) -> Done {
    let command = format!("trap 'echo interrupted; exit 4' INT; echo ready; {}", env.nap(1));
    let start = in_terminal(env, &command);
    let id = start.id.clone();
    let sending = async {
        await_log(env, &id, "ready\r\n").await?;
        env.await_naps(1).await?;
        env.outpost().stdin(id.clone(), 0, b"\x03".to_vec(), false).await?;
        Ok::<_, Failure>(())
    };
    let (ran, ()) = tokio::try_join!(env.own(start), sending)?;
    check_eq!(ran.code(), 4, "the trap ran");
    check!(ran.out().ends_with("interrupted\r\n"), "{:?}", ran.out());
    env.await_naps(0).await
}

async fn control_d_ends_the_input(env: &Env) -> Done {
    let start = in_terminal(env, "stty -echo; echo ready; cat; echo end");
    let id = start.id.clone();
    let sending = async {
        await_log(env, &id, "ready\r\n").await?;
        env.outpost().stdin(id.clone(), 0, b"line\n\x04".to_vec(), false).await?;
        Ok::<_, Failure>(())
    };
    let (ran, ()) = tokio::try_join!(env.own(start), sending)?;
    check_eq!(ran.out(), "ready\r\nline\r\nend\r\n", "the dialogue");
    Ok(())
}

async fn a_program_without_a_terminal_can_not_be_resized(env: &Env) -> Done {
    let start = env.shell(&env.nap(1));
    env.outpost().start(start.clone()).await?;
    match env.outpost().resize(start.id.clone(), SIZE).await {
        Err(error) => check_eq!(error.kind, Kind::Invalid, "the kind of the error"),
        Ok(()) => check!(false, "it was resized"),
    }
    env.outpost().kill(vec![start.id], Duration::ZERO).await?;
    Ok(())
}

async fn killing_what_runs_in_a_terminal(env: &Env) -> Done {
    let start = in_terminal(env, &format!("set -m; {} & {} | {}", env.nap(1), env.nap(2), env.nap(3)));
    let id = start.id.clone();
    env.outpost().start(start).await?;
    env.await_naps(3).await?;
    let results = env.outpost().kill(vec![id.clone()], Duration::from_millis(300)).await?;
    check!(results.iter().all(|r| r.1.killed >= 4 && r.1.left == 0), "{results:?}");
    env.ended(&id).await?;
    check_eq!(env.naps().await?, 0, "processes left");
    Ok(())
}

async fn output_up_to_the_end_is_kept(env: &Env) -> Done {
    for _ in 0..5 {
        let start = in_terminal(env, "seq 1 5000");
        let ran = env.own(start).await?;
        let expected: String = (1..=5000).map(|i| format!("{i}\r\n")).collect();
        check_eq!(ran.out(), expected, "all lines");
    }
    Ok(())
}

async fn a_terminal_from_a_sessions_state(env: &Env) -> Done {
    env.says("who=you", "").await?;
    let surroundings = Surroundings { pty: Some(SIZE), cwd: None, ..env.surroundings() };
    let what = What::Shell {
        command: b"echo hello $who; [ -t 1 ] && pwd".to_vec(),
        session: Some(env.session()),
        surroundings,
    };
    let ran = env.own(process(what)).await?;
    check_eq!(ran.out(), format!("hello you\r\n{}\r\n", env.dir), "in a terminal");
    Ok(())
}

async fn who_waits_for_input_is_seen(env: &Env) -> Done {
    // Typed for each step: what it waits for, the line it gets.
    let script = "read a; sleep 0.3; stty -echo; read b; stty echo; cat | (read c); echo got $a $b";
    let start = in_terminal(env, script);
    let id = start.id.clone();
    let outpost = env.outpost();
    outpost.start(start).await?;
    let mut sent = 0;
    for (waits, line) in
        [(WaitingFor::Input, "one\n"), (WaitingFor::Secret, "two\n"), (WaitingFor::Input, "three\n\x04")]
    {
        let mut seen = None;
        for _ in 0..500 {
            seen = outpost.status(id.clone()).await?.waiting_for;
            if seen == Some(waits) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        check_eq!(seen, Some(waits), "before {line:?}");
        sent = outpost.stdin(id.clone(), sent, line.as_bytes().to_vec(), false).await?;
    }
    let status = env.ended(&id).await?;
    check_eq!(status.waiting_for, None, "nobody waits any more");
    // One that computes, and one that sleeps, wait for nothing.
    let busy = in_terminal(env, &env.nap(1));
    outpost.start(busy.clone()).await?;
    env.await_naps(1).await?;
    check_eq!(outpost.status(busy.id.clone()).await?.waiting_for, None, "a sleeper");
    outpost.kill(vec![busy.id], Duration::ZERO).await?;
    Ok(())
}
