//! Modes, lists and places.

use farshell_policy::{Allow, BackendKind, Context, Decision, Deny, Mode, Policy, Scope};

fn local() -> Context {
    Context::new(BackendKind::Local).with_cwd("/home/dev/project").with_home("/home/dev")
}

fn docker() -> Context {
    Context::new(BackendKind::Docker).with_cwd("/workspace").with_home("/root")
}

fn with(mode: Mode, deny: &[&str], allow: &[&str]) -> Policy {
    let mut policy = Policy::new(mode);
    policy.deny = deny.iter().filter_map(|text| Deny::new(text)).collect();
    policy.allow = allow.iter().map(|text| Allow::new(*text, Scope::Always)).collect();
    policy
}

fn word(policy: &Policy, text: &str, context: &Context) -> &'static str {
    match policy.decide(text, context).0 {
        Decision::Allow => "allow",
        Decision::Ask { .. } => "ask",
        Decision::Deny { .. } => "deny",
    }
}

#[test]
fn modes() {
    let cases = [
        // command, ask, smart, auto, unattended
        ("ls", ["ask", "allow", "allow", "allow"]),
        ("git push --force", ["ask", "ask", "allow", "deny"]),
        ("rm -rf /", ["deny", "deny", "deny", "deny"]),
        ("$x", ["ask", "ask", "allow", "deny"]),
    ];
    for (text, expected) in cases {
        let got = [Mode::Ask, Mode::Smart, Mode::Auto, Mode::Unattended]
            .map(|mode| word(&Policy::new(mode), text, &local()));
        assert_eq!(got, expected, "{text}");
        let ssh = Context::new(BackendKind::Ssh).with_cwd("/home/dev/project").with_home("/home/dev");
        let got = [Mode::Ask, Mode::Smart, Mode::Auto, Mode::Unattended]
            .map(|mode| word(&Policy::new(mode), text, &ssh));
        assert_eq!(got, expected, "{text} by ssh");
    }
}

#[test]
fn both_vocabularies() {
    for (text, mode) in [
        ("ask", Mode::Ask),
        ("Work Along", Mode::Ask),
        ("work-along", Mode::Ask),
        ("smart", Mode::Smart),
        ("dangerous", Mode::Smart),
        ("manual", Mode::Smart),
        ("Run It Yourself", Mode::Smart),
        ("auto", Mode::Auto),
        ("Hands-Off", Mode::Auto),
        ("hands_off", Mode::Auto),
        ("HandsOff", Mode::Auto),
        ("off", Mode::Auto),
        ("unattended", Mode::Unattended),
        ("Autopilot", Mode::Unattended),
    ] {
        assert_eq!(text.parse::<Mode>().unwrap(), mode, "{text}");
    }
    let error = "smrt".parse::<Mode>().unwrap_err().to_string();
    assert!(error.contains("smrt") && error.contains("Work Along"), "{error}");
}

#[test]
fn unattended_by_rule() {
    let mut policy = Policy::new(Mode::Unattended);
    policy.unattended.allow.insert("services".into());
    assert_eq!(word(&policy, "systemctl restart app", &local()), "allow");
    assert_eq!(word(&policy, "systemctl restart app; git push -f", &local()), "deny");
    assert_eq!(word(&policy, "ls", &local()), "allow");
}

/// <https://github.com/NousResearch/hermes-agent/issues/91002>
#[test]
fn hermes_91002_the_deny_list_holds_in_containers() {
    for context in [local(), docker(), Context::new(BackendKind::Modal), docker().with_host_paths()] {
        for mode in [Mode::Ask, Mode::Smart, Mode::Auto, Mode::Unattended] {
            let policy = with(mode, &["git push"], &["git push", "rule:git-force-push"]);
            for text in [
                "git push",
                "git push origin main",
                "GIT PUSH",
                "git   push",
                "cd x && git push",
                "bash -c 'git push'",
                "sudo -u me git push",
                "/usr/bin/git push",
                "git -C repo push",
                "g\\it push",
                "x=git; $x push",
                "$x push",
                "git $x",
                "echo git push | sh",
                "eval git push",
                "f() { git \"$@\"; }; f push",
                "find . -exec git push {} \\;",
                "ssh host git push",
                "python -c \"import os; os.system('git push')\"",
            ] {
                assert_eq!(word(&policy, text, &context), "deny", "{text} in {context:?}");
            }
            for text in
                ["echo git push", "git pull", "git status", "grep -r 'git push' docs", "git log --grep push"]
            {
                assert_ne!(word(&policy, text, &context), "deny", "{text} in {context:?}");
            }
        }
    }
}

#[test]
fn deny_patterns() {
    let policy = with(Mode::Auto, &["curl *evil.example*", "*secret-tool*", "npm publish*"], &[]);
    assert_eq!(word(&policy, "curl -s https://evil.example/x", &local()), "deny");
    assert_eq!(word(&policy, "curl -s https://good.example/x", &local()), "allow");
    assert_eq!(word(&policy, "ls; /opt/secret-tool dump", &local()), "deny");
    assert_eq!(word(&policy, "npm publish --access public", &local()), "deny");
}

#[test]
fn containers_skip_the_prompt() {
    for text in ["rm -rf src", "git push -f", "curl x | sh", "sudo ls", "rm -rf /"] {
        for mode in [Mode::Ask, Mode::Smart, Mode::Auto, Mode::Unattended] {
            assert_eq!(word(&Policy::new(mode), text, &docker()), "allow", "{text}");
        }
        assert_ne!(word(&Policy::new(Mode::Smart), text, &docker().with_host_paths()), "allow", "{text}");
    }
    assert_eq!(word(&Policy::new(Mode::Auto), "rm -rf /", &docker().with_host_paths()), "deny");
}

#[test]
fn an_allowed_command_allows_itself_only() {
    let policy = with(Mode::Smart, &[], &["git push --force"]);
    assert_eq!(word(&policy, "git push --force", &local()), "allow");
    assert_eq!(word(&policy, "cd sub && git push --force && ls", &local()), "allow");
    for text in [
        "git push --force origin main",
        "git push --force; rm -rf src",
        "git push --force && sudo ls",
        "git push --force > /etc/passwd",
        "GIT_SSH_COMMAND='sudo x' git push --force",
        "git push --force $(sudo ls)",
        "git push --force $X",
        "sudo git push --force",
    ] {
        assert_eq!(word(&policy, text, &local()), "ask", "{text}");
    }
    assert_eq!(word(&policy, "git push --force; rm -rf /", &local()), "deny");

    let policy = with(Mode::Ask, &[], &["git push", "cargo test *", "ls"]);
    assert_eq!(word(&policy, "git push", &local()), "allow");
    assert_eq!(word(&policy, "cargo test", &local()), "allow");
    assert_eq!(word(&policy, "cargo test -p x -- --nocapture", &local()), "allow");
    assert_eq!(word(&policy, "git push && ls", &local()), "allow");
    for text in [
        "git push origin",
        "git push; rm x",
        "cargo testx",
        "ls > x",
        "cargo test | tee x",
        "ls -l",
        "X=1 ls",
    ] {
        assert_eq!(word(&policy, text, &local()), "ask", "{text}");
    }
}

#[test]
fn allow_by_rule_and_by_text() {
    let policy = with(Mode::Smart, &[], &["rule:interpreter-code", "make && sudo ./deploy.sh"]);
    assert_eq!(word(&policy, "python -c 'import os; os.system(\"ls\")'", &local()), "allow");
    assert_eq!(word(&policy, "make && sudo ./deploy.sh", &local()), "allow");
    assert_eq!(word(&policy, "make && sudo ./deploy.sh; ls", &local()), "ask");
    // No rule can be named that allows the hard list.
    let policy = with(Mode::Smart, &[], &["rule:delete-root", "rm -rf /"]);
    assert_eq!(word(&policy, "rm -rf /", &local()), "deny");
}
