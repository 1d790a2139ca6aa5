//! Timeouts and kills: everything that descends from a command ends, nothing else does.

use crate::case::{Done, Failure, cases, check, check_eq};
use crate::env::{Env, Ran};
use farshell_engine::capture::{Capture, Discard};
use farshell_engine::{Kind, RunOptions};
use farshell_protocol::process::State;
use std::time::Duration;

/// Long enough for a busy machine to have started everything that is to be killed.
const LIMIT: Duration = Duration::from_secs(3);
/// Long enough for a shell on a busy machine to save its state and to end.
const GRACE: Duration = Duration::from_secs(10);
/// No sleep of these cases is shorter: who returns earlier was killed.
const PROMPT: Duration = Duration::from_secs(25);

cases! {
    Live:
        timeout_keeps_the_state_of_the_interrupted_command,
        timeout_of_a_builtin_loop_keeps_the_state,
        timeout_of_a_shell_that_ignores_everything,
        interrupt_keeps_the_session,
        closing_a_session_kills_its_command;
    Both:
        hermes_3_timeout_keeps_partial_output,
        timeout_lets_nothing_after_run,
        timeout_of_a_builtin_loop,
        hermes_84967_timeout_leaves_no_tree,
        timeout_finds_daemons_without_a_trace,
        timeout_finds_those_that_change_their_limits,
        timeout_of_a_fork_storm,
        timeout_of_endless_output,
        timeout_spares_earlier_background_jobs,
        timeout_spares_other_sessions,
        a_program_may_clean_up_when_its_time_is_up,
        timeout_of_stopped_processes,
        kill_on_request_counts,
        kill_of_a_command_that_waits,
        a_timeout_that_is_not_reached,
        kill_of_what_has_ended_finds_its_daemons,
        an_exec_in_the_shell_is_killed_too,
        a_plain_command_is_never_run_twice,
        an_interrupt_that_comes_early_is_not_lost,
        a_kill_that_comes_early_is_not_lost;
}

/// What the command itself said. The shell reports a program that a signal ended in words of its own, as it does on
/// every terminal.
fn without_notices(stderr: &str) -> String {
    let notice = |line: &str| {
        let shell = line == "Terminated" || line == "Killed" || line.starts_with("bash: line ");
        shell && (line.contains("Terminated") || line.contains("Killed"))
    };
    stderr.split_inclusive('\n').filter(|line| !notice(line.trim_end())).collect()
}

fn killed(ran: &Ran) -> Result<u32, Failure> {
    check!(ran.status.timed_out, "the status says that the time was up: {:?}", ran.status);
    check!(matches!(ran.status.state, State::Ended(_)), "it has ended: {:?}", ran.status.state);
    check!(ran.took < PROMPT, "it came back after {:?}", ran.took);
    let Some(killed) = ran.status.kill else {
        return Err(Failure::new("the status says nothing about the kill"));
    };
    check_eq!(killed.left, 0, "processes left, by the outpost's count");
    Ok(killed.killed)
}

async fn timeout_keeps_the_state_of_the_interrupted_command(env: &Env) -> Done {
    env.says("E=kept; f(){ echo f:$1; }", "").await?;
    let command = format!("export T1=set; cd /usr; echo before; {}; echo never; export T2=no", env.nap(1));
    let ran =
        env.run_with(&RunOptions { grace: GRACE, timeout: Some(LIMIT), ..env.command(command) }).await?;
    killed(&ran)?;
    check_eq!(ran.out(), "before\n", "the output");
    env.says("echo $T1 [$T2] $PWD $E", "set [] /usr kept\n").await?;
    if env.subject.bash() { env.says("f t", "f:t\n").await } else { Ok(()) }
}

async fn timeout_of_a_builtin_loop_keeps_the_state(env: &Env) -> Done {
    env.says("E=kept", "").await?;
    let command = env.command("T=loop; while :; do :; done");
    killed(&env.run_with(&RunOptions { grace: GRACE, timeout: Some(LIMIT), ..command }).await?)?;
    env.says("echo $T $E", "loop kept\n").await
}

async fn timeout_of_a_shell_that_ignores_everything(env: &Env) -> Done {
    env.says("E=kept; f(){ echo f; }", "").await?;
    let command =
        "T=lost; for s in $(seq 64); do trap '' $s; done 2>/dev/null; trap '' EXIT; while :; do :; done";
    let ran = env.timed(command, LIMIT).await?;
    killed(&ran)?;
    check!(ran.status.shell_restarted, "the status says that the shell was started anew");
    check!(ran.status.state_lost, "the status says that the command's changes are lost");
    env.says("echo [$T] $E", "[] kept\n").await?;
    if env.subject.bash() { env.says("f", "f\n").await } else { Ok(()) }
}

async fn interrupt_keeps_the_session(env: &Env) -> Done {
    env.says("E=kept", "").await?;
    let options = env.command(format!("T=set; echo begun; {}; echo never", env.nap(1)));
    let interrupting = async {
        env.await_naps(1).await?;
        Ok::<_, Failure>(env.outpost().signal(options.id.clone(), 2).await?)
    };
    let (ran, ()) = tokio::try_join!(env.run_with(&options), interrupting)?;
    check_eq!((ran.code(), ran.out()), (130, "begun\n".to_owned()), "a command that was interrupted");
    check!(!ran.status.timed_out, "that is no timeout");
    env.says("echo $T $E", "set kept\n").await?;
    check_eq!(env.naps().await?, 0, "processes left");
    Ok(())
}

async fn closing_a_session_kills_its_command(env: &Env) -> Done {
    env.says("true", "").await?;
    let options = env.command(format!("setsid {} & {}", env.nap(1), env.nap(2)));
    let waiting = env.command("echo never");
    let mut unused = Capture::unlimited();
    let queued = async {
        // After the first, so that it waits.
        env.await_naps(2).await?;
        Ok::<_, Failure>(env.environment.run(&waiting, &mut unused).await)
    };
    let closing = async {
        while env.outpost().status(waiting.id.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok::<_, Failure>(env.outpost().close_session(env.session()).await?)
    };
    let (ran, queued, ()) = tokio::try_join!(env.run_with(&options), queued, closing)?;
    check!(ran.took < PROMPT, "the command ended");
    match queued {
        Err(error) => check_eq!(error.kind, Kind::NotStarted, "the command that waited"),
        Ok(status) => check!(false, "the command that waited ran: {status:?}"),
    }
    env.await_naps(0).await?;
    env.says("echo new", "new\n").await
}

async fn hermes_3_timeout_keeps_partial_output(env: &Env) -> Done {
    let ran = env.timed(&format!("echo partial; echo e >&2; {}", env.nap(1)), LIMIT).await?;
    killed(&ran)?;
    check_eq!(
        (ran.out(), without_notices(&ran.err())),
        ("partial\n".to_owned(), "e\n".to_owned()),
        "the output so far"
    );
    check_eq!(env.naps().await?, 0, "processes left");
    env.says("echo next", "next\n").await
}

async fn timeout_lets_nothing_after_run(env: &Env) -> Done {
    for command in [
        "sleep 1000; echo after >>after; echo after",
        "sleep 1000 | cat; echo after",
        "(sleep 1000); echo after",
        "sleep 1000 || echo after",
        "while sleep 1000 || true; do echo after; done",
        "f(){ sleep 1000; echo after; }; f",
        "x=$(sleep 1000; echo after); echo \"after $x\"",
        "for i in 1 2 3; do sleep 1000; echo after; done",
    ] {
        let ran = env.timed(command, Duration::from_millis(500)).await?;
        killed(&ran)?;
        check_eq!((ran.out(), without_notices(&ran.err())), (String::new(), String::new()), "{command:?}");
        check!(ran.code() != 0, "{command:?} did not succeed");
    }
    env.says("cat after 2>/dev/null || echo nothing", "nothing\n").await
}

async fn timeout_of_a_builtin_loop(env: &Env) -> Done {
    env.says("export E=kept", "").await?;
    let ran = env.timed("while :; do :; done", Duration::from_millis(500)).await?;
    killed(&ran)?;
    env.says("echo $E", "kept\n").await
}

async fn hermes_84967_timeout_leaves_no_tree(env: &Env) -> Done {
    let nap = |n| env.nap(n);
    let command = format!(
        "trap '' TERM INT HUP; (trap '' TERM; {} & {}) & setsid {} & ({} &); sh -c 'trap \"\" TERM; {} | {}' & {}",
        nap(1),
        nap(2),
        nap(3),
        nap(4),
        nap(5),
        nap(6),
        nap(7)
    );
    let ran = env.timed_with_naps(7, |limit| env.timed(&command, limit)).await?;
    let count = killed(&ran)?;
    check_eq!(env.naps().await?, 0, "processes left");
    check!(count >= 7, "{count} were killed, by the outpost's count");
    env.says("trap - TERM INT HUP; echo next", "next\n").await
}

async fn timeout_finds_daemons_without_a_trace(env: &Env) -> Done {
    // Own session, no parent, no environment, no descriptors, another directory.
    let daemon = |n| {
        format!(
            "(cd /; setsid env -i sh -c '(trap \"\" TERM HUP; exec {} </dev/null >/dev/null 2>&1) & exit' &)",
            env.nap(n)
        )
    };
    let command = format!("{}; {}; {}", daemon(1), daemon(2), env.nap(3));
    let ran = env.timed_with_naps(3, |limit| env.timed(&command, limit)).await?;
    killed(&ran)?;
    check_eq!(env.naps().await?, 0, "processes left");
    Ok(())
}

async fn timeout_finds_those_that_change_their_limits(env: &Env) -> Done {
    // Which shells can set depends on the shell, and whether it may be raised again on who one is.
    let limits = "{ ulimit -x 5; ulimit -m 5; } 2>/dev/null";
    let command =
        format!("({limits}; setsid {} &); {limits}; (setsid {} &); {}", env.nap(1), env.nap(2), env.nap(3));
    // The second time the session's own shell has them from its beginning.
    for _ in 0..2 {
        let ran = env.timed_with_naps(3, |limit| env.timed(&command, limit)).await?;
        killed(&ran)?;
        check_eq!(env.naps().await?, 0, "processes left");
    }
    // What belongs to others is spared, whatever its limits are.
    env.run(format!("{limits}; {} & (setsid {} &)", env.nap(1), env.nap(2))).await?;
    env.await_naps(2).await?;
    // The kernel tells the age of a process in hundredths of a second.
    tokio::time::sleep(Duration::from_millis(50)).await;
    killed(&env.timed(&env.nap(3), Duration::from_millis(700)).await?)?;
    check_eq!(env.naps().await?, 2, "jobs of the command before");
    Ok(())
}

async fn timeout_of_a_fork_storm(env: &Env) -> Done {
    // Forks faster than anyone could list, but never more than a few hundred at a time.
    let storm = format!(
        "trap '' TERM; ({}) & i=0; while :; do (trap '' TERM; sleep 0.0$((i++ % 9))) & \
         while [ $(jobs -rp | wc -l) -gt 50 ]; do sleep 0.01; done; done",
        env.nap(1)
    );
    killed(&env.timed(&storm, Duration::from_secs(2)).await?)?;
    check_eq!(env.naps().await?, 0, "processes left");
    env.says("trap - TERM; echo next", "next\n").await
}

async fn timeout_of_endless_output(env: &Env) -> Done {
    let options = RunOptions { timeout: Some(LIMIT), ..env.command("yes; echo never") };
    let status = env.environment.run(&options, &mut Discard).await?;
    check!(status.timed_out && status.output.stdout > 0, "{status:?}");
    env.says("echo next", "next\n").await
}

async fn timeout_spares_earlier_background_jobs(env: &Env) -> Done {
    env.run(format!("{} & ({} &); setsid {} &", env.nap(1), env.nap(2), env.nap(3))).await?;
    env.await_naps(3).await?;
    killed(&env.timed(&env.nap(4), Duration::from_millis(700)).await?)?;
    check_eq!(env.naps().await?, 3, "jobs of the command before");
    Ok(())
}

async fn timeout_spares_other_sessions(env: &Env) -> Done {
    env.outpost().open_session(env.opening("other")).await?;
    let other = RunOptions::new(crate::env::named("other"), "sleep 2; echo unharmed");
    let limit = Duration::from_millis(500);
    let command = env.nap(1);
    let (ran, timed) = tokio::join!(env.run_with(&other), env.timed(&command, limit));
    killed(&timed?)?;
    check_eq!(ran?.out(), "unharmed\n", "the other session's command");
    Ok(())
}

async fn a_program_may_clean_up_when_its_time_is_up(env: &Env) -> Done {
    let command = "sh -c 'trap \"echo cleaned; exit 3\" TERM; echo begun; while :; do sleep 0.05; done'";
    let options = RunOptions { timeout: Some(LIMIT), grace: GRACE, ..env.command(command) };
    let ran = env.run_with(&options).await?;
    killed(&ran)?;
    check_eq!(ran.out(), "begun\ncleaned\n", "the output");
    Ok(())
}

async fn timeout_of_stopped_processes(env: &Env) -> Done {
    let command = format!("{} & kill -STOP $!; ({} & kill -STOP $!) ; wait", env.nap(1), env.nap(2));
    killed(&env.timed(&command, LIMIT).await?)?;
    check_eq!(env.naps().await?, 0, "processes left");
    Ok(())
}

async fn kill_on_request_counts(env: &Env) -> Done {
    env.says("true", "").await?;
    let options = env.command(format!("{} | {} & {}; echo never", env.nap(1), env.nap(2), env.nap(3)));
    let killing = async {
        env.await_naps(3).await?;
        Ok::<_, Failure>(env.outpost().kill(vec![options.id.clone()], Duration::from_millis(300)).await?)
    };
    let (ran, results) = tokio::try_join!(env.run_with(&options), killing)?;
    check_eq!(results.len(), 1, "results");
    check!(results[0].1.killed >= 3, "three processes were there: {results:?}");
    check_eq!(results[0].1.left, 0, "processes left, by the outpost's count");
    check_eq!(ran.out(), "", "the output");
    check!(!ran.status.timed_out, "that is no timeout");
    check_eq!(env.naps().await?, 0, "processes left");
    env.says("echo next", "next\n").await
}

async fn kill_of_a_command_that_waits(env: &Env) -> Done {
    env.says("true", "").await?;
    let first = env.command("while ! [ -e gate ]; do sleep 0.05; done; echo first");
    let second = env.command("touch ran; echo second");
    let outpost = env.outpost();
    let mut unused = Capture::unlimited();
    let waiting = async {
        // After the first, so that it waits.
        while !outpost.status(first.id.clone()).await.is_ok_and(|status| status.state == State::Running) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok::<_, Failure>(env.environment.run(&second, &mut unused).await)
    };
    let killing = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            match outpost.status(second.id.clone()).await {
                Ok(_) => break,
                Err(error) if error.kind == Kind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        outpost.kill(vec![second.id.clone()], Duration::ZERO).await?;
        env.own(env.shell("touch gate")).await
    };
    let (ran, waited, killed) = tokio::join!(env.run_with(&first), waiting, killing);
    check_eq!(ran?.out(), "first\n", "the command before it");
    killed?;
    match waited? {
        Err(error) => check_eq!(error.kind, Kind::NotStarted, "the kind of the error"),
        Ok(status) => check!(false, "it ran: {status:?}"),
    }
    env.says("[ -e ran ] || echo not", "not\n").await
}

async fn a_timeout_that_is_not_reached(env: &Env) -> Done {
    let ran = env.timed("echo quick", Duration::from_secs(30)).await?;
    check_eq!(
        (ran.code(), ran.out(), ran.status.timed_out),
        (0, "quick\n".to_owned(), false),
        "a quick command"
    );
    check!(ran.took < PROMPT, "it does not wait for its limit: {:?}", ran.took);
    let ran = env.timed("sleep 1; echo late", Duration::from_secs(30)).await?;
    check_eq!(
        (ran.code(), ran.out(), ran.status.timed_out),
        (0, "late\n".to_owned(), false),
        "a slower command"
    );
    Ok(())
}

async fn kill_of_what_has_ended_finds_its_daemons(env: &Env) -> Done {
    let options = env.command(format!("setsid {} & ({} &)", env.nap(1), env.nap(2)));
    env.run_with(&options).await?;
    env.await_naps(2).await?;
    let results = env.outpost().kill(vec![options.id.clone()], Duration::from_millis(300)).await?;
    check_eq!(results.iter().map(|r| (r.1.killed, r.1.left)).collect::<Vec<_>>(), vec![(2, 0)], "the kill");
    check_eq!(env.naps().await?, 0, "processes left");
    env.says("echo next", "next\n").await
}

async fn an_exec_in_the_shell_is_killed_too(env: &Env) -> Done {
    let ran = env.timed(&format!("echo x; exec {}", env.nap(1)), LIMIT).await?;
    killed(&ran)?;
    check_eq!(ran.out(), "x\n", "the output");
    check_eq!(env.naps().await?, 0, "processes left");
    env.says("echo next", "next\n").await
}

async fn a_plain_command_is_never_run_twice(env: &Env) -> Done {
    let make = |name: &str, body: &str| {
        format!("printf '#!/bin/sh\\necho x >>{name}.runs\\n{body}\\n' >{name}; chmod +x {name}")
    };
    env.says(&make("waits", &format!("exec {}", env.nap(1))), "").await?;
    env.says(&make("kills", "kill -9 $PPID"), "").await?;
    env.says(&make("ends", "kill -15 $PPID; sleep 0.2"), "").await?;
    // Once before, so that the shell knows its way.
    env.says("true", "").await?;
    killed(&env.timed("./waits", LIMIT).await?)?;
    env.says("true", "").await?;
    check!(env.run("./kills").await?.code() != 0, "a command that kills its shell does not succeed");
    env.says("true", "").await?;
    env.run("./ends").await?;
    env.says("cat waits.runs kills.runs ends.runs", "x\nx\nx\n").await?;
    check_eq!(env.naps().await?, 0, "processes left");
    Ok(())
}

async fn an_interrupt_that_comes_early_is_not_lost(env: &Env) -> Done {
    for _ in 0..15 {
        let options = env.command(env.nap(1));
        let early = async {
            loop {
                match env.outpost().signal(options.id.clone(), 2).await {
                    // Not there yet.
                    Err(error) if matches!(error.kind, Kind::NotFound | Kind::Invalid) => {
                        tokio::task::yield_now().await;
                    }
                    other => return Ok::<_, Failure>(other?),
                }
            }
        };
        let (ran, ()) = tokio::try_join!(env.run_with(&options), early)?;
        check_eq!(ran.code(), 130, "the command");
        check!(ran.took < PROMPT, "it was interrupted, after {:?}", ran.took);
        env.await_naps(0).await?;
    }
    Ok(())
}

async fn a_kill_that_comes_early_is_not_lost(env: &Env) -> Done {
    for _ in 0..25 {
        let options = env.command(env.nap(1));
        let early = async {
            loop {
                let status = env.outpost().status(options.id.clone()).await;
                if status.is_ok_and(|status| status.state == State::Running) {
                    break;
                }
                tokio::task::yield_now().await;
            }
            Ok::<_, Failure>(env.outpost().kill(vec![options.id.clone()], Duration::ZERO).await?)
        };
        let (ran, killed) = tokio::try_join!(env.run_with(&options), early)?;
        check!(killed.iter().all(|(_, killed)| killed.left == 0), "{killed:?}");
        check!(ran.took < PROMPT, "it was killed, after {:?}", ran.took);
        env.await_naps(0).await?;
    }
    Ok(())
}
