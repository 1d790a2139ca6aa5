//! What `ssh` is told.
//!
//! It takes the first value that it meets, so the order says who wins:
//! 1. on the command line, what this backend can't do without ([`OURS`]); these are refused in `ssh_options`
//! 2. on the command line, `ssh_options`
//! 3. in a file of ours, what a setting asks for: keep-alive, and a strict policy
//! 4. the user's own configuration, then the machine's
//! 5. in the file of ours again, what is only a default
//!
//! The file is passed on by `ssh` to what it starts for a jump host, so that these get the same care.

use crate::config::Config;
use farshell_config::choice::HostKeyPolicy;
use farshell_engine::{Error, Kind, Result};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

/// How long a connection stays that nobody uses.
const PERSIST: &str = "300";

/// What the master is told before anything else.
const OURS: &[(&str, &str)] = &[
    ("ControlMaster", "yes"),
    ("ControlPersist", PERSIST),
    ("SessionType", "none"),
    ("RequestTTY", "no"),
    ("RemoteCommand", "none"),
    ("PermitLocalCommand", "no"),
    // Forwardings are for the user's own logins; a second login could not even bind them.
    ("ClearAllForwardings", "yes"),
    ("Tunnel", "no"),
    // A socket that a killed master left is in the way otherwise.
    ("StreamLocalBindUnlink", "yes"),
    ("StreamLocalBindMask", "0177"),
    // What is printed is read by a program: errors, and no banner.
    ("LogLevel", "ERROR"),
    ("VisualHostKey", "no"),
];

/// Further options that `ssh_options` can't have.
const REFUSED: &[&str] = &[
    "ControlPath",
    "ForkAfterAuthentication",
    "StdinNull",
    "SendEnv",
    "SetEnv",
    "Host",
    "Match",
    "Include",
    // Nobody answers a question at a terminal.
    "BatchMode",
    // They would have no effect.
    "ForwardAgent",
    "ForwardX11",
    "ForwardX11Trusted",
    "LocalForward",
    "RemoteForward",
    "DynamicForward",
];

/// Options that are settings of their own, and would contradict them in silence.
const SETTINGS: &[(&str, &str)] = &[("User", "ssh_user"), ("Port", "ssh_port")];

/// What is set for the host and for all on the way to it, whatever the user's configuration says. Silence is noticed
/// after three intervals: 24 seconds.
const FIRM: &[(&str, &str)] = &[
    ("ServerAliveInterval", "8"),
    ("ServerAliveCountMax", "2"),
    ("ForwardAgent", "no"),
    ("ForwardX11", "no"),
];

/// What holds unless the user's configuration says otherwise.
const DEFAULTS: &[(&str, &str)] = &[("ConnectTimeout", "15"), ("StrictHostKeyChecking", "accept-new")];

/// The keys that `ssh` takes when none is named, in its order.
const USUAL_KEYS: &[&str] = &["id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"];

/// The name and the value of an option as people write it: `Name=value` or `Name value`.
fn split(option: &str) -> Option<(&str, &str)> {
    let option = option.trim();
    let end = option.find(|c: char| c == '=' || c.is_whitespace())?;
    let (name, rest) = option.split_at(end);
    let value = rest.trim_start_matches(|c: char| c == '=' || c.is_whitespace());
    let named = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
    (named && !value.is_empty() && !value.contains(['\n', '\r', '\0'])).then_some((name, value))
}

/// `ssh_options` are options, and none is ours or against another setting.
pub(crate) fn check(options: &[String], policy: HostKeyPolicy) -> Result<()> {
    let what = "reading ssh_options";
    for option in options {
        let Some((name, value)) = split(option) else {
            let message = format!("{option:?} is not `Name=value`");
            return Err(Error::new(Kind::Invalid, what, message)
                .with_hint("see ssh_config(5) for names and values; one entry each"));
        };
        if let Some((_, setting)) = SETTINGS.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)) {
            let message = format!("{name} has a setting of its own");
            return Err(Error::new(Kind::Invalid, what, message).with_hint(format!("set {setting} instead")));
        }
        let checks = name.eq_ignore_ascii_case("StrictHostKeyChecking");
        if checks && policy == HostKeyPolicy::Strict && !value.eq_ignore_ascii_case("yes") {
            let message = format!("{name}={value} contradicts ssh_host_key_policy, which is strict");
            return Err(Error::new(Kind::Invalid, what, message).with_hint("leave one of them out"));
        }
        let ours = OURS.iter().map(|(name, _)| *name).chain(REFUSED.iter().copied());
        if ours.into_iter().any(|other| other.eq_ignore_ascii_case(name)) {
            let hint = if name.to_lowercase().ends_with("env") {
                "variables for commands do not go through ssh: export them in the session, or pass them with the call"
            } else {
                "leave it out; for your own ssh it can stay in ~/.ssh/config"
            };
            let message = format!("{name} is set by farshell itself");
            return Err(Error::new(Kind::Invalid, what, message).with_hint(hint));
        }
    }
    Ok(())
}

/// The file that `ssh` reads.
pub(crate) fn file(config: &Config) -> String {
    let mut text = String::from("# Written by farshell for its own connections; overwritten by it.\n");
    let mut add = |name: &str, value: &str| {
        let _ = writeln!(text, "{name} {value}");
    };
    for (name, value) in FIRM {
        add(name, value);
    }
    if config.settings.host_key_policy == HostKeyPolicy::Strict {
        add("StrictHostKeyChecking", "yes");
    }
    // Nobody sits at a terminal. Somebody may sit at a screen, where a program can ask.
    if config.variable("SSH_ASKPASS").is_none() {
        add("BatchMode", "yes");
    }
    match &config.ssh_config {
        Some(path) => add("Include", &format!("\"{}\"", path.display())),
        None => {
            for path in ["~/.ssh/config", "/etc/ssh/ssh_config", "/usr/etc/ssh/ssh_config"] {
                add("Include", path);
            }
        }
    }
    add("Match", "all");
    for (name, value) in DEFAULTS {
        add(name, value);
    }
    // A jump host gets nothing of the command line. It is logged in to with the key of the host, or with what ssh takes by
    // itself when no key is named.
    if let Some(key) = &config.settings.key {
        add("Match", &format!("!originalhost {}", config.settings.host));
        add("IdentityFile", &format!("\"{}\"", key.display()));
        for name in USUAL_KEYS {
            add("IdentityFile", &format!("~/.ssh/{name}"));
        }
    }
    text
}

/// The arguments that make a master with this control socket.
pub(crate) fn master(config: &Config, file: &Path, control: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> =
        vec!["-F".into(), file.into(), "-N".into(), "-T".into(), "-S".into(), control.into()];
    let mut option = |text: String| args.extend(["-o".into(), OsString::from(text)]);
    for (name, value) in OURS {
        // Older clients know this one as -N only.
        if *name != "SessionType" {
            option(format!("{name}={value}"));
        }
    }
    let settings = &config.settings;
    for (name, value) in settings.options.iter().filter_map(|text| split(text)) {
        option(format!("{name}={value}"));
    }
    if let Some(jump) = &settings.jump {
        option(format!("ProxyJump={jump}"));
    }
    if let Some(key) = &settings.key {
        // Only keys that are named: an agent full of others uses up the attempts that the host allows.
        option("IdentitiesOnly=yes".into());
        args.extend(["-i".into(), key.into()]);
    }
    // The default is no choice: the user's configuration may know the port.
    if settings.port != 22 {
        args.extend(["-p".into(), settings.port.to_string().into()]);
    }
    args.extend(["-l".into(), OsString::from(&settings.user), "--".into(), OsString::from(&settings.host)]);
    args
}

/// The arguments that talk to a master. No configuration is read, so no variable is sent; should the master be gone,
/// no other connection is made in its place.
pub(crate) fn through(control: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["-F".into(), "none".into(), "-S".into(), control.into()];
    for option in
        ["ControlMaster=no", "ProxyCommand=false", "LogLevel=ERROR", "BatchMode=yes", "EscapeChar=none"]
    {
        args.extend(["-o".into(), OsString::from(option)]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;

    fn list(options: &[&str]) -> Vec<String> {
        options.iter().map(|o| (*o).to_owned()).collect()
    }

    fn check(options: &[String]) -> Result<()> {
        super::check(options, HostKeyPolicy::AcceptNew)
    }

    #[test]
    fn what_is_a_setting_is_not_contradicted() {
        for (option, part) in [("user=root", "ssh_user"), ("Port 23", "ssh_port")] {
            let error = check(&list(&[option])).unwrap_err();
            assert!(error.hint.unwrap().contains(part), "{option}");
        }
        for option in ["StrictHostKeyChecking=no", "stricthostkeychecking accept-new"] {
            check(&list(&[option])).unwrap();
            let error = super::check(&list(&[option]), HostKeyPolicy::Strict).unwrap_err();
            assert!(error.message.contains("ssh_host_key_policy"), "{error}");
        }
        super::check(&list(&["StrictHostKeyChecking=yes"]), HostKeyPolicy::Strict).unwrap();
    }

    #[test]
    fn what_is_ours_is_refused_by_name() {
        for option in [
            "ControlPath=/x",
            "controlmaster auto",
            "SendEnv=*",
            "RemoteCommand = x",
            "LogLevel=QUIET",
            "ForwardAgent=yes",
        ] {
            let error = check(&list(&[option])).unwrap_err();
            assert!(error.message.contains("is set by farshell itself"), "{option}: {error}");
        }
        for option in ["", "Compression", "=x", "Compression=", "-oX=y", "A=b\nProxyCommand x"] {
            assert!(check(&list(&[option])).unwrap_err().message.contains("is not"), "{option}");
        }
        check(&list(&["Compression=yes", "Ciphers aes128-ctr", "UserKnownHostsFile = /a b"])).unwrap();
    }

    #[test]
    fn the_order_says_who_wins() {
        let mut config = sample();
        config.settings.options = list(&["ServerAliveInterval 3"]);
        config.settings.key = Some("/k".into());
        let args = master(&config, Path::new("/f"), Path::new("/c"));
        let at =
            |text: &str| args.iter().position(|a| a == text).unwrap_or_else(|| panic!("{text}: {args:?}"));
        assert!(at("ControlMaster=yes") < at("ServerAliveInterval=3"));
        assert!(at("ControlPersist=300") < at("ServerAliveInterval=3"), "five minutes after its last use");
        assert!(at("ServerAliveInterval=3") < at("IdentitiesOnly=yes"));
        assert_eq!(args[args.len() - 4..], ["-l", "me", "--", "build.example"]);
        let text = file(&config);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(at("ServerAliveInterval 8") < at("Include ~/.ssh/config"));
        assert!(at("Include /etc/ssh/ssh_config") < at("StrictHostKeyChecking accept-new"));
        assert!(
            at("StrictHostKeyChecking accept-new")
                < at("Match !originalhost build.example\nIdentityFile \"/k\"")
        );
        config.settings.key = None;
        config.settings.host_key_policy = HostKeyPolicy::Strict;
        let text = file(&config);
        assert!(!text.contains("IdentityFile"));
        assert!(text.find("StrictHostKeyChecking yes") < text.find("Include"));
    }
}
