//! What lasts from one command of a live session to the next.

use crate::case::{Done, cases, check, check_eq};
use crate::env::{Env, named};
use serde_bytes::ByteBuf;
use std::time::Duration;

cases! {
    Live:
        everything_lasts needs Bash,
        hermes_107781_functions_survive needs Bash,
        hermes_71296_path_and_aliases_survive needs Bash,
        jobs_and_wait_work_across_commands,
        last_status_is_seen_by_the_next_command,
        cd_minus_knows_the_users_directories,
        debug_err_and_return_traps_do_not_break_the_session needs Bash,
        a_trap_between_two_commands_is_in_neither needs Bash,
        plain_builtins_say_what_they_say,
        functions_shadow_the_builtins_that_the_session_uses needs Bash,
        a_function_shadows_builtin_itself needs Bash,
        readonly_variables_and_odd_settings_last needs Bash,
        set_x_and_v_leave_no_trace_in_later_commands,
        set_n_does_not_end_the_session,
        a_low_limit_on_descriptors,
        a_variable_may_hold_any_text needs Bash,
        umask_lasts,
        init_files_are_sourced_once,
        an_init_file_that_exits_does_not_stop_the_session,
        hermes_66642_state_is_in_no_file;
    Both:
        start_variables_are_there,
        hermes_96268_variables_are_in_no_argument_list,
        hermes_90782_sessions_do_not_share_state,
        each_stage_of_a_pipeline_is_told needs Bash,
        a_pipeline_means_what_it_would_mean_alone needs Bash,
        nothing_of_ours_shows_in_the_environment,
        a_session_without_the_outposts_environment;
}

async fn everything_lasts(env: &Env) -> Done {
    env.says("export A=1; b=2; arr=(x 'y z'); declare -A m=([k]=v); f(){ echo f:$1; }", "").await?;
    env.says("shopt -s expand_aliases extglob; set -o pipefail; alias ll='echo aliased'", "").await?;
    env.says("echo $A$b ${arr[1]} ${m[k]}; f q\nll", "12 y z v\nf:q\naliased\n").await?;
    env.says("shopt -q extglob && [[ -o pipefail ]] && echo set", "set\n").await
}

async fn hermes_107781_functions_survive(env: &Env) -> Done {
    env.says("greet(){ local who=${1:-you}; cat <<X\nhello $who\nX\n}", "").await?;
    env.says("greet me; greet", "hello me\nhello you\n").await?;
    env.gives("exit 1", 1, "", "").await?;
    env.says("greet again; (greet deep); echo $(greet subst)", "hello again\nhello deep\nhello subst\n").await
}

async fn hermes_71296_path_and_aliases_survive(env: &Env) -> Done {
    env.says("mkdir bin; printf '#!/bin/sh\\necho mine\\n' >bin/tool; chmod +x bin/tool", "").await?;
    env.says("export PATH=$PWD/bin:$PATH; shopt -s expand_aliases; alias t=tool", "").await?;
    env.says("cd /; tool; t", "mine\nmine\n").await?;
    env.gives("exit 2", 2, "", "").await?;
    env.says("tool; t", "mine\nmine\n").await
}

async fn jobs_and_wait_work_across_commands(env: &Env) -> Done {
    env.says("sh -c 'sleep 0.1; exit 5' &", "").await?;
    env.says("wait $!; echo $?", "5\n").await?;
    env.says(&format!("{} & jobs -p | wc -l", env.nap(1)), "1\n").await?;
    env.says("kill %1; wait %1 2>/dev/null; echo $?", "143\n").await
}

async fn last_status_is_seen_by_the_next_command(env: &Env) -> Done {
    for code in [0, 1, 2, 77, 255] {
        env.gives(&format!("(exit {code})"), code, "", "").await?;
        env.says("echo $?", &format!("{code}\n")).await?;
    }
    env.gives("exit 9", 9, "", "").await?;
    env.says("echo $?", "9\n").await
}

async fn cd_minus_knows_the_users_directories(env: &Env) -> Done {
    env.says("cd /usr; cd /tmp", "").await?;
    env.says("cd -; cd -", "/usr\n/tmp\n").await?;
    let mut elsewhere = env.command("pwd");
    elsewhere.workdir = Some(b"/".to_vec());
    check_eq!(env.run_with(&elsewhere).await?.out(), "/\n", "pwd with a workdir");
    env.says("cd -", "/usr\n").await
}

async fn debug_err_and_return_traps_do_not_break_the_session(env: &Env) -> Done {
    env.run("trap 'echo DBG >&2' DEBUG; trap 'echo ERR' ERR; trap 'echo RET' RETURN").await?;
    let ran = env.run("false").await?;
    check_eq!(ran.code(), 1, "a failing command with an ERR trap");
    check!(ran.out().lines().all(|line| line == "ERR") && !ran.stdout.is_empty(), "it ran: {:?}", ran.out());
    check!(ran.err().contains("DBG\n"), "the DEBUG trap printed {:?}", ran.err());
    let ran = env.run("trap - DEBUG ERR RETURN; echo clean").await?;
    check!(ran.out().ends_with("clean\n"), "after the traps were removed: {:?}", ran.out());
    env.says("echo q", "q\n").await
}

async fn a_trap_between_two_commands_is_in_neither(env: &Env) -> Done {
    env.says("trap 'echo trapped' USR1", "").await?;
    env.says("echo before", "before\n").await?;
    let sent = env.path("sent");
    env.says(&format!("(sleep 0.3; kill -USR1 $$; echo >{sent}) >/dev/null 2>&1 &"), "").await?;
    // A process of its own, so that the session is at rest.
    let wait = format!("until [ -e {sent} ]; do sleep 0.05; done");
    check_eq!(env.own(env.shell(&wait)).await?.code(), 0, "the signal was sent");
    env.says("echo after", "after\n").await?;
    env.says("echo later", "later\n").await
}

async fn plain_builtins_say_what_they_say(env: &Env) -> Done {
    for round in 0..3 {
        for (command, said, code) in
            [("true", "", 0), (":", "", 0), ("false", "", 1), ("echo", "\n", 0), ("echo -n a  b", "a b", 0)]
        {
            let ran = env.run(command).await?;
            check_eq!((ran.out(), ran.code()), (said.to_owned(), code), "{command}, round {round}");
        }
        // Short enough to be sent as it is, and not.
        for size in [90, 95, 96, 100, 5000] {
            let text = "x".repeat(size);
            env.says(&format!("echo {text}"), &format!("{text}\n")).await?;
        }
        env.gives("false", 1, "", "").await?;
        env.says("echo status $?", "status 1\n").await?;
    }
    Ok(())
}

async fn functions_shadow_the_builtins_that_the_session_uses(env: &Env) -> Done {
    env.says("kept=1", "").await?;
    env.says(
        "printf(){ echo hijack; }; read(){ :; }; declare(){ :; }; cd(){ builtin cd \"$@\"; }; trap(){ :; }; \
         set(){ :; }; exit(){ builtin exit 99; }; unset(){ :; }; eval(){ echo no; }; mapfile(){ :; }; export(){ :; }",
        "",
    )
    .await?;
    env.says("echo still $kept", "still 1\n").await?;
    env.says(
        &format!("echo {}", "long ".repeat(200).trim_end()),
        &format!("{}\n", "long ".repeat(200).trim_end()),
    )
    .await?;
    env.says("builtin unset -f printf read declare trap cd set exit unset eval mapfile export", "").await?;
    env.gives("echo again; exit 4", 4, "again\n", "").await?;
    env.says("echo $kept", "1\n").await
}

async fn a_function_shadows_builtin_itself(env: &Env) -> Done {
    env.says("kept=1", "").await?;
    env.timed("builtin(){ echo hijacked; }", Duration::from_secs(5)).await?;
    env.timed("echo x", Duration::from_secs(5)).await?;
    env.says("echo y $kept", "y 1\n").await
}

async fn readonly_variables_and_odd_settings_last(env: &Env) -> Done {
    env.says("readonly RO=1; IFS=/; export LANG=xx LC_ALL=C", "").await?;
    env.says("echo \"$RO\"", "1\n").await?;
    env.says("PATH=; set -o posix", "").await?;
    env.gives("echo p; exit 6", 6, "p\n", "").await?;
    let command = "echo \"$RO\"; PATH=/usr/local/bin:/usr/bin:/bin; set +o posix; unset IFS LC_ALL LANG; \
                   ls / >/dev/null && echo lsok";
    env.says(command, "1\nlsok\n").await
}

async fn set_x_and_v_leave_no_trace_in_later_commands(env: &Env) -> Done {
    env.run("set -xv").await?;
    let ran = env.run("echo x").await?;
    check_eq!((ran.code(), ran.out()), (0, "x\n".to_owned()), "with set -xv");
    check!(ran.err().contains("+ echo x"), "set -x traces to stderr: {:?}", ran.err());
    check!(!ran.err().contains("farshell"), "the trace shows only the command: {:?}", ran.err());
    env.run("set +xv").await?;
    env.says("echo y", "y\n").await
}

async fn set_n_does_not_end_the_session(env: &Env) -> Done {
    env.says("kept=1", "").await?;
    env.timed("set -n", Duration::from_secs(5)).await?;
    env.timed("echo n", Duration::from_secs(5)).await?;
    env.says("echo n $kept", "n 1\n").await
}

async fn a_low_limit_on_descriptors(env: &Env) -> Done {
    env.says("kept=1; ulimit -Sn 16", "").await?;
    env.says("echo low; ulimit -Sn", "low\n16\n").await?;
    env.gives("exit 3", 3, "", "").await?;
    env.says("echo $kept", "1\n").await
}

async fn a_variable_may_hold_any_text(env: &Env) -> Done {
    let command = r#"all=; for i in {1..255}; do printf -v c "\\x$(printf %x $i)"; all+=$c; done; LC_ALL=C
        evil=$'\n#end 1\n\'"`$(touch evil)` $HOME'; declare -x exported=$all"#;
    env.says(command, "").await?;
    env.gives("exit 1", 1, "", "").await?;
    let ran = env.run("printf %s \"$all\"").await?;
    check_eq!(ran.stdout, (1..=255).collect::<Vec<u8>>(), "a variable of all bytes, after a restart");
    env.says("[[ $exported == \"$all\" ]] && printf %s \"$evil\"; ls", "\n#end 1\n'\"`$(touch evil)` $HOME")
        .await
}

async fn umask_lasts(env: &Env) -> Done {
    env.says("umask 027", "").await?;
    env.says("umask; touch f; stat -c %a f", "0027\n640\n").await?;
    env.gives("exit 1", 1, "", "").await?;
    env.says("umask", "0027\n").await
}

async fn init_files_are_sourced_once(env: &Env) -> Done {
    env.says("echo 'echo noise; n=$((n+1)); rc(){ echo rc $n; }; echo x >>count' >rc", "").await?;
    let init_files = vec![ByteBuf::from(env.path("rc").as_bytes()), ByteBuf::from("/does/not/exist")];
    let open = farshell_protocol::session::OpenSession { init_files, ..env.opening("withrc") };
    env.outpost().open_session(open).await?;
    let options = |text: &str| farshell_engine::RunOptions::new(named("withrc"), text);
    for _ in 0..3 {
        let ran = env.run_with(&options("rc; wc -l <count")).await?;
        check_eq!(
            (ran.out(), ran.err()),
            ("rc 1\n1\n".to_owned(), String::new()),
            "a function of an init file"
        );
    }
    Ok(())
}

async fn an_init_file_that_exits_does_not_stop_the_session(env: &Env) -> Done {
    env.says("echo 'exit 5' >rc", "").await?;
    let init_files = vec![ByteBuf::from(env.path("rc").as_bytes())];
    let open = farshell_protocol::session::OpenSession { init_files, ..env.opening("withrc") };
    env.outpost().open_session(open).await?;
    let ran = env.run_with(&farshell_engine::RunOptions::new(named("withrc"), "echo fine")).await?;
    check_eq!((ran.code(), ran.out()), (0, "fine\n".to_owned()), "a command after an init file that exits");
    Ok(())
}

async fn hermes_66642_state_is_in_no_file(env: &Env) -> Done {
    let secret = format!("secret{}x", env.mark);
    env.says(&format!("export TOKEN={secret}; f(){{ echo {secret}; }}"), "").await?;
    env.gives("exit 1", 1, "", "").await?;
    // The home is seen only where the place shares this machine's files.
    let found = grep(&env.home, secret.as_bytes())?;
    check_eq!(found, Vec::<String>::new(), "files that hold the session's variables");
    env.says(&format!("grep -rl '{}' . | wc -l", &secret[1..]), "0\n").await
}

fn grep(dir: &std::path::Path, needle: &[u8]) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        // The kernel's own directory beside an overlay's files, which nobody enters.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.extend(grep(&entry.path(), needle)?);
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path())?;
            if bytes.windows(needle.len()).any(|w| w == needle) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    Ok(found)
}

async fn start_variables_are_there(env: &Env) -> Done {
    let mut open = env.opening("vars");
    let value = "a b'c\"d\n$e \u{e9}";
    open.env.push((ByteBuf::from("GIVEN"), ByteBuf::from(value.as_bytes())));
    env.outpost().open_session(open).await?;
    let ran = env
        .run_with(&farshell_engine::RunOptions::new(named("vars"), "sh -c 'printf \"%s\\n\" \"$GIVEN\"'"))
        .await?;
    check_eq!(ran.out(), format!("{value}\n"), "a variable given at the opening");
    Ok(())
}

async fn hermes_96268_variables_are_in_no_argument_list(env: &Env) -> Done {
    let secret = format!("{}secret", env.mark);
    let mut open = env.opening("vars");
    open.env.push((ByteBuf::from("TOKEN"), ByteBuf::from(secret.as_bytes())));
    env.outpost().open_session(open).await?;
    let command = "sleep 0.3 & sh -c 'echo $TOKEN' | tr 0-9 a-j; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; wait";
    let ran = env.run_with(&farshell_engine::RunOptions::new(named("vars"), command)).await?;
    let letters: String = secret
        .bytes()
        .map(|b| if b.is_ascii_digit() { (b - b'0' + b'a') as char } else { b as char })
        .collect();
    check!(ran.out().starts_with(&letters), "the variable is there: {:?}", ran.out());
    check!(!ran.out().contains(&secret), "some process has it as an argument");
    Ok(())
}

async fn hermes_90782_sessions_do_not_share_state(env: &Env) -> Done {
    for name in ["a", "b"] {
        let command = format!("export WHO={name}; mkdir -p {name}; cd {name}");
        env.outpost().open_session(env.opening(name)).await?;
        env.run_with(&farshell_engine::RunOptions::new(named(name), command)).await?;
    }
    for name in ["a", "b"] {
        let ran = env.run_with(&farshell_engine::RunOptions::new(named(name), "echo $WHO $PWD")).await?;
        check_eq!(ran.out(), format!("{name} {}/{name}\n", env.dir), "session {name}");
    }
    Ok(())
}

async fn each_stage_of_a_pipeline_is_told(env: &Env) -> Done {
    for (command, code, stages) in [
        ("false | true", 0, &[1, 0][..]),
        ("(exit 3) | (exit 4) | (exit 5)", 5, &[3, 4, 5]),
        ("! false | true", 1, &[1, 0]),
        ("true && false |& cat", 0, &[1, 0]),
        ("echo '{|}' | grep -q '{'; echo done | cat", 0, &[0, 0]),
        ("false || true", 0, &[0]),
        ("false | true; true", 0, &[0]),
        ("true", 0, &[]),
        // More than can be told.
        ("true | true | true | true | true | true | false", 1, &[]),
        // Texts that can go on beyond their line are left alone.
        ("cat <<X | cat\nx\nX", 0, &[]),
        ("if true; then false | true; fi", 0, &[1, 0]),
        ("IFS=; false | true", 0, &[1, 0]),
        ("IFS=01; false | true", 0, &[1, 0]),
    ] {
        let ran = env.run(command).await?;
        check_eq!((ran.code(), ran.status.stages().as_slice()), (code, stages), "{command}");
    }
    Ok(())
}

async fn a_pipeline_means_what_it_would_mean_alone(env: &Env) -> Done {
    for (command, code, out) in [
        ("(exit 7) | cat; echo ${PIPESTATUS[*]}", 0, "7 0\n"),
        ("cat | wc -c", 0, "0\n"),
        ("exit 6 | exit 9", 9, ""),
        ("echo a | cat # it's a comment }", 0, "a\n"),
        ("echo a | cat &", 0, ""),
        ("echo a | cat; exit 3", 3, "a\n"),
        ("f() { echo in f | cat; return 4; }; f", 4, "in f\n"),
        ("echo a | cat; set -e; false; echo never", 1, "a\n"),
    ] {
        let ran = env.run(command).await?;
        let said = if command.ends_with('&') { String::new() } else { ran.out() };
        check_eq!((ran.code(), said.as_str()), (code, out), "{command}");
    }
    // What is no command is none, and says so; nothing of it is run.
    for command in
        ["echo a | (cat", "echo a | cat )", "echo 'a | cat", "echo a |", "echo a | cat; } ; { echo b"]
    {
        let ran = env.run(command).await?;
        check!(
            ran.code() != 0 && (ran.err().contains("syntax error") || ran.err().contains("unexpected EOF")),
            "{command}: {:?}",
            ran.err()
        );
        check_eq!(ran.out(), "", "{command}");
    }
    // A trace shows the command and nothing of ours.
    let ran = env.run("set -x; echo a | cat; false | true; set +x").await?;
    check_eq!(ran.out(), "a\n", "with a trace");
    check!(!ran.err().contains("farshell") && !ran.err().contains("PIPESTATUS"), "{:?}", ran.err());
    env.says("echo again | cat", "again\n").await
}

async fn nothing_of_ours_shows_in_the_environment(env: &Env) -> Done {
    env.run("true").await?;
    let command =
        "env | grep -i -e '^_*farshell' | grep -v -e ^FARSHELL_CASE= -e ^FARSHELL_CONFORMANCE=; echo $0";
    env.says(command, &format!("{}\n", env.shell_name())).await
}

async fn a_session_without_the_outposts_environment(env: &Env) -> Done {
    let mut open = env.opening("clean");
    open.clear_env = true;
    open.env.push((ByteBuf::from("ONLY"), ByteBuf::from("this")));
    env.outpost().open_session(open).await?;
    // What shells add by themselves; those other than bash also a PATH that others can see.
    let path = if env.subject.bash() { "" } else { "-e ^PATH=" };
    let command = format!("/usr/bin/env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= -e ^OLDPWD= {path} | sort");
    let ran = env.run_with(&farshell_engine::RunOptions::new(named("clean"), command)).await?;
    check_eq!(ran.out(), format!("FARSHELL_CASE={}\nONLY=this\n", env.mark), "the whole environment");
    Ok(())
}
