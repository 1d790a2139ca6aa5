//! Connections, clients and outposts that die in the middle.

use crate::case::{Done, Failure, cases, check, check_eq};
use crate::env::{Env, code};
use crate::helper::{self, Keep};
use crate::sinks::{LINE, Numbered, numbered};
use farshell_engine::capture::{Capture, Discard};
use farshell_engine::client::new_process_id;
use farshell_engine::{Kind, RunOptions};
use farshell_protocol::process::{Attach, Stdin};
use std::time::Duration;

/// 50 MB.
const LINES: u64 = 5_000_000;
/// 20 MB.
const FEWER: u64 = 2_000_000;

cases! {
    Live:
        a_lost_outpost_is_an_unknown_outcome needs Wake,
        the_next_command_finds_a_new_outpost needs Wake;
    Both:
        lost_connections_cost_no_byte @ 300,
        a_lost_connection_while_nothing_is_printed,
        state_outlives_connections,
        input_outlives_connections;
    Any:
        hermes_41225_a_killed_client_is_continued @ 120,
        a_gibibyte_with_bounded_memory @ 180,
        a_second_client_sees_the_same,
        a_lost_outpost_ends_background_processes_and_is_said needs Wake;
}

/// Drops the connection again and again until the other future is done.
async fn with_losses<T>(env: &Env, pause: Duration, work: impl Future<Output = T>) -> (T, u32) {
    let mut losses = 0;
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (done, losses),
            // Longer from time to time: where a connection takes long to make, one must last long enough in the end.
            () = tokio::time::sleep(pause * (1 + losses / 20)) => {
                env.outpost().disconnect();
                losses += 1;
            }
        }
    }
}

async fn lost_connections_cost_no_byte(env: &Env) -> Done {
    env.run("true").await?;
    let options = env.command(format!("echo x >>runs; {}; exit 3", numbered(LINES)));
    let mut sink = Numbered::from(0);
    let run = env.environment.run(&options, &mut sink);
    let (status, losses) = with_losses(env, Duration::from_millis(20), run).await;
    let status = status?;
    check_eq!((sink.at, sink.wrong, sink.gaps), (LINES * LINE, None, 0), "bytes, first wrong one, gaps");
    check_eq!((code(&status), status.output.stdout), (3, LINES * LINE), "the status");
    check!(losses > 2, "the connection was lost only {losses} times");
    env.says("wc -l <runs", "1\n").await
}

async fn a_lost_connection_while_nothing_is_printed(env: &Env) -> Done {
    env.run("true").await?;
    let options = env.command("echo x >>runs; echo begun; sleep 1; echo finished");
    let (ran, losses) = with_losses(env, Duration::from_millis(100), env.run_with(&options)).await;
    check_eq!(ran?.out(), "begun\nfinished\n", "the output");
    check!(losses > 2, "the connection was lost only {losses} times");
    env.says("wc -l <runs", "1\n").await
}

async fn state_outlives_connections(env: &Env) -> Done {
    env.says("export A=1; cd /usr", "").await?;
    for _ in 0..20 {
        env.outpost().disconnect();
        env.says("echo $A $PWD", "1 /usr\n").await?;
    }
    Ok(())
}

async fn input_outlives_connections(env: &Env) -> Done {
    env.run("true").await?;
    let options = RunOptions { stdin: Stdin::Pipe, ..env.command("cat") };
    let feeding = async {
        let mut offset = 0;
        while offset < 50 {
            match env.outpost().stdin(options.id.clone(), offset, b"0123456789".to_vec(), offset == 40).await
            {
                Ok(taken) => offset = taken,
                Err(error) if error.kind == Kind::NotFound => {}
                Err(error) => return Err(error),
            }
            env.outpost().disconnect();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    };
    let (ran, fed) = tokio::join!(env.run_with(&options), feeding);
    fed?;
    check_eq!(ran?.out(), "0123456789".repeat(5), "what cat printed");
    Ok(())
}

async fn hermes_41225_a_killed_client_is_continued(env: &Env) -> Done {
    // One moment of death each, from before the first byte to late in the stream.
    for moment in [5, 60, 150, 300, 700] {
        let id = new_process_id();
        let runs = env.path("runs");
        let file = env.home.join(format!("got-{moment}"));
        let command = format!("echo x >>{runs}; {}; exit 3", numbered(FEWER));
        let mut client = helper::spawn(env, &id, &command, &file, Keep::Bytes)?;
        // It is there when its process is known.
        loop {
            match env.outpost().status(id.clone()).await {
                Ok(_) => break,
                Err(error) if error.kind == Kind::NotFound => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        tokio::time::sleep(Duration::from_millis(moment)).await;
        client.kill()?;
        client.wait()?;
        let got = std::fs::read(&file)?;
        let mut sink = Numbered::from(0);
        sink.push(&got);
        check_eq!(sink.wrong, None, "what the client got before it was killed");
        let from = sink.at;
        let status = env.outpost().attach(id, Attach { from, ..Attach::foreground() }, &mut sink).await?;
        check_eq!((sink.at, sink.wrong, sink.gaps), (FEWER * LINE, None, 0), "continued from {from}");
        check_eq!(code(&status), 3, "the code");
        std::fs::remove_file(file)?;
    }
    env.await_file("runs", &"x\n".repeat(5)).await
}

async fn a_gibibyte_with_bounded_memory(env: &Env) -> Done {
    const BYTES: u64 = 1 << 30;
    const LIMIT_KIB: u64 = 32 << 10;
    let pid = env.outpost().info().await?.identity.pid;
    let status = format!("/proc/{pid}/status");
    let peak = async || helper::peak_of(&env.own(env.exec(&[b"cat", status.as_bytes()])).await?.out());
    let before = peak().await?;
    let file = env.home.join("count");
    let command = format!("head -c {BYTES} /dev/zero");
    let mut client = helper::spawn(env, &new_process_id(), &command, &file, Keep::Count)?;
    while client.try_wait()?.is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let said = std::fs::read_to_string(&file)?;
    let (bytes, grown) =
        said.split_once(' ').ok_or_else(|| Failure::new(format!("the helper said {said:?}")))?;
    check_eq!(bytes.parse::<u64>()?, BYTES, "bytes that arrived");
    let grown: u64 = grown.parse()?;
    check!(grown < LIMIT_KIB, "the client grew by {grown} KiB");
    let grown = peak().await?.saturating_sub(before);
    check!(grown < LIMIT_KIB, "the outpost grew by {grown} KiB");
    Ok(())
}

async fn a_second_client_sees_the_same(env: &Env) -> Done {
    env.says("export A=1", "").await?;
    let other = env.again(Duration::from_secs(300)).await?;
    check_eq!(other.identity(), env.environment.identity(), "the place");
    let (here, there) = (env.outpost().identity().await?, other.outpost().identity().await?);
    check_eq!(here.instance, there.instance, "the outpost");
    let mut capture = Capture::unlimited();
    other.run(&env.command("echo $A"), &mut capture).await?;
    check_eq!(capture.stdout.to_bytes(), b"1\n".to_vec(), "the session's state");
    Ok(())
}

async fn a_lost_outpost_is_an_unknown_outcome(env: &Env) -> Done {
    env.says("true", "").await?;
    let options = env.command(format!("echo x >>runs; echo begun; {}", env.nap(1)));
    let mut capture = Capture::unlimited();
    let killing = async {
        env.await_naps(1).await?;
        env.kill_outpost().await
    };
    let (ended, killed) = tokio::join!(env.environment.run(&options, &mut capture), killing);
    killed?;
    match ended {
        Err(error) => {
            check_eq!(error.kind, Kind::UnknownOutcome, "the kind of the error");
            check_eq!(error.retry(), farshell_engine::Retry::Unsafe, "whether a retry is safe");
        }
        Ok(status) => check!(false, "it ended: {status:?}"),
    }
    check_eq!(capture.stdout.to_bytes(), b"begun\n".to_vec(), "the output so far");
    tokio::time::sleep(Duration::from_millis(500)).await;
    env.says("cat runs", "x\n").await?;
    // The new one ends what the lost one can't end any more.
    check_eq!(env.naps().await?, 0, "processes left behind by the lost outpost");
    Ok(())
}

async fn the_next_command_finds_a_new_outpost(env: &Env) -> Done {
    env.says("export A=1", "").await?;
    let before = env.outpost().identity().await?;
    for _ in 0..5 {
        env.kill_outpost().await?;
        env.says("echo [$A] back", "[] back\n").await?;
    }
    let after = env.outpost().identity().await?;
    check!(before.instance != after.instance, "it is another one");
    check_eq!(before.boot, after.boot, "the machine is the same");
    Ok(())
}

async fn a_lost_outpost_ends_background_processes_and_is_said(env: &Env) -> Done {
    let start = env.shell(&format!("seq 1 100; {}", env.nap(1)));
    env.outpost().start(start.clone()).await?;
    let killing = async {
        env.await_naps(1).await?;
        env.kill_outpost().await
    };
    let mut sink = Discard;
    let following = env.outpost().attach(start.id.clone(), Attach::foreground(), &mut sink);
    let (ended, killed) = tokio::join!(following, killing);
    killed?;
    match ended {
        Err(error) => check_eq!(error.kind, Kind::UnknownOutcome, "who follows is told"),
        Ok(status) => check!(false, "it ended: {status:?}"),
    }
    match env.outpost().status(start.id).await {
        Err(error) => check_eq!(error.kind, Kind::NotFound, "the new outpost does not know it"),
        Ok(status) => check!(false, "it is known: {status:?}"),
    }
    // The new one ends what the lost one can't end any more.
    check_eq!(env.naps().await?, 0, "processes left behind by the lost outpost");
    Ok(())
}
