//! Sessions side by side, and commands that wait for one.

use crate::case::{Done, Failure, cases, check, check_eq};
use crate::env::{Env, named};
use farshell_engine::capture::Capture;
use farshell_engine::{Kind, RunOptions};
use farshell_protocol::process::{Attach, OnBusy};
use farshell_protocol::session::Mode;
use std::time::Duration;

cases! {
    Both:
        several_sessions_run_side_by_side,
        a_busy_session_lets_others_wait,
        a_busy_session_refuses_who_does_not_want_to_wait,
        what_a_session_says_of_itself,
        opening_twice_finds_the_same,
        a_closed_session_begins_anew,
        a_command_goes_on_when_nobody_waits_for_it,
        a_hundred_commands_at_once;
}

async fn several_sessions_run_side_by_side(env: &Env) -> Done {
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..8 {
        let name = format!("s{number}");
        let environment = env.environment.clone();
        calls.spawn(async move {
            for step in 0..3 {
                let mut capture = Capture::unlimited();
                // None of them ends before all have begun.
                let command = format!(
                    "export N=$((N+1)); touch begun-{step}-{number}; \
                     while [ $(ls | grep -c begun-{step}-) -lt 8 ]; do sleep 0.05; done; echo {number} $N"
                );
                environment.run(&RunOptions::new(named(&name), command), &mut capture).await?;
                let out = String::from_utf8_lossy(&capture.stdout.to_bytes()).into_owned();
                check_eq!(out, format!("{number} {}\n", step + 1), "session {number}");
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended??;
    }
    Ok(())
}

async fn a_busy_session_lets_others_wait(env: &Env) -> Done {
    env.run("true").await?;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..10 {
        let environment = env.environment.clone();
        let options = env.command(format!("echo {number} >>order; sleep 0.05; echo {number}"));
        calls.spawn(async move {
            let mut capture = Capture::unlimited();
            environment.run(&options, &mut capture).await?;
            check_eq!(capture.stdout.to_bytes(), format!("{number}\n").into_bytes(), "command {number}");
            Ok::<_, Failure>(())
        });
        // Sent one after the other, so that their order is known.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while let Some(ended) = calls.join_next().await {
        ended??;
    }
    env.says("tr -d '\\n' <order", "0123456789").await
}

async fn a_busy_session_refuses_who_does_not_want_to_wait(env: &Env) -> Done {
    env.run("true").await?;
    let busy = env.command(env.nap(1));
    let outpost = env.outpost();
    let refused = async {
        env.await_naps(1).await?;
        let options = RunOptions { on_busy: OnBusy::Refuse, ..env.command("touch ran") };
        let mut unused = Capture::unlimited();
        let refused = env.environment.run(&options, &mut unused).await;
        outpost.kill(vec![busy.id.clone()], Duration::ZERO).await?;
        match refused {
            Err(error) => check_eq!(error.kind, Kind::Busy, "the kind of the error"),
            Ok(status) => check!(false, "it ran: {status:?}"),
        }
        Ok::<_, Failure>(())
    };
    tokio::try_join!(env.run_with(&busy), refused)?;
    let options = RunOptions { on_busy: OnBusy::Refuse, ..env.command("ls; echo free") };
    check_eq!(env.run_with(&options).await?.out(), "free\n", "afterwards");
    Ok(())
}

async fn what_a_session_says_of_itself(env: &Env) -> Done {
    env.run("cd /usr").await?;
    env.run("true").await?;
    let list = env.outpost().sessions().await?;
    check_eq!(list.len(), 1, "sessions");
    let info = &list[0];
    let found = (info.name.clone(), info.mode, info.shell.clone(), info.cwd.clone(), info.commands);
    check_eq!(
        found,
        (env.session(), env.mode, env.shell_name().to_owned(), b"/usr".to_vec(), 2),
        "the session"
    );
    if env.mode == Mode::Live {
        check_eq!((info.busy, info.queued, info.restarts), (false, 0, 0), "busy, queued, restarts");
        env.gives("exit 1", 1, "", "").await?;
        env.run("true").await?;
        check_eq!(env.outpost().sessions().await?[0].restarts, 1, "restarts after an exit");
    }
    Ok(())
}

async fn opening_twice_finds_the_same(env: &Env) -> Done {
    check!(env.outpost().open_session(env.opening("twice")).await?.created, "opened");
    env.run_with(&RunOptions::new(named("twice"), "export A=1; cd /usr")).await?;
    let info = env.outpost().open_session(env.opening("twice")).await?;
    check_eq!((info.created, info.cwd), (false, b"/usr".to_vec()), "opened again");
    let ran = env.run_with(&RunOptions::new(named("twice"), "echo $A $PWD")).await?;
    check_eq!(ran.out(), "1 /usr\n", "its state");
    Ok(())
}

async fn a_closed_session_begins_anew(env: &Env) -> Done {
    env.says("export A=1; cd /usr", "").await?;
    env.outpost().close_session(env.session()).await?;
    check_eq!(env.outpost().sessions().await?.len(), 0, "sessions");
    match env.outpost().close_session(env.session()).await {
        Err(error) => check_eq!(error.kind, Kind::NotFound, "closing it again"),
        Ok(()) => check!(false, "it was closed twice"),
    }
    env.says("echo [$A] $PWD", &format!("[] {}\n", env.dir)).await
}

async fn a_command_goes_on_when_nobody_waits_for_it(env: &Env) -> Done {
    env.run("true").await?;
    let options = env.command("echo begun; sleep 1; echo finished; export A=1");
    let dropped = tokio::time::timeout(Duration::from_millis(300), env.run_with(&options)).await;
    check!(dropped.is_err(), "the call was given up");
    env.says("echo $A", "1\n").await?;
    let mut capture = Capture::unlimited();
    env.outpost().attach(options.id.clone(), Attach::foreground(), &mut capture).await?;
    check_eq!(capture.stdout.to_bytes(), b"begun\nfinished\n".to_vec(), "its output");
    Ok(())
}

async fn a_hundred_commands_at_once(env: &Env) -> Done {
    env.run("true").await?;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..100 {
        let environment = env.environment.clone();
        let options = env.command(format!("export N=$((N+1)); echo {number}; exit {}", number % 5));
        calls.spawn(async move {
            let mut capture = Capture::unlimited();
            let status = environment.run(&options, &mut capture).await?;
            let found = (crate::env::code(&status), capture.stdout.to_bytes());
            check_eq!(found, (number % 5, format!("{number}\n").into_bytes()), "command {number}");
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended??;
    }
    env.says("echo $N", "100\n").await
}
