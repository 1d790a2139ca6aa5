//! What carries over between the commands of a one-shot session, and what does not.

use crate::case::{Done, cases, check, check_eq};
use crate::env::{Env, named};
use farshell_engine::RunOptions;
use serde_bytes::ByteBuf;
use std::time::Duration;

cases! {
    OneShot:
        hermes_1_exports_and_directory_carry_over,
        variables_and_functions_do_not needs Bash,
        exit_keeps_exports_set_before,
        an_unset_export_is_gone,
        functions_of_an_init_file_are_there_each_time needs Bash,
        an_exit_trap_prints,
        options_do_not_carry_over needs Bash,
        exported_functions_carry_over needs Bash,
        exports_of_any_text,
        exec_keeps_exports_from_before,
        a_timeout_keeps_exports_from_before,
        a_hundred_quick_commands,
        background_jobs_live_on,
        path_changes_carry_over;
}

async fn hermes_1_exports_and_directory_carry_over(env: &Env) -> Done {
    env.says("export A=1; B=2; cd /tmp", "").await?;
    env.says("echo $A $B $PWD", "1 /tmp\n").await
}

async fn variables_and_functions_do_not(env: &Env) -> Done {
    env.says("plain=1; f(){ echo f; }; arr=(1 2); alias a=b", "").await?;
    env.says("echo \"[$plain] [${arr[1]}]\"; type f >/dev/null 2>&1 || echo none; alias", "[] []\nnone\n")
        .await
}

async fn exit_keeps_exports_set_before(env: &Env) -> Done {
    env.gives("export E=kept; cd /usr; exit 3", 3, "", "").await?;
    env.says("echo $E $PWD", "kept /usr\n").await?;
    env.gives("set -e; export F=too; false; export G=no", 1, "", "").await?;
    env.says("echo $F [$G]", "too []\n").await
}

async fn an_unset_export_is_gone(env: &Env) -> Done {
    env.says("export A=1 B=2", "").await?;
    env.says("unset A; export -n B", "").await?;
    env.says("echo [$A] [$B]", "[] []\n").await
}

async fn functions_of_an_init_file_are_there_each_time(env: &Env) -> Done {
    env.says("echo 'echo noise; rc(){ echo rc $FROM; }; export FROM=file; v=1; echo x >>count' >rc", "")
        .await?;
    let mut open = env.opening("withrc");
    open.init_files = vec![ByteBuf::from(env.path("rc").as_bytes())];
    env.outpost().open_session(open).await?;
    for _ in 0..3 {
        let ran = env.run_with(&RunOptions::new(named("withrc"), "rc; wc -l <count")).await?;
        check_eq!(
            (ran.out(), ran.err()),
            ("rc file\n1\n".to_owned(), String::new()),
            "a function of an init file"
        );
    }
    env.run_with(&RunOptions::new(named("withrc"), "export FROM=command")).await?;
    let ran = env.run_with(&RunOptions::new(named("withrc"), "rc")).await?;
    check_eq!(ran.out(), "rc command\n", "an export of a command wins over the init file's");
    Ok(())
}

async fn an_exit_trap_prints(env: &Env) -> Done {
    env.says("trap 'echo bye' EXIT; echo hi", "hi\nbye\n").await?;
    env.gives("trap 'echo bye; echo e >&2' EXIT; exit 3", 3, "bye\n", "e\n").await?;
    env.says("echo next", "next\n").await
}

async fn options_do_not_carry_over(env: &Env) -> Done {
    env.says("set -f -u; shopt -s nullglob; set -o pipefail; umask 077", "").await?;
    env.says(
        "echo $nope /et[c]; shopt -q nullglob || echo off; [[ -o pipefail ]] || echo off",
        "/etc\noff\noff\n",
    )
    .await
}

async fn exported_functions_carry_over(env: &Env) -> Done {
    env.says("f(){ echo exported; }; export -f f", "").await?;
    env.says("f; bash -c f", "exported\nexported\n").await
}

async fn exports_of_any_text(env: &Env) -> Done {
    env.says("export T=$'a\\nb\\'c\"d$e`f`\\\\ \\x01\\x7f é'", "").await?;
    env.says("printf %s \"$T\"", "a\nb'c\"d$e`f`\\ \x01\x7f é").await
}

async fn exec_keeps_exports_from_before(env: &Env) -> Done {
    env.says("export A=1", "").await?;
    env.gives("exec sh -c 'exit 7'", 7, "", "").await?;
    env.says("echo $A", "1\n").await
}

async fn a_timeout_keeps_exports_from_before(env: &Env) -> Done {
    env.says("export A=1; cd /usr", "").await?;
    let ran = env.timed(&format!("echo x; {}", env.nap(1)), Duration::from_secs(1)).await?;
    check!(ran.status.timed_out, "the time was up");
    env.says("echo $A $PWD", "1 /usr\n").await
}

async fn a_hundred_quick_commands(env: &Env) -> Done {
    for number in 0..100 {
        let before = if number == 0 { String::new() } else { (number - 1).to_string() };
        env.gives(
            &format!("echo $N; export N={number}; exit {}", number % 3),
            number % 3,
            &format!("{before}\n"),
            "",
        )
        .await?;
    }
    Ok(())
}

async fn background_jobs_live_on(env: &Env) -> Done {
    env.says(&format!("{} & export PID=$!", env.nap(1)), "").await?;
    env.await_naps(1).await?;
    env.says("true", "").await?;
    env.says("kill $PID && echo killed", "killed\n").await?;
    env.await_naps(0).await
}

async fn path_changes_carry_over(env: &Env) -> Done {
    env.says("mkdir bin; printf '#!/bin/sh\\necho mine\\n' >bin/tool; chmod +x bin/tool; export PATH=$PWD/bin:$PATH", "").await?;
    env.says("cd /; tool", "mine\n").await
}
