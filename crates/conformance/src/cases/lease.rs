//! How long an outpost outlives the silence of its owner.

use crate::case::{Done, Failure, cases, check_eq};
use crate::env::Env;
use std::time::{Duration, Instant};

/// The shortest lease that can be set.
const SHORT: Duration = Duration::from_secs(1);
/// Well after it has run out.
const LATER: Duration = Duration::from_secs(5);
/// How often a connection is made that is not to be lost, where they are lost at any moment.
const TRIES: u32 = 4;

cases! {
    Any:
        an_idle_outpost_ends needs Wake,
        hermes_12_a_background_process_keeps_it_alive needs Wake,
        a_daemon_keeps_it_alive,
        a_connection_keeps_it_alive,
        a_session_alone_does_not_keep_it_alive needs Wake,
        hermes_11_a_killed_client_leaves_nothing_for_ever needs Wake;
}

/// Leaves the outpost alone until it has ended because nobody needs it; whoever asks then finds another.
async fn ends(env: &Env, before: &str, later: Duration) -> Done {
    // Not every subject shows from outside whether it has ended: one that was asked too early is left alone for longer.
    for wait in [later, later * 4] {
        env.outpost().disconnect();
        tokio::time::sleep(wait).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !env.subject.awake(&env.home, &env.task).is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        check_eq!(env.subject.awake(&env.home, &env.task), Vec::<String>::new(), "what it left");
        if instance(env).await? != before {
            return Ok(());
        }
    }
    Err(Failure::new("it is still there"))
}

async fn instance(env: &Env) -> Result<String, Failure> {
    Ok(env.outpost().identity().await?.instance)
}

async fn an_idle_outpost_ends(env: &Env) -> Done {
    let before = instance(env).await?;
    env.outpost().set_lease(SHORT).await?;
    check_eq!(env.outpost().info().await?.lease_seconds, 1, "the lease");
    ends(env, &before, LATER).await
}

async fn hermes_12_a_background_process_keeps_it_alive(env: &Env) -> Done {
    let before = instance(env).await?;
    let start = env.shell(&env.nap(1));
    env.outpost().start(start.clone()).await?;
    env.outpost().set_lease(SHORT).await?;
    env.outpost().disconnect();
    tokio::time::sleep(LATER).await;
    check_eq!(instance(env).await?, before, "the outpost");
    check_eq!(env.naps().await?, 1, "the process");
    env.outpost().kill(vec![start.id], Duration::ZERO).await?;
    ends(env, &before, LATER).await
}

async fn a_daemon_keeps_it_alive(env: &Env) -> Done {
    env.run(format!("setsid {} >/dev/null 2>&1 </dev/null &", env.nap(1))).await?;
    let before = instance(env).await?;
    env.outpost().set_lease(SHORT).await?;
    env.outpost().disconnect();
    tokio::time::sleep(LATER).await;
    check_eq!(instance(env).await?, before, "the outpost");
    check_eq!(env.naps().await?, 1, "the daemon");
    Ok(())
}

async fn a_connection_keeps_it_alive(env: &Env) -> Done {
    for _ in 0..TRIES {
        let before = instance(env).await?;
        env.outpost().set_lease(SHORT).await?;
        tokio::time::sleep(LATER).await;
        // One that was lost meanwhile has kept nothing alive, and may not.
        if env.outpost().is_connected() {
            check_eq!(instance(env).await?, before, "the outpost");
            return Ok(());
        }
    }
    Err(Failure::new(format!("the connection was lost {TRIES} times")))
}

async fn a_session_alone_does_not_keep_it_alive(env: &Env) -> Done {
    env.says("echo hi", "hi\n").await?;
    let before = instance(env).await?;
    env.outpost().set_lease(SHORT).await?;
    ends(env, &before, LATER).await
}

async fn hermes_11_a_killed_client_leaves_nothing_for_ever(env: &Env) -> Done {
    let before = instance(env).await?;
    env.outpost().set_lease(SHORT).await?;
    let id = farshell_engine::client::new_process_id();
    let file = env.home.join("got");
    let mut client =
        crate::helper::spawn(env, &id, "echo begun; sleep 2", &file, crate::helper::Keep::Bytes)?;
    while env.outpost().status(id.clone()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.kill()?;
    client.wait()?;
    ends(env, &before, LATER + Duration::from_secs(2) + env.subject.notices()).await
}
