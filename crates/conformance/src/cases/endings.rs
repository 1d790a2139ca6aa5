//! Commands that end the shell, or try to break it from within.

use crate::case::{Done, cases, check, check_eq};
use crate::env::Env;
use farshell_protocol::process::{End, State};
use std::time::Duration;

cases! {
    Live:
        exit_keeps_the_state_of_its_own_command needs Bash,
        variables_outlive_the_shell_of_any_kind,
        exec_keeps_the_state_from_before,
        a_users_exit_trap_runs_and_the_session_goes_on,
        ignored_signals_do_not_last_for_ever,
        kill_9_keeps_the_state_from_before,
        two_hundred_exits_in_a_row @ 120 needs Bash;
    Both:
        exit_gives_its_code,
        exit_five_times_in_a_row,
        hermes_2_exit_keeps_the_directory,
        exec_gives_output_and_code_of_the_new_program,
        exec_redirections_do_not_last,
        closing_the_standard_streams,
        closing_descriptors_0_to_255,
        set_e_ends_the_command_and_no_more,
        set_u_ends_the_command_and_no_more,
        pipefail_within_a_command needs Bash,
        syntax_errors,
        unfinished_text,
        a_script_of_many_lines,
        break_continue_and_return_at_top_level,
        kill_9_of_the_shell,
        kill_0_of_the_group,
        stop_of_the_shell,
        kill_minus_1_like_storm,
        coproc_process_substitution_and_descriptor_variables needs Bash,
        an_exit_in_a_subshell_is_only_that,
        exit_codes_beyond_a_byte,
        a_command_that_is_empty,
        a_command_with_a_nul_is_refused;
}

async fn exit_keeps_the_state_of_its_own_command(env: &Env) -> Done {
    env.says("A=1; declare -A m=([k]=v); f(){ echo f:$1; }", "").await?;
    env.gives("export E=kept; v=alsokept; cd /; exit 42", 42, "", "").await?;
    env.says("echo $E $v $A ${m[k]}; f z; pwd", "kept alsokept 1 v\nf:z\n/\n").await
}

async fn variables_outlive_the_shell_of_any_kind(env: &Env) -> Done {
    env.says("umask 027; export E=kept; v='also  kept'; cd /usr", "").await?;
    for (command, code) in [("exit 3", 3), ("exec sh -c 'exit 4'", 4), ("kill -9 $$", 137)] {
        env.gives(command, code, "", "").await?;
        env.says("sh -c 'echo $E'; echo \"$v\" $PWD; umask", "kept\nalso  kept /usr\n0027\n").await?;
    }
    for number in 0..50 {
        env.gives(&format!("v={number}; exit {}", number % 7), number % 7, "", "").await?;
    }
    env.says("echo $E $v $PWD", "kept 49 /usr\n").await
}

async fn exec_keeps_the_state_from_before(env: &Env) -> Done {
    env.says("export E=kept; v=also; f(){ echo f:$1; }", "").await?;
    env.gives("lost=1; exec sh -c 'echo execed; exit 9'", 9, "execed\n", "").await?;
    env.says("echo $E $v", "kept also\n").await?;
    if env.subject.bash() { env.says("f y", "f:y\n").await } else { Ok(()) }
}

async fn a_users_exit_trap_runs_and_the_session_goes_on(env: &Env) -> Done {
    env.says("kept=1", "").await?;
    env.gives("trap 'echo bye' EXIT; exit 3", 3, "bye\n", "").await?;
    env.says("echo ok $kept", "ok 1\n").await?;
    env.gives("exit 4", 4, "", "").await
}

async fn ignored_signals_do_not_last_for_ever(env: &Env) -> Done {
    env.gives("trap '' TERM; exit 1", 1, "", "").await?;
    env.says("trap - TERM; sleep 50 & kill $!; wait $! 2>/dev/null; echo $?", "143\n").await
}

async fn kill_9_keeps_the_state_from_before(env: &Env) -> Done {
    env.says("kept=1; f(){ echo f; }", "").await?;
    let ran = env.run("kill -9 $$").await?;
    check!(ran.status.shell_restarted, "the status says that the shell was started anew");
    env.says("echo $kept", "1\n").await?;
    if env.subject.bash() { env.says("f", "f\n").await } else { Ok(()) }
}

async fn two_hundred_exits_in_a_row(env: &Env) -> Done {
    env.says("declare -A m=([k]=v); f(){ echo f:$1; }", "").await?;
    for number in 0..200 {
        env.gives(&format!("last={number}; exit {}", number % 7), number % 7, "", "").await?;
    }
    env.says("echo ${m[k]} $last; f 1", "v 199\nf:1\n").await?;
    env.says("cat /proc/[0-9]*/stat 2>/dev/null | grep -c \" Z $PPID \"", "0\n").await.or_else(|failure| {
        // grep ends with 1 where it counts 0.
        if failure.to_string().contains("\"0\\n\"") { Ok(()) } else { Err(failure) }
    })
}

async fn exit_gives_its_code(env: &Env) -> Done {
    for code in [0, 1, 2, 42, 126, 127, 130, 137, 255] {
        let ran = env.run(format!("echo out; echo err >&2; exit {code}")).await?;
        check_eq!(ran.status.state, State::Ended(End::Exited(code)), "exit {code}");
        check_eq!((ran.out(), ran.err()), ("out\n".to_owned(), "err\n".to_owned()), "exit {code}");
    }
    Ok(())
}

async fn exit_five_times_in_a_row(env: &Env) -> Done {
    for code in 1..=5 {
        env.gives(&format!("echo x{code}; exit {code}"), code, &format!("x{code}\n"), "").await?;
    }
    Ok(())
}

async fn hermes_2_exit_keeps_the_directory(env: &Env) -> Done {
    env.gives("cd /usr; exit 3", 3, "", "").await?;
    env.says("pwd", "/usr\n").await
}

async fn exec_gives_output_and_code_of_the_new_program(env: &Env) -> Done {
    env.gives("exec sh -c 'echo execed; echo e >&2; exit 9'", 9, "execed\n", "e\n").await?;
    env.says("echo back", "back\n").await?;
    let ran = env.run("exec sh -c 'kill -15 $$'").await?;
    check_eq!(ran.status.state, State::Ended(End::Signaled(15)), "an exec'ed program that a signal ends");
    env.says("echo back", "back\n").await
}

async fn exec_redirections_do_not_last(env: &Env) -> Done {
    env.says("exec >leak 2>&1; echo hidden", "").await?;
    env.says("echo visible; cat leak", "visible\nhidden\n").await
}

async fn closing_the_standard_streams(env: &Env) -> Done {
    env.says("exec 0<&- 1>&- 2>&-", "").await?;
    env.gives("echo back; echo e >&2", 0, "back\n", "e\n").await
}

async fn closing_descriptors_0_to_255(env: &Env) -> Done {
    // In another sh only the first ten are the user's. Busybox runs in circles when it misses one of its own.
    let last = if env.subject.bash() { 255 } else { 9 };
    env.says("export E=kept", "").await?;
    env.run(format!("for i in $(seq 0 {last}); do eval \"exec $i>&-\"; done")).await?;
    env.says("echo alive $E", "alive kept\n").await?;
    let close = "do eval \"exec $i<&-\"; done; echo nowhere; sleep 0.1";
    env.run(format!("for i in $(seq {last} -1 0); {close}")).await?;
    env.says("echo alive $E", "alive kept\n").await
}

async fn set_e_ends_the_command_and_no_more(env: &Env) -> Done {
    env.gives("set -e; echo a; false; echo never", 1, "a\n", "").await?;
    env.says("false; echo after", "after\n").await
}

async fn set_u_ends_the_command_and_no_more(env: &Env) -> Done {
    let ran = env.run("set -u; echo $nope_undefined; echo never").await?;
    check!(ran.code() != 0, "an unset variable under set -u fails");
    check_eq!(ran.out(), "", "nothing after it is run");
    check!(ran.err().contains("nope_undefined"), "bash says which: {:?}", ran.err());
    env.says("set +u; echo ok $nope_undefined", "ok\n").await?;
    let ran = env.run("echo ${nope_undefined?is missing}; echo never").await?;
    check!(ran.code() != 0 && ran.out().is_empty(), "${{x?}} ends the command: {ran:?}");
    env.says("echo ok", "ok\n").await
}

async fn pipefail_within_a_command(env: &Env) -> Done {
    env.says("set -o pipefail; false | true; echo $?; set +o pipefail; false | true; echo $?", "1\n0\n")
        .await?;
    env.says("true | false | (exit 3); echo ${PIPESTATUS[*]}", "0 1 3\n").await
}

async fn syntax_errors(env: &Env) -> Done {
    for command in
        ["echo 'unterminated", "if then fi", "for", ")", "echo \"$(", "case x in", "a() {", "${", "&& x"]
    {
        let ran = env.run(command).await?;
        check!(ran.code() != 0, "{command:?} fails: {ran:?}");
        check!(!ran.stderr.is_empty(), "{command:?} says why");
        env.says("echo fine", "fine\n").await?;
    }
    Ok(())
}

async fn unfinished_text(env: &Env) -> Done {
    let ran = env.run("cat <<X\nhello").await?;
    // Only bash adds the line end that is missing.
    check_eq!(ran.out().trim_end(), "hello", "a here-document without its end");
    let ran = env.run("{ echo a").await?;
    check!(ran.code() != 0, "an open brace fails");
    env.says("echo c # comment", "c\n").await?;
    env.says("echo d \\", "d \\\n").await?;
    env.says("echo e;", "e\n").await?;
    env.says("echo f\n\n\n", "f\n").await?;
    env.says("# only a comment", "").await
}

async fn a_script_of_many_lines(env: &Env) -> Done {
    let script =
        "cat <<'X'\n$notexpanded `x`\nX\nfor i in 1 2; do\n echo $i\ndone\nif true\nthen echo yes; fi";
    env.says(script, "$notexpanded `x`\n1\n2\nyes\n").await
}

async fn break_continue_and_return_at_top_level(env: &Env) -> Done {
    let ran = env.run("echo 1; break; continue; echo 2").await?;
    check_eq!(ran.out(), "1\n2\n", "break and continue outside of a loop");
    let ran = env.run("return 3").await?;
    check!(ran.code() != 0, "return outside of a function fails: {ran:?}");
    env.says("echo 3", "3\n").await
}

async fn kill_9_of_the_shell(env: &Env) -> Done {
    env.says("export E=kept", "").await?;
    let ran = env.run("echo before; kill -9 $$; echo never").await?;
    check_eq!(ran.status.state, State::Ended(End::Signaled(9)), "kill -9 $$");
    check_eq!(ran.out(), "before\n", "output before kill -9 $$");
    env.says("echo $E", "kept\n").await
}

async fn kill_0_of_the_group(env: &Env) -> Done {
    env.says("export E=kept", "").await?;
    let ran = env.run(format!("{} & kill 0; {}", env.nap(1), env.nap(2))).await?;
    check!(ran.code() != 0, "kill 0 ends the command: {ran:?}");
    env.says("echo $E", "kept\n").await
}

async fn stop_of_the_shell(env: &Env) -> Done {
    env.says("export E=kept", "").await?;
    let ran = env.timed("kill -STOP $$", Duration::from_secs(2)).await?;
    check!(ran.took < Duration::from_secs(20), "it came back after {:?}", ran.took);
    env.says("echo $E", "kept\n").await
}

async fn kill_minus_1_like_storm(env: &Env) -> Done {
    // Every signal that can be sent to oneself, one command each. None may cost the session.
    env.says("export E=kept", "").await?;
    for signal in (1..=31).filter(|s| ![19, 20, 21, 22].contains(s)) {
        env.timed(&format!("kill -{signal} $$; sleep 0.01"), Duration::from_secs(5)).await?;
        env.says("echo $E", "kept\n").await?;
    }
    Ok(())
}

async fn coproc_process_substitution_and_descriptor_variables(env: &Env) -> Done {
    let command = "echo first >file; exec {fd}<file; read -r h <&$fd; exec {fd}<&-; echo $h; cat <(echo ps); \
                   coproc cat; echo hi >&${COPROC[1]}; read -r l <&${COPROC[0]}; echo $l; kill $COPROC_PID";
    env.says(command, "first\nps\nhi\n").await
}

async fn an_exit_in_a_subshell_is_only_that(env: &Env) -> Done {
    env.says("(exit 3); echo $?; x=$(echo in; exit 4); echo $? $x; exit 5 | cat; echo $?", "3\n4 in\n0\n")
        .await
}

async fn exit_codes_beyond_a_byte(env: &Env) -> Done {
    env.gives("exit 256", 0, "", "").await?;
    env.gives("exit 511", 255, "", "").await?;
    if env.subject.bash() {
        env.gives("exit -1", 255, "", "").await?;
    }
    env.says("echo fine", "fine\n").await
}

async fn a_command_that_is_empty(env: &Env) -> Done {
    for command in ["", " ", "\n", "\n\n  \t\n"] {
        env.says(command, "").await?;
    }
    env.says("echo fine", "fine\n").await
}

async fn a_command_with_a_nul_is_refused(env: &Env) -> Done {
    env.says("true", "").await?;
    match env.run(b"echo a\0b".to_vec()).await {
        Err(failure) => check!(failure.to_string().contains("NUL"), "the reason is said: {failure}"),
        Ok(ran) => check!(false, "it ran: {ran:?}"),
    }
    env.says("echo fine", "fine\n").await
}
