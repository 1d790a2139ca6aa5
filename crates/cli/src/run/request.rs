//! What was typed becomes a request.

use crate::args::{RunArgs, TimeoutAction};
use crate::output::invalid;
use crate::{load, reach};
use farshell_api::run::{OnTimeout, Size, StartRequest};
use farshell_engine::Error;
use farshell_protocol::SessionName;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

/// What a terminal is like where there is none to go by.
const USUAL: Size = Size { rows: 24, cols: 80 };

pub(crate) fn build(args: &RunArgs) -> Result<StartRequest, Error> {
    let session = session(&args.session)?;
    let target = reach::target(&args.target.task, args.target.backend.as_deref())?;
    let mut request = StartRequest::new(command(&args.command));
    // In the background the client chooses it: another one, if a start under the first is known never to have begun.
    request.id = (!args.background).then(farshell_client::new_process_id);
    request.target = target;
    request.session = session;
    request.workdir = args.workdir.clone().map(|dir| dir.into_vec().into());
    request.timeout = args.timeout.as_deref().map(timeout).transpose()?;
    request.on_timeout = match args.on_timeout {
        TimeoutAction::Kill => OnTimeout::Kill,
        TimeoutAction::Background => OnTimeout::Background,
    };
    request.background = args.background;
    // What runs in the background can be sent input later, and on a terminal there is always somebody to type.
    request.stdin = args.stdin.is_some() || args.background || args.pty;
    request.pty = args.pty.then(|| crate::terminal::size().unwrap_or(USUAL));
    request.notify_on_complete = args.notify;
    request.watch_patterns = args.watch.clone();
    Ok(request)
}

pub(crate) fn session(name: &str) -> Result<String, Error> {
    let name = SessionName::new(name).map_err(|e| invalid("reading --session", e.to_string()))?;
    Ok(name.into())
}

/// How long the command may take. Whether that is too long is the server's to say.
fn timeout(text: &str) -> Result<f64, Error> {
    let seconds = text.trim().parse::<f64>().ok().filter(|s| *s > 0.0);
    // What rounds to nothing is nothing.
    let sensible = |s: &f64| Duration::try_from_secs_f64(*s).is_ok_and(|t| t.as_millis() > 0);
    seconds.filter(sensible).ok_or_else(|| {
        let error = invalid("reading --timeout", format!("{text:?} is not a number of seconds above 0"));
        match load::config(None).and_then(|config| load::settings(&config)) {
            Ok(settings) => error.with_hint(format!(
                "give a number above 0 and up to {}, such as 10 or 0.5",
                settings.max_foreground_timeout.as_secs()
            )),
            Err(_) => error,
        }
    })
}

/// One argument is a command line; several are words.
fn command(words: &[OsString]) -> Vec<u8> {
    if let [line] = words {
        return line.as_bytes().to_vec();
    }
    let mut text = Vec::new();
    for word in words {
        if !text.is_empty() {
            text.push(b' ');
        }
        quote(&mut text, word.as_bytes());
    }
    text
}

/// Quotes a word for the shell, unless it means nothing but itself.
fn quote(text: &mut Vec<u8>, word: &[u8]) {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./,:@%+".contains(b);
    if !word.is_empty() && word.iter().all(plain) {
        text.extend_from_slice(word);
        return;
    }
    text.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            other => text.push(*other),
        }
    }
    text.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_argument_is_a_command_line_and_several_are_words() {
        let said = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            String::from_utf8(command(&words)).unwrap()
        };
        assert_eq!(said(&["echo $HOME; ls *"]), "echo $HOME; ls *");
        assert_eq!(said(&["ls", "-l", "a b"]), "ls -l 'a b'");
        assert_eq!(said(&["echo", "it's", "", "$HOME", "*"]), r"echo 'it'\''s' '' '$HOME' '*'");
        assert_eq!(said(&["A=1", "~", "{a,b}"]), "'A=1' '~' '{a,b}'");
    }
}
