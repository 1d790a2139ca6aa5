//! What it means when `ssh` fails: it says so in words only, which have been stable for many years.

use crate::config::Config;
use farshell_engine::{Error, Kind};

/// How much of somebody else's words is shown.
const WORDS: usize = 600;

/// Text from elsewhere, made fit for a message: one line, no control characters, not long.
pub(crate) fn plain(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text: String = lines.join("; ").chars().filter(|c| !c.is_control()).collect();
    match text.char_indices().nth(WORDS) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

pub(crate) fn no_client(what: &str) -> Error {
    Error::new(Kind::Unavailable, what, "there is no ssh program on this machine")
        .with_hint("install OpenSSH's client (package openssh-client or openssh-clients)")
}

/// Whether the host, or something before it, turned the connection away before anything was said: a daemon does so
/// when too many knock at once.
pub(crate) fn turned_away(said: &str) -> bool {
    (said.contains("kex_exchange_identification") || said.contains("banner exchange"))
        && (said.contains("closed by remote host") || said.contains("reset by peer"))
}

/// Why no connection could be made, from what `ssh` said. Troubles of the network, which may pass, are
/// [`Kind::Disconnected`] or [`Kind::TimedOut`].
pub(crate) fn explain(config: &Config, said: &str) -> Error {
    let to = config.destination();
    let what = format!("connecting to {to}");
    let settings = &config.settings;
    let by_hand = || {
        let port = if settings.port == 22 { String::new() } else { format!(" -p {}", settings.port) };
        let key = settings.key.as_ref().map_or_else(String::new, |key| format!(" -i {}", key.display()));
        let jump = settings.jump.as_ref().map_or_else(String::new, |jump| format!(" -J {jump}"));
        format!("ssh{port}{key}{jump} {}@{}", settings.user, settings.host)
    };
    let has = |part: &str| said.contains(part);
    let error = |kind, message: String, hint: String| Error::new(kind, what.clone(), message).with_hint(hint);

    if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        // "Offending ED25519 key in /home/me/.ssh/known_hosts:7"
        let offending = said.lines().find(|line| line.starts_with("Offending")).map(str::trim);
        let line = offending.and_then(|line| line.split_once(" in ")).map(|(_, at)| at);
        let (file, number) = line.and_then(|at| at.rsplit_once(':')).unwrap_or(("~/.ssh/known_hosts", "?"));
        let message = format!("the host key has changed: it is not the one in line {number} of {file}");
        // "Host key for [10.0.0.1]:2222 has changed and you have requested strict checking.": this may be another name
        // than in the settings, and that of a jump host.
        let named = said.lines().find_map(|line| {
            line.trim().strip_prefix("Host key for ")?.split_once(" has changed").map(|(name, _)| name)
        });
        let name = match named {
            Some(name) if !name.contains(['\'', ' ']) => name.to_owned(),
            _ if settings.port == 22 => settings.host.clone(),
            _ => format!("[{}]:{}", settings.host, settings.port),
        };
        return error(
            Kind::IdentityChanged,
            message,
            format!(
                "somebody may be listening in. If the host was set up anew and you know its new key, remove the old \
                 one: `ssh-keygen -f {file} -R '{name}'`"
            ),
        );
    }
    if has("Host key verification failed") {
        let message =
            if has("revoked") { "its host key was revoked" } else { "its host key is not known here" };
        let hint = format!(
            "check the key and accept it once by hand: `{}`; or set ssh_host_key_policy to accept-new",
            by_hand()
        );
        return error(Kind::Unavailable, format!("{message}: {}", plain(said)), hint);
    }
    if has("UNPROTECTED PRIVATE KEY FILE") {
        let hint = "others can read the private key: `chmod 600` it".to_owned();
        return error(Kind::PermissionDenied, "ssh does not use a key that others can read".into(), hint);
    }
    if has("Too many authentication failures") {
        let hint = "the agent offers too many keys: set ssh_key to the right one".to_owned();
        return error(
            Kind::PermissionDenied,
            "the host refused before the right key was offered".into(),
            hint,
        );
    }
    if has("Permission denied (") {
        let ways = said.rsplit_once("Permission denied (").and_then(|(_, rest)| rest.split_once(')'));
        let ways = ways.map_or("", |(ways, _)| ways);
        let hint = format!(
            "`{}` has to work without a question: set ssh_user and ssh_key (or TERMINAL_SSH_USER, TERMINAL_SSH_KEY), \
             or add the key to your agent with ssh-add",
            by_hand()
        );
        let asked = if has("agent refused operation") { ", and the agent refused to sign" } else { "" };
        return error(
            Kind::PermissionDenied,
            format!("the host does not accept {} (it offers: {ways}){asked}", settings.user),
            hint,
        );
    }
    if has("Bad configuration option") || has("Bad owner or permissions") || has("bad configuration options")
    {
        let hint = "correct ssh_options, or ~/.ssh/config".to_owned();
        return error(Kind::Invalid, format!("ssh does not accept its configuration: {}", plain(said)), hint);
    }
    if has("Unable to negotiate") || has("no matching") {
        let hint =
            "the two have no method in common; name one in ssh_options, as in HostKeyAlgorithms=+ssh-rsa"
                .to_owned();
        return error(Kind::Unavailable, plain(said), hint);
    }
    if has("Could not resolve hostname") {
        // The name that can't be found may be that of a jump host.
        let name = said.rsplit_once("Could not resolve hostname ").and_then(|(_, rest)| rest.split_once(':'));
        let name = name.map_or(settings.host.as_str(), |(name, _)| name);
        if has("Temporary failure") {
            let hint = "is this machine online?".to_owned();
            return error(
                Kind::Disconnected,
                format!("the name {name} can't be looked up at the moment"),
                hint,
            );
        }
        let hint = "check ssh_host (or TERMINAL_SSH_HOST), ssh_jump and the Host entries in ~/.ssh/config"
            .to_owned();
        return error(Kind::Unavailable, format!("there is no host {name}"), hint);
    }
    let through = if settings.jump.is_some() || has("stdio forwarding failed") {
        " (it goes through a jump host)"
    } else {
        ""
    };
    if has("Connection refused") || has("connect failed") {
        let hint = format!("is sshd running there, and is {} its port (ssh_port)?{through}", settings.port);
        return error(Kind::Disconnected, "nothing listens there: connection refused".into(), hint);
    }
    if has("timed out") || has("Timeout") {
        let hint = format!("is the host up, and does a firewall let you through?{through}");
        return error(Kind::TimedOut, format!("no answer: {}", plain(said)), hint);
    }
    if has("No route to host") || has("Network is unreachable") {
        let hint = format!("is this machine online, and the host up?{through}");
        return error(Kind::Disconnected, format!("no way to the host: {}", plain(said)), hint);
    }
    if turned_away(said) {
        // What a jump host says is not heard: ssh throws that away for a connection that is to stay.
        let (who, jump) = match &settings.jump {
            Some(jump) => (
                format!("the host, or the jump host {jump},"),
                format!(", or the jump host does not let you in; `{}` shows what it says", by_hand()),
            ),
            None => ("the host".to_owned(), String::new()),
        };
        let hint = format!(
            "too many may be connecting at once (MaxStartups in its sshd_config), or the host blocks this address{jump}"
        );
        let message = format!("{who} closed the connection before it said anything");
        return error(Kind::Disconnected, message, hint);
    }
    let said = plain(said);
    let said = if said.is_empty() { "ssh ended without a word".to_owned() } else { said };
    error(Kind::Disconnected, said, format!("try by hand: `{}`", by_hand()))
}

/// What to do about a host that takes logins and runs nothing.
pub(crate) const NO_SHELL: &str = "the account needs a shell that runs commands: no nologin, rbash or sftp-only account, no ForceCommand (or command= in \
     authorized_keys) but one that runs $SSH_ORIGINAL_COMMAND in the end, and shell start files that come to an end";

/// The host took the login and did not run what it was asked to.
pub(crate) fn no_shell(config: &Config, code: Option<i32>, answered: &str, complained: &str) -> Error {
    let what = format!("running a command on {}", config.destination());
    let heard =
        [plain(answered), plain(complained)].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
    let heard = if heard.is_empty() {
        code.map_or_else(|| "nothing".to_owned(), |code| format!("exit code {code} without a word"))
    } else {
        heard.join("; ")
    };
    let message = if heard.contains("restricted") {
        format!("the account's shell is a restricted one; its answer: {heard}")
    } else {
        format!("the host did not run it; its answer: {heard}")
    };
    Error::new(Kind::Unavailable, what, message).with_hint(NO_SHELL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;

    /// What the jump host says itself is not heard.
    #[test]
    fn a_jump_host_that_refuses_is_thought_of() {
        let mut config = sample();
        config.settings.jump = Some("me@door".into());
        let error = explain(&config, "kex_exchange_identification: Connection closed by remote host");
        assert!(error.message.contains("the jump host me@door"), "{error}");
        assert!(error.hint.unwrap().contains("`ssh -J me@door me@build.example`"));
    }

    #[test]
    fn each_failure_has_its_own_words() {
        let mut config = sample();
        config.settings.port = 2222;
        let kinds = [
            (
                "me@h: Permission denied (publickey,password).\r\n",
                Kind::PermissionDenied,
                "publickey,password",
            ),
            (
                "ssh: Could not resolve hostname bild: Name or service not known\r\n",
                Kind::Unavailable,
                "no host bild",
            ),
            (
                "ssh: Could not resolve hostname h: Temporary failure in name resolution",
                Kind::Disconnected,
                "moment",
            ),
            ("ssh: connect to host h port 2222: Connection refused", Kind::Disconnected, "refused"),
            ("ssh: connect to host h port 2222: Connection timed out", Kind::TimedOut, "no answer"),
            ("ssh: connect to host h port 2222: No route to host", Kind::Disconnected, "no way"),
            (
                "kex_exchange_identification: Connection closed by remote host",
                Kind::Disconnected,
                "before it said",
            ),
            (
                "No ED25519 host key is known for h.\r\nHost key verification failed.",
                Kind::Unavailable,
                "not known",
            ),
            ("command-line: line 0: Bad configuration option: foo", Kind::Invalid, "foo"),
            (
                "Unable to negotiate with h: no matching host key type found.",
                Kind::Unavailable,
                "no matching",
            ),
            ("something new", Kind::Disconnected, "something new"),
        ];
        for (said, kind, part) in kinds {
            let error = explain(&config, said);
            assert_eq!(error.kind, kind, "{said}");
            assert!(error.message.contains(part), "{said}: {error}");
            assert!(error.hint.is_some(), "{said}");
        }
    }

    #[test]
    fn a_changed_key_is_named_with_its_line() {
        let said = "@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@\nIT IS POSSIBLE\n\
                    Offending ED25519 key in /home/me/.ssh/known_hosts:7\nHost key verification failed.\n";
        let error = explain(&sample(), said);
        assert_eq!(error.kind, Kind::IdentityChanged);
        assert!(error.message.contains("line 7 of /home/me/.ssh/known_hosts"), "{error}");
        assert!(error.hint.unwrap().contains("ssh-keygen -f /home/me/.ssh/known_hosts -R 'build.example'"));
        let said = format!(
            "{said}Host key for [10.0.0.1]:2222 has changed and you have requested strict checking.\r\n"
        );
        assert!(explain(&sample(), &said).hint.unwrap().contains("-R '[10.0.0.1]:2222'"));
    }

    #[test]
    fn words_from_elsewhere_are_tamed() {
        assert_eq!(plain("a\x1b[31m\r\n\n  b\u{7}"), "a[31m; b");
        assert!(plain(&"x".repeat(5000)).chars().count() < WORDS + 5);
    }
}
