//! What a command reads.

use crate::case::{Done, cases, check, check_eq};
use crate::env::Env;
use farshell_engine::capture::Capture;
use farshell_engine::{Kind, RunOptions};
use farshell_protocol::process::Stdin;
use std::time::Duration;

cases! {
    Both:
        without_input_there_is_an_end_at_once,
        nothing_can_eat_the_sessions_own_input,
        input_with_nuls_and_all_bytes,
        input_in_pieces_with_repeats,
        a_megabyte_of_input,
        input_for_a_builtin,
        input_that_nobody_reads,
        input_without_end_and_a_timeout,
        input_after_the_end_is_refused,
        an_input_offset_with_a_hole_is_refused,
        hermes_26933_a_prompt_can_be_answered;
}

async fn without_input_there_is_an_end_at_once(env: &Env) -> Done {
    env.says("cat; read x; echo rc=$?", "rc=1\n").await
}

async fn nothing_can_eat_the_sessions_own_input(env: &Env) -> Done {
    env.says("head -c 100000 | wc -c | tr -d ' '", "0\n").await?;
    env.says("while read -r line; do echo \"ate $line\"; done; sh -c 'cat'; \"$0\" -s; echo end", "end\n")
        .await?;
    env.says("cat </dev/stdin; cat /proc/self/fd/0; echo end", "end\n").await?;
    env.says("echo next", "next\n").await
}

/// Runs a command and sends it input meanwhile.
async fn feed(
    env: &Env,
    command: &str,
    pieces: &[(u64, &[u8], bool)],
) -> Result<crate::env::Ran, crate::Failure> {
    env.run("true").await?;
    let options = RunOptions { stdin: Stdin::Pipe, ..env.command(command) };
    let sending = async {
        for &(offset, bytes, eof) in pieces {
            while let Err(error) = env.outpost().stdin(options.id.clone(), offset, bytes.to_vec(), eof).await
            {
                // The command may not have arrived yet.
                if error.kind != Kind::NotFound && error.kind != Kind::Busy {
                    return Err(error.into());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    };
    let (ran, ()) = tokio::try_join!(env.run_with(&options), sending)?;
    Ok(ran)
}

async fn input_with_nuls_and_all_bytes(env: &Env) -> Done {
    let data: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let ran = feed(env, "cat", &[(0, &data, true)]).await?;
    check_eq!(ran.stdout, data, "what cat printed");
    env.says("cat; echo next", "next\n").await
}

async fn input_in_pieces_with_repeats(env: &Env) -> Done {
    let pieces: &[(u64, &[u8], bool)] = &[
        (0, b"one ", false),
        (0, b"one ", false),
        (0, b"one two ", false),
        (8, b"", false),
        (4, b"two three", true),
        (8, b"three", true),
    ];
    let ran = feed(env, "cat; sleep 0.3", pieces).await?;
    check_eq!(ran.out(), "one two three", "what cat printed");
    Ok(())
}

async fn a_megabyte_of_input(env: &Env) -> Done {
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let halves = data.split_at(500_000);
    let ran = feed(env, "sleep 0.2; cat", &[(0, halves.0, false), (500_000, halves.1, true)]).await?;
    check!(ran.stdout == data, "a megabyte comes back: {} bytes", ran.stdout.len());
    Ok(())
}

async fn input_for_a_builtin(env: &Env) -> Done {
    let ran =
        feed(env, "read -r a; read -r b; echo \"[$b] [$a]\"", &[(0, b"first\nsecond\n", false)]).await?;
    check_eq!(ran.out(), "[second] [first]\n", "what read got");
    Ok(())
}

async fn input_that_nobody_reads(env: &Env) -> Done {
    let ran = feed(env, "sleep 0.3; echo done", &[(0, &[b'x'; 10_000], true)]).await?;
    check_eq!(ran.out(), "done\n", "the output");
    env.says("cat; echo next", "next\n").await
}

async fn input_without_end_and_a_timeout(env: &Env) -> Done {
    env.run("true").await?;
    let options = RunOptions {
        stdin: Stdin::Pipe,
        timeout: Some(Duration::from_millis(500)),
        ..env.command("cat; echo never")
    };
    let ran = env.run_with(&options).await?;
    check!(ran.status.timed_out, "it waits for input until the time is up");
    check_eq!(ran.out(), "", "the output");
    env.says("cat; echo next", "next\n").await
}

async fn input_after_the_end_is_refused(env: &Env) -> Done {
    let options = RunOptions { stdin: Stdin::Pipe, ..env.command("true") };
    env.run_with(&options).await?;
    match env.outpost().stdin(options.id.clone(), 0, b"x".to_vec(), false).await {
        Err(error) => check_eq!(error.kind, Kind::Invalid, "the kind of the error"),
        Ok(taken) => check!(false, "{taken} bytes were taken by a command that has ended"),
    }
    Ok(())
}

async fn an_input_offset_with_a_hole_is_refused(env: &Env) -> Done {
    env.run("true").await?;
    let options = RunOptions { stdin: Stdin::Pipe, ..env.command("cat") };
    let id = options.id.clone();
    let outpost = env.outpost();
    let sending = async {
        while outpost.stdin(id.clone(), 0, b"a".to_vec(), false).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let hole = outpost.stdin(id.clone(), 5, b"b".to_vec(), false).await;
        outpost.stdin(id.clone(), 1, b"c".to_vec(), true).await?;
        Ok::<_, crate::Failure>(hole)
    };
    let mut capture = Capture::unlimited();
    let (status, hole) = tokio::join!(env.environment.run(&options, &mut capture), sending);
    status?;
    match hole? {
        Err(error) => check_eq!(error.kind, Kind::Invalid, "the kind of the error"),
        Ok(taken) => check!(false, "{taken} bytes were taken"),
    }
    check_eq!(capture.stdout.to_bytes(), b"ac".to_vec(), "what cat printed");
    Ok(())
}

async fn hermes_26933_a_prompt_can_be_answered(env: &Env) -> Done {
    let ran = feed(env, "printf 'name? '; read -r n; echo \"hi $n\"", &[(0, b"you\n", false)]).await?;
    check_eq!(ran.out(), "name? hi you\n", "the dialogue");
    Ok(())
}
