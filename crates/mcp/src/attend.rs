//! Waiting for a call, in the name of a client.

use crate::ask::{self, ANSWER};
use crate::running::{Heard, Running};
use crate::suspended::Waiting;
use crate::{MAX_MESSAGE, Shared};
use farshell_api::approval::Approval;
use farshell_tools::Answer;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, CancelledNotification, CancelledNotificationParam, ClientResult,
    ContentBlock, InputRequest, InputRequests, InputRequiredResult, ProgressNotificationParam, ProgressToken,
    ProtocolVersion, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RoleServer};
use serde_json::json;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// A client that hears nothing for long gives up; many do after a minute.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// What can be done about approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// In the middle of the call.
    Ask,
    /// At its end; it comes again.
    Suspend,
    /// The client can't ask anybody.
    Elsewhere,
}

fn way(context: &RequestContext<RoleServer>) -> Way {
    if !ask::can_ask(context.client_capabilities().as_ref()) {
        return Way::Elsewhere;
    }
    let version = context.protocol_version();
    let newest = version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    if newest { Way::Suspend } else { Way::Ask }
}

/// Waits until a call is done, or until its client has gone.
pub(crate) async fn attend(
    shared: &Arc<Shared>,
    mut running: Running,
    context: &RequestContext<RoleServer>,
    absent: impl Future<Output = ()>,
) -> Result<CallToolResponse, ErrorData> {
    let way = way(context);
    let mut progress = Progress::new(context);
    let mut absent = std::pin::pin!(absent);
    let mut hurried = std::pin::pin!(shared.hurried());
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let told = Arc::clone(&running.told);
    loop {
        let heard = tokio::select! {
            biased;
            answer = running.done() => return Ok(result(answer).into()),
            () = context.ct.cancelled() => return Err(cancelled()),
            () = &mut absent => return Err(cancelled()),
            () = &mut hurried => {
                running.let_go();
                return Ok(interrupted().into());
            }
            heard = told.next() => heard,
            _ = heartbeat.tick() => Heard::Progress(format!(
                "{} bytes so far, after {} s",
                told.bytes(),
                running.begun.elapsed().as_secs()
            )),
        };
        match heard {
            Heard::Progress(message) => progress.say(message).await,
            Heard::Approval(approval) => match way {
                Way::Elsewhere => progress.say(ask::elsewhere(&approval)).await,
                Way::Suspend => match suspend(shared, running, *approval) {
                    Ok(asked) => return Ok(asked.into()),
                    Err(waiting) => {
                        progress.say(ask::elsewhere(&waiting.approval)).await;
                        running = waiting.running;
                    }
                },
                Way::Ask => {
                    progress.say(ask::elsewhere(&approval)).await;
                    let asking = shared.ask(&approval, &running, context);
                    tokio::select! {
                        () = asking => {}
                        // It is cancelled when it is dropped, and the approval withdrawn with it.
                        () = context.ct.cancelled() => return Err(cancelled()),
                        () = &mut absent => return Err(cancelled()),
                        () = &mut hurried => {
                            running.let_go();
                            return Ok(interrupted().into());
                        }
                    }
                }
            },
        }
    }
}

/// Ends the request with the question.
fn suspend(
    shared: &Shared,
    running: Running,
    approval: Approval,
) -> Result<InputRequiredResult, Box<Waiting>> {
    let Some(question) = ask::question(&approval) else {
        return Err(Box::new(Waiting { running, approval }));
    };
    let handle = shared.suspended.keep(Waiting { running, approval })?;
    let questions = InputRequests::from([(ANSWER.to_owned(), InputRequest::Elicitation(question))]);
    Ok(InputRequiredResult::new(Some(questions), Some(handle)))
}

impl Shared {
    /// Asks the client, in the middle of a call, until somebody has answered. A client that fails to ask leaves it to
    /// others.
    async fn ask(&self, approval: &Approval, running: &Running, context: &RequestContext<RoleServer>) {
        let settled = self.settled(&approval.id);
        let asking = async {
            let request = ServerRequest::ElicitRequest(ask::question(approval)?);
            let options = PeerRequestOptions::no_options();
            context.peer.send_request_with_option(request, options).await.ok()
        };
        let Some(asked) = asking.await else { return settled.await };
        let id = asked.id.clone();
        let mut settled = std::pin::pin!(settled);
        let answered = tokio::select! {
            biased;
            answered = asked.await_response() => answered,
            () = &mut settled => {
                // Nobody needs the client's answer any more.
                let reason = "answered elsewhere, or not in time".to_owned();
                let param = CancelledNotificationParam::new(Some(id), Some(reason));
                let _ = context.peer.send_notification(CancelledNotification::new(param).into()).await;
                return;
            }
        };
        let answer = match answered {
            Ok(ClientResult::ElicitResult(result)) => ask::answer(&result),
            Ok(_) => ask::unreadable(),
            Err(_) => return settled.await,
        };
        self.answered(approval, &running.origin, answer).await;
    }
}

/// Tells the client how it goes, if it wants to hear it.
struct Progress<'a> {
    context: &'a RequestContext<RoleServer>,
    token: Option<ProgressToken>,
    /// It must grow; bytes and percents don't do that in turns.
    count: u32,
}

impl<'a> Progress<'a> {
    fn new(context: &'a RequestContext<RoleServer>) -> Self {
        Self { context, token: context.meta.get_progress_token(), count: 0 }
    }

    async fn say(&mut self, message: String) {
        let Some(token) = self.token.clone() else { return };
        self.count += 1;
        let param = ProgressNotificationParam::new(token, f64::from(self.count)).with_message(message);
        // One that does not read holds up its own news, not its call.
        tokio::select! {
            _ = self.context.peer.notify_progress(param) => {}
            () = tokio::time::sleep(HEARTBEAT) => {}
        }
    }
}

fn result(answer: Option<Answer>) -> CallToolResult {
    let Some(Answer { result, failed }) = answer else {
        return failed("the server has a fault, and it has struck here: the outcome is unknown");
    };
    if result.to_string().len() > MAX_MESSAGE {
        return self::failed("the result is too large for a message");
    }
    if failed { CallToolResult::structured_error(result) } else { CallToolResult::structured(result) }
}

/// A failure that no tool has described.
pub(crate) fn failed(message: &str) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(json!({"error": message}).to_string())]);
    result.structured_content = Some(json!({"error": message}));
    result
}

fn interrupted() -> CallToolResult {
    failed(
        "unknown outcome: the server was stopped in the middle of this call, and what it began goes on without it. \
         Look at what has become of it (process, action list) before you do it again",
    )
}

/// Nobody hears this: a call that was cancelled has no answer.
fn cancelled() -> ErrorData {
    ErrorData::internal_error("cancelled", None)
}
