//! What a model should know about how a command ended, and about how it was started.

use farshell_policy::Outline;

/// Exit codes that mean something else than a failure, or that say what failed: by the program that ran last.
const CODES: &[(&[&str], i32, &str)] = &[
    (&["grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack"], 1, "no line matched (not an error)"),
    (&["diff", "colordiff", "cmp", "sdiff"], 1, "the files differ (not an error)"),
    (&["find"], 1, "some directories could not be read; the results may be incomplete"),
    (&["test", "[", "[["], 1, "the condition is false (not an error)"),
    (&["expr"], 1, "the result is empty or 0 (not an error)"),
    (&["pgrep", "pkill"], 1, "no process matched (not an error)"),
    (&["which", "type", "command", "hash"], 1, "no such command was found"),
    (&["curl"], 6, "the host name could not be resolved"),
    (&["curl"], 7, "no connection to the host"),
    (&["curl"], 22, "the server answered with an HTTP error (400 or above)"),
    (&["curl"], 28, "the transfer timed out"),
    (&["curl"], 35, "the TLS handshake failed"),
    (&["curl"], 60, "the server's certificate can't be verified"),
    (&["wget"], 4, "a network failure"),
    (&["wget"], 5, "the server's certificate can't be verified"),
    (&["wget"], 8, "the server answered with an error"),
    (
        &["git"],
        1,
        "often normal: `git diff` found differences, `git grep` found nothing, or a merge has conflicts",
    ),
    (&["git"], 128, "git itself failed: no repository, or a bad reference or option"),
    (&["ssh", "scp", "sftp"], 255, "the connection failed"),
    (&["rsync"], 23, "some files were not transferred"),
    (&["rsync"], 24, "some files vanished before they were transferred"),
    (&["make", "gmake"], 2, "a recipe failed"),
    (&["pytest"], 1, "tests failed"),
    (&["pytest"], 2, "the test run was interrupted, or could not collect its tests"),
    (&["pytest"], 5, "no tests were collected"),
    (&["cargo"], 101, "the build or the tests failed"),
    (&["systemctl"], 3, "the unit is not running"),
    (&["timeout"], 124, "the time that `timeout` allowed was up"),
    (&["xargs"], 123, "a command that xargs ran failed"),
    (&["dpkg-query"], 1, "no such package is installed"),
];

/// Signals that are known by what they usually come from.
const SIGNALS: &[(i32, &str)] = &[
    (1, "killed by SIGHUP"),
    (2, "interrupted by SIGINT"),
    (3, "killed by SIGQUIT"),
    (4, "crashed: SIGILL, an illegal instruction"),
    (6, "crashed: SIGABRT, an abort or a failed assertion"),
    (7, "crashed: SIGBUS, a bad memory access"),
    (8, "crashed: SIGFPE, an arithmetic error"),
    (9, "killed by SIGKILL: by somebody, or by the kernel because memory ran out"),
    (11, "crashed: SIGSEGV, a bad memory access"),
    (13, "ended by SIGPIPE: whoever read its output stopped reading (often normal in a pipeline)"),
    (15, "killed by SIGTERM"),
    (24, "killed by SIGXCPU: its processor time was used up"),
    (25, "killed by SIGXFSZ: a file became too large"),
    (31, "killed by SIGSYS: a system call that is not allowed here"),
];

/// What an exit code means, where that is not what one would think.
pub(crate) fn meaning(outline: &Outline, code: i32) -> Option<String> {
    if code == 0 {
        return None;
    }
    let program = outline.program();
    let known = CODES.iter().find(|(programs, known, _)| {
        *known == code && program.is_some_and(|program| programs.contains(&program))
    });
    if let (Some((_, _, meaning)), Some(program)) = (known, program) {
        return Some(format!("{program}: {meaning}"));
    }
    match code {
        126 => Some("the command was found but can't be executed (permission, or no program)".to_owned()),
        127 => Some("command not found".to_owned()),
        129..=192 => {
            let signal = SIGNALS.iter().find(|(signal, _)| *signal == code - 128);
            signal.map(|(signal, meaning)| format!("{code} = 128 + {signal}: {meaning}"))
        }
        _ => None,
    }
}

/// Arguments that make servers of programs.
const SERVERS: &[(&str, &[&str])] = &[
    ("npm", &["start", "dev", "serve", "watch"]),
    ("pnpm", &["start", "dev", "serve", "watch"]),
    ("yarn", &["start", "dev", "serve", "watch"]),
    ("bun", &["start", "dev", "serve", "watch"]),
    ("next", &["dev", "start"]),
    ("docker-compose", &["up"]),
    ("flask", &["run"]),
    ("rails", &["server", "s"]),
    ("cargo", &["watch"]),
    ("jekyll", &["serve"]),
    ("hugo", &["server", "serve"]),
];
/// Programs that are servers or watchers whatever is asked of them.
const ALWAYS: &[&str] =
    &["vite", "nodemon", "uvicorn", "gunicorn", "http-server", "webpack-dev-server", "redis-server", "nginx"];
/// Programs that detach what they start.
const DETACH: &[&str] = &["nohup", "setsid", "disown"];
/// With one of these it is no server that is started.
const HARMLESS: &[&str] = &["--help", "-h", "--version", "-v", "-V"];

/// The program among these commands that usually does not end by itself.
pub(crate) fn server(outline: &Outline) -> Option<String> {
    let server = outline.commands.iter().find(|words| {
        let (Some(program), arguments) = (words.first(), words.get(1..).unwrap_or_default()) else {
            return false;
        };
        if arguments.iter().any(|word| HARMLESS.contains(&word.as_str())) {
            return false;
        }
        let plain: Vec<_> = arguments.iter().filter(|word| *word != "run").map(String::as_str).collect();
        let by_argument = SERVERS.iter().any(|(name, arguments)| {
            name == program && plain.first().is_some_and(|first| arguments.contains(first))
        });
        let detached = |words: &[&str]| words.iter().any(|word| *word == "-d" || *word == "--detach");
        let compose = program == "docker"
            && plain.first() == Some(&"compose")
            && plain.contains(&"up")
            && !detached(&plain);
        let python = program.starts_with("python") && plain.starts_with(&["-m", "http.server"]);
        (by_argument && !detached(&plain)) || compose || python || ALWAYS.contains(&program.as_str())
    })?;
    Some(server.iter().take(3).filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(" "))
}

/// Programs whose failure somebody wants to know of: they build, test, install, fetch.
#[rustfmt::skip]
const MATTER: &[&str] = &[
    "make", "gmake", "cmake", "ctest", "ninja", "meson", "bazel", "cargo", "rustc", "go", "gcc", "g++",
    "clang", "clang++", "cc", "npm", "npx", "pnpm", "yarn", "bun", "node", "tsc", "eslint", "jest", "vitest",
    "playwright", "python", "python3", "pytest", "tox", "nox", "mypy", "ruff", "pip", "pip3", "uv", "poetry",
    "mvn", "gradle", "gradlew", "ruby", "rake", "bundle", "rspec", "php", "composer", "phpunit", "dotnet",
    "swift", "docker", "podman", "kubectl", "helm", "terraform", "ansible-playbook", "apt", "apt-get", "dnf",
    "yum", "apk", "brew", "curl", "wget", "ssh", "scp", "rsync",
];
/// Programs that only show what others print, or a part of it.
#[rustfmt::skip]
const SHOW: &[&str] = &[
    "tail", "head", "tee", "cat", "grep", "egrep", "rg", "sed", "awk", "cut", "tr", "sort", "uniq", "wc",
    "nl", "fold", "column", "less", "more", "jq", "ts",
];

/// What of a pipeline does not show in its exit code, which is that of its last stage. `stages`: how each of them ended,
/// where that is known.
pub(crate) fn pipeline(outline: &Outline, code: i32, stages: &[i32]) -> Option<String> {
    let (last, before) = outline.last.split_last()?;
    if !stages.is_empty() {
        // Something else ran last, or a stage is no simple command.
        let known = stages.len() == outline.last.len();
        return stages.split_last().filter(|_| known).and_then(|(_, stages)| failed(before, stages));
    }
    let shows = last.first().filter(|program| SHOW.contains(&program.as_str()))?;
    let hidden = before.iter().find(|words| words.first().is_some_and(|p| MATTER.contains(&p.as_str())))?;
    let known = |words: &Vec<String>| words.iter().any(|word| word == "pipefail");
    if code != 0 || outline.commands.iter().any(known) {
        return None;
    }
    Some(format!(
        "exit_code is that of `{shows}`: whether `{}` failed does not show in it, unless pipefail is set. Long output is \
         cut here anyway: leave `| {shows}` out, or begin with `set -o pipefail;`",
        short(hidden)
    ))
}

/// The stages before the last that failed, as far as that was not to be expected.
fn failed(commands: &[Vec<String>], stages: &[i32]) -> Option<String> {
    // Whoever read from it had enough.
    const PIPE: i32 = 128 + 13;
    let normal = |words: &[String], code: i32| {
        let program = words.first().map_or("", String::as_str);
        code == 0
            || code == PIPE
            || CODES.iter().any(|(programs, known, meaning)| {
                *known == code && programs.contains(&program) && meaning.contains("(not an error)")
            })
    };
    let failed = commands.iter().zip(stages).filter(|(words, code)| !normal(words, **code));
    let failed: Vec<_> = failed
        .map(|(words, code)| match short(words) {
            name if name.is_empty() => format!("a stage of the pipeline failed (exit code {code})"),
            name => format!("`{name}` failed (exit code {code})"),
        })
        .collect();
    (!failed.is_empty()).then(|| {
        format!(
            "{}: exit_code is that of the last stage of the pipeline and does not show it",
            failed.join(", ")
        )
    })
}

/// Enough of a command to know it by.
fn short(words: &[String]) -> String {
    words.iter().take(2).filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(" ")
}

/// Advice on a command that was run in the foreground. It was run all the same: what looks like a mistake may be none.
pub(crate) fn foreground(outline: &Outline, timed_out: bool) -> Option<String> {
    if timed_out {
        return Some(match server(outline) {
            Some(server) => format!(
                "`{server}` does not end by itself: start it with background=true, and watch_patterns to hear when it is ready"
            ),
            None => "what needs longer is run with background=true, notify_on_complete=true; or give a larger timeout"
                .to_owned(),
        });
    }
    let detaches = outline
        .commands
        .iter()
        .filter_map(|words| words.first())
        .find(|program| DETACH.contains(&program.as_str()));
    match (detaches, outline.background) {
        (Some(program), _) => Some(format!(
            "what `{program}` left running has no id: with background=true (and without {program} and &) its output and its end can be seen, and it can be killed"
        )),
        (None, true) => Some(
            "what `&` left running has no id: with background=true (and without &) its output and its end can be seen, and it can be killed"
                .to_owned(),
        ),
        (None, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshell_policy::outline;

    #[test]
    fn codes_are_explained_by_the_program_that_ran_last() {
        let note = |command: &str, code| meaning(&outline(command), code).unwrap_or_default();
        assert_eq!(note("ls | grep x", 1), "grep: no line matched (not an error)");
        assert_eq!(note("grep x | ls", 1), "");
        assert_eq!(note("grep x", 2), "");
        assert_eq!(note("cd /x && /usr/bin/diff a b", 1), "diff: the files differ (not an error)");
        assert_eq!(note("echo 'grep' ; false", 1), "");
        assert_eq!(note("nonesuch", 127), "command not found");
        assert_eq!(
            note("make", 137),
            "137 = 128 + 9: killed by SIGKILL: by somebody, or by the kernel because memory ran out"
        );
        assert_eq!(note("make", 200), "");
        assert_eq!(note("grep x", 0), "");
    }

    #[test]
    fn an_exit_code_that_hides_another_is_pointed_out() {
        let hint = |command: &str, code| pipeline(&outline(command), code, &[]).unwrap_or_default();
        for command in [
            "cargo test 2>&1 | tail -20",
            "cd x && /usr/bin/make | tee log",
            "(pytest -q | grep FAILED | head)",
        ] {
            assert!(hint(command, 0).starts_with("exit_code is that of `"), "{command}");
        }
        assert!(hint("cargo test 2>&1 | tail -20", 0).contains("whether `cargo test` failed"));
        for command in [
            "cargo test",
            "ls | head",
            "git log | head",
            "echo 'make | tail'",
            "curl -s x | sh",
            "make && ls | head",
            "set -o pipefail; make | tail",
            "make | tail &",
            "make || true | cat",
        ] {
            assert_eq!(hint(command, 0), "", "{command}");
        }
        assert_eq!(hint("make | grep error", 1), "", "that is said already");
    }

    #[test]
    fn a_stage_that_is_known_to_have_failed_is_named() {
        let hint = |command: &str, stages: &[i32]| {
            let code = stages.last().copied().unwrap_or(0);
            pipeline(&outline(command), code, stages).unwrap_or_default()
        };
        let rest = ": exit_code is that of the last stage of the pipeline and does not show it";
        assert_eq!(
            hint("cargo test 2>&1 | tail", &[101, 0]),
            format!("`cargo test` failed (exit code 101){rest}")
        );
        assert_eq!(
            hint("cd x && make | sed s/a/b/ | grep y", &[2, 1, 1]),
            format!("`make` failed (exit code 2), `sed s/a/b/` failed (exit code 1){rest}")
        );
        assert_eq!(
            hint("$CC x | cat", &[4, 0]),
            format!("a stage of the pipeline failed (exit code 4){rest}")
        );
        for (command, stages) in [
            ("cargo test | tail", &[0, 0][..]),
            ("yes | head", &[141, 0]),
            ("grep x f | wc -l", &[1, 0]),
            ("diff a b | head", &[1, 0]),
            ("make | grep error", &[0, 1]),
            // `a` failed, and the pipeline never ran.
            ("a && b | c | d", &[3, 0]),
        ] {
            assert_eq!(hint(command, stages), "", "{command}");
        }
    }

    #[test]
    fn servers_are_told_from_their_look_alikes() {
        let server = |command: &str| server(&outline(command));
        for command in [
            "npm run dev",
            "cd x && npm start",
            "yarn dev",
            "docker compose up",
            "docker compose -f x.yml up",
            "python3 -m http.server 8000",
            "uvicorn app:app",
            "PORT=1 next dev",
        ] {
            assert!(server(command).is_some(), "{command}");
        }
        // Hermes 42620, 108593: quoted text, comments, scripts that only sound like it.
        for command in [
            "echo 'npm run dev'",
            "npm run build:start",
            "npm run dev --help",
            "docker compose up -d",
            "grep -r 'npm start' .",
            "ls # npm start",
            "npm install vite",
            "vite --version",
        ] {
            assert_eq!(server(command), None, "{command}");
        }
    }

    #[test]
    fn advice_is_given_where_it_helps() {
        let advice = |command: &str, timed_out| foreground(&outline(command), timed_out).unwrap_or_default();
        assert_eq!(advice("make", false), "");
        assert_eq!(advice("npm start", false), "", "it ended, so it was fine");
        assert!(advice("npm start", true).starts_with("`npm start` does not end by itself"));
        assert!(advice("make", true).contains("background=true"));
        assert!(advice("nohup x &", false).starts_with("what `nohup` left running"));
        assert!(advice("x & sleep 1", false).starts_with("what `&` left running"));
        assert_eq!(advice("curl 'http://x?a=1&b=2'", false), "");
    }
}
