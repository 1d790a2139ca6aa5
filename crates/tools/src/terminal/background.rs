//! A command that goes on without its caller.

use super::{Arguments, Result, refused};
use crate::failure::{Outcome, answer};
use crate::{Call, Tools};
use farshell_api::Text;
use farshell_api::process::StdinRequest;
use farshell_api::run::Target;

pub(super) async fn start(tools: &Tools, arguments: &Arguments, target: Target, call: &Call<'_>) -> Outcome {
    let keeper = tools.keeper(call);
    let told = call.told();
    let request = arguments.request(target, call);
    // Not cancelled with the call: what has begun goes on. A question that nobody waits for is withdrawn.
    let process = keeper.start_observed(request, &told).await.map_err(refused)?;
    let mut hints = Vec::new();
    if let Some(input) = &arguments.stdin {
        let request = StdinRequest { data: Text::from(input.as_str()), ..StdinRequest::default() };
        if let Err(error) = keeper.stdin(&process.id, request).await {
            hints.push(format!("its input was not taken: {error}"));
        }
    }
    if !arguments.notify_on_complete && arguments.watch_patterns.is_empty() {
        hints.push(format!(
            "process(action=\"poll\", session_id=\"{0}\") shows how it goes, action=\"wait\" waits for its end",
            process.id
        ));
    }
    answer(&Result {
        output: "Background process started".to_owned(),
        exit_code: 0,
        session_id: process.id.clone(),
        pid: process.pid,
        cwd: process.cwd.as_ref().map(|cwd| cwd.lossy().into_owned()),
        backend: process.backend.clone(),
        place: process.place.clone(),
        note: process.note.clone(),
        hint: (!hints.is_empty()).then(|| hints.join("; ")),
        notify_on_complete: arguments.notify_on_complete,
        watch_patterns: arguments.watch_patterns.clone(),
        ..Result::default()
    })
}
