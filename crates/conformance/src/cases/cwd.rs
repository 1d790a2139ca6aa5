//! Directories: where commands run, and where the session is afterwards.

use crate::case::{Done, cases, check, check_eq};
use crate::env::{Env, Ran};
use farshell_engine::{Kind, RunOptions};

cases! {
    Both:
        the_directory_lasts_and_is_reported,
        directories_with_any_name,
        a_directory_that_is_removed,
        a_directory_that_can_not_be_read,
        hermes_73683_workdir_is_for_one_call,
        workdir_forms,
        hermes_7_a_missing_workdir_is_said,
        workdir_does_not_hide_what_the_command_changes,
        a_symbolic_link_stays_one,
        a_session_starts_in_its_directory,
        a_session_in_a_missing_directory_is_refused;
}

fn at(ran: &Ran) -> String {
    String::from_utf8_lossy(ran.status.cwd.as_deref().unwrap_or_default()).into_owned()
}

async fn the_directory_lasts_and_is_reported(env: &Env) -> Done {
    let ran = env.run("mkdir -p sub && cd sub").await?;
    check_eq!(at(&ran), env.path("sub"), "the directory in the status");
    env.says("pwd", &format!("{}\n", env.path("sub"))).await?;
    let ran = env.run("(cd /); pwd >/dev/null").await?;
    check_eq!(at(&ran), env.path("sub"), "a subshell's cd changes nothing");
    Ok(())
}

async fn directories_with_any_name(env: &Env) -> Done {
    for name in
        ["a\nb \"c", "it's", "$HOME", "-n", " leading and trailing ", "*", "\\", "~", "日本", "a\tb", "`x`"]
    {
        let quoted = name.replace('\'', "'\\''");
        let ran = env.run(format!("mkdir -- '{quoted}' && cd -- './{quoted}'")).await?;
        check_eq!((ran.code(), at(&ran)), (0, env.path(name)), "cd into {name:?}");
        let ran = env.run("printf '%s' \"$PWD\"").await?;
        check_eq!(ran.out(), env.path(name), "$PWD in {name:?}");
        let mut there = env.command("printf '%s' \"$PWD\"");
        there.workdir = Some(env.path(name).into_bytes());
        check_eq!(env.run_with(&there).await?.out(), env.path(name), "workdir {name:?}");
        env.says(&format!("cd {}", env.dir), "").await?;
    }
    let ran = env.run(b"mkdir $'\\xff' && cd $'\\xff' && printf %s \"$PWD\"".to_vec()).await?;
    let expected = [env.path("").as_bytes(), b"\xff"].concat();
    check_eq!((ran.stdout, ran.status.cwd), (expected.clone(), Some(expected)), "a name that is not UTF-8");
    Ok(())
}

async fn a_directory_that_is_removed(env: &Env) -> Done {
    env.says("mkdir gone && cd gone && rmdir ../gone", "").await?;
    let ran = env.run("echo here").await?;
    check_eq!((ran.code(), ran.out()), (0, "here\n".to_owned()), "a command in a directory that is gone");
    env.gives("exit 3", 3, "", "").await?;
    let ran = env.run("echo again").await?;
    check_eq!((ran.code(), ran.out()), (0, "again\n".to_owned()), "after a restart of the shell");
    env.says("cd /tmp; pwd", "/tmp\n").await
}

async fn a_directory_that_can_not_be_read(env: &Env) -> Done {
    env.says("mkdir -p dark/inner && cd dark/inner && chmod 0 ..", "").await?;
    // Whoever may do everything may enter it as well: then there is nothing to see, but nothing breaks either.
    let ran = env.run("echo here").await?;
    check_eq!((ran.code(), ran.out()), (0, "here\n".to_owned()), "a command in a directory that is dark");
    env.gives("exit 3", 3, "", "").await?;
    let ran = env.run("echo again").await?;
    check_eq!((ran.code(), ran.out()), (0, "again\n".to_owned()), "after a restart of the shell");
    let mut there = env.command("echo entered");
    there.workdir = Some(env.path("dark/inner").into_bytes());
    let ran = env.run_with(&there).await?;
    if ran.status.workdir_failed {
        check_eq!((ran.code(), ran.out()), (126, String::new()), "a workdir that can't be entered");
    } else {
        check_eq!(ran.out(), "entered\n", "a workdir that only root can enter");
    }
    env.says(&format!("chmod 755 {}; cd {}", env.path("dark"), env.dir), "").await
}

async fn hermes_73683_workdir_is_for_one_call(env: &Env) -> Done {
    env.says("mkdir elsewhere", "").await?;
    for workdir in ["/usr".to_owned(), env.path("elsewhere")] {
        let mut there = env.command("pwd; cd /etc 2>/dev/null; (exit 4)");
        there.workdir = Some(workdir.clone().into_bytes());
        let ran = env.run_with(&there).await?;
        check_eq!((ran.code(), ran.out()), (4, format!("{workdir}\n")), "with a workdir");
        check_eq!(at(&ran), env.dir, "the session's directory in the status");
        env.says("pwd", &format!("{}\n", env.dir)).await?;
        let mut there = env.command("exit 5");
        there.workdir = Some(workdir.into_bytes());
        check_eq!(env.run_with(&there).await?.code(), 5, "exit with a workdir");
        env.says("pwd", &format!("{}\n", env.dir)).await?;
    }
    Ok(())
}

async fn workdir_forms(env: &Env) -> Done {
    env.says("mkdir sub", "").await?;
    for (workdir, expected) in [("sub", env.path("sub")), ("./sub/..", env.dir.clone()), ("/", "/".into())] {
        let ran = env.run_with(&RunOptions { workdir: Some(workdir.into()), ..env.command("pwd") }).await?;
        check_eq!(ran.out(), format!("{expected}\n"), "workdir {workdir:?}");
    }
    let ran = env.run_with(&RunOptions { workdir: Some("~".into()), ..env.command("pwd; cd; pwd") }).await?;
    let out = ran.out();
    let lines: Vec<&str> = out.lines().collect();
    check!(lines.len() == 2 && lines[0] == lines[1], "~ is the home directory: {out:?}");
    Ok(())
}

async fn hermes_7_a_missing_workdir_is_said(env: &Env) -> Done {
    env.says("touch file", "").await?;
    for workdir in ["/does/not/exist", "file"] {
        let mut there = env.command("touch ran; echo ran");
        there.workdir = Some(workdir.into());
        let ran = env.run_with(&there).await?;
        check_eq!((ran.code(), ran.out()), (126, String::new()), "workdir {workdir:?}");
        check!(ran.status.workdir_failed, "the status says it");
        check!(ran.err().contains(workdir), "stderr names it: {:?}", ran.err());
    }
    env.says("pwd; ls", &format!("{}\nfile\n", env.dir)).await
}

async fn workdir_does_not_hide_what_the_command_changes(env: &Env) -> Done {
    let mut there = env.command("export CHANGED=yes");
    there.workdir = Some(b"/usr".to_vec());
    env.run_with(&there).await?;
    env.says("echo $CHANGED", "yes\n").await
}

async fn a_symbolic_link_stays_one(env: &Env) -> Done {
    env.says("mkdir real; ln -s real link; cd link", "").await?;
    env.says("pwd; pwd -P", &format!("{}\n{}\n", env.path("link"), env.path("real"))).await?;
    env.gives("exit 1", 1, "", "").await?;
    env.says("pwd", &format!("{}\n", env.path("link"))).await
}

async fn a_session_starts_in_its_directory(env: &Env) -> Done {
    env.says("pwd", &format!("{}\n", env.dir)).await?;
    let mut open = env.opening("athome");
    open.cwd = None;
    env.outpost().open_session(open).await?;
    let ran = env
        .run_with(&RunOptions::new(crate::env::named("athome"), "[ \"$PWD\" -ef ~ ] && echo home"))
        .await?;
    check_eq!(ran.out(), "home\n", "without a directory it is the home");
    Ok(())
}

async fn a_session_in_a_missing_directory_is_refused(env: &Env) -> Done {
    let mut open = env.opening("nowhere");
    open.cwd = Some(b"/does/not/exist".to_vec());
    match env.outpost().open_session(open).await {
        Err(error) => {
            check_eq!(error.kind, Kind::NotFound, "the kind of the error");
            check!(error.to_string().contains("/does/not/exist"), "it names the directory: {error}");
        }
        Ok(info) => check!(false, "it was opened: {info:?}"),
    }
    Ok(())
}
