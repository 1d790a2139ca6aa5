//! What a script calls.

use super::frames::Asked;
use crate::{Answer, Call, CancellationToken, Observer, Tools};
use farshell_api::approval::Approval;
use farshell_api::run::Target;
use farshell_engine::backend::{BoxFuture, News};
use farshell_keeper::Origin;
use serde_json::{Value, json};

/// What can be called.
const OFFERED: [&str; 5] = ["terminal", "read_file", "write_file", "patch", "search_files"];
/// Arguments of `terminal` that make no sense for a caller who ends when the script does.
const NOT_OFFERED: [&str; 4] = ["background", "pty", "notify_on_complete", "watch_patterns"];
/// The most calls of one script.
const MOST: u32 = 50;

/// In whose name a script calls, and where: as whoever has called for the script.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    pub(super) tools: &'a Tools,
    pub(super) target: &'a Target,
    pub(super) session: &'a str,
    pub(super) origin: &'a Origin,
    /// Cancelled when the script is over: what it has begun ends with it.
    pub(super) cancel: &'a CancellationToken,
    pub(super) observer: &'a Quiet<'a>,
}

/// An answer on its way to the script.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) line: Vec<u8>,
    /// Bytes of the call that it answers.
    pub(super) weight: usize,
}

/// Passes on all but the output of commands: that is for the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet<'a>(pub(super) &'a dyn Observer);

impl Observer for Quiet<'_> {
    fn progress(&self, news: &News) {
        self.0.progress(news);
    }

    fn approval(&self, approval: &Approval) {
        self.0.approval(approval);
    }
}

impl<'a> Caller<'a> {
    /// Makes a call. `made` is how many were made so far.
    pub(super) fn call(&self, asked: Asked, weight: usize, made: &mut u32) -> BoxFuture<'a, Reply> {
        let Asked { id, tool, arguments } = asked;
        let refusal = refusal(&tool, &arguments).or_else(|| {
            let message = format!(
                "a script makes at most {MOST} calls of tools, and this would be one more. Do more with each (a loop in \
                 the shell, a search), or go on in another script"
            );
            (*made >= MOST).then_some(message)
        });
        if let Some(message) = refusal {
            let result = json!({ "error": message, "error_kind": "invalid", "status": "error" });
            return Box::pin(std::future::ready(Reply::new(id, &result, weight)));
        }
        *made += 1;
        let call = Call {
            target: self.target.clone(),
            session: self.session.to_owned(),
            origin: self.origin.clone(),
            cancel: self.cancel.clone(),
            observer: self.observer,
        };
        let called = called(self.tools, tool, Value::Object(arguments), call);
        Box::pin(async move { Reply::new(id, &called.await.result, weight) })
    }
}

/// A tool's call, without the name of its type: a script is one of the things that a tool's call can be.
fn called<'a>(tools: &'a Tools, tool: String, arguments: Value, call: Call<'a>) -> BoxFuture<'a, Answer> {
    Box::pin(async move { tools.call(&tool, arguments, call).await })
}

impl Reply {
    fn new(id: u64, result: &Value, weight: usize) -> Self {
        let line = format!("{}\n", json!({ "id": id, "result": result })).into_bytes();
        Self { line, weight }
    }
}

/// Why a call is not made.
fn refusal(tool: &str, arguments: &serde_json::Map<String, Value>) -> Option<String> {
    if !OFFERED.contains(&tool) {
        let tool = crate::text::first(tool, 80);
        return Some(format!("a script can't call {tool:?}; what it can call is {}", OFFERED.join(", ")));
    }
    let given = |name: &&&str| {
        arguments.get(**name).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
    };
    let wrong = NOT_OFFERED.iter().filter(|_| tool == "terminal").find(given)?;
    Some(format!(
        "argument `{wrong}` of terminal is not for scripts: call terminal itself, before or after the script"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_outlives_a_script_is_not_offered_to_it() {
        let refused = |tool: &str, arguments: Value| refusal(tool, arguments.as_object().unwrap());
        assert_eq!(refused("terminal", json!({"command": "ls", "background": false, "pty": null})), None);
        assert_eq!(
            refused("patch", json!({"pty": true})),
            None,
            "the tool itself says what is wrong with it"
        );
        for name in NOT_OFFERED {
            let error = refused("terminal", json!({"command": "ls", name: true})).unwrap();
            assert!(error.contains(name), "{error}");
        }
        for tool in ["execute_code", "process", "", "nonesuch"] {
            assert!(refused(tool, json!({})).unwrap().contains("what it can call is terminal"), "{tool}");
        }
    }
}
