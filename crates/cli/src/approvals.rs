//! `farshell approvals` and `farshell approve`: what waits for an answer, and answering it.

use crate::args::{ApprovalsArgs, ApproveArgs};
use crate::output::{self, Outcome, Stop, Style};
use crate::{ask, reach, times};
use farshell_api::approval::{Answer, AnswerRequest, Approval, ApprovalQuery};
use farshell_client::Client;
use farshell_engine::{Error, Kind};

pub(crate) fn list(args: &ApprovalsArgs) -> Outcome {
    output::told(args.json, show(args))
}

fn show(args: &ApprovalsArgs) -> Outcome {
    let query = ApprovalQuery { after: None, wait: args.wait };
    let list = reach::ask("looking", |client| async move { Ok(client.approvals(&query).await?) })?;
    if args.json {
        output::print_json(&list)?;
        return Ok(0);
    }
    if list.approvals.is_empty() {
        output::notice("nothing waits for an answer");
        return Ok(0);
    }
    let style = Style::stdout();
    for approval in &list.approvals {
        output::print(&format!("{}\n{}", head(approval, style), ask::shown(approval, style)))?;
    }
    Ok(0)
}

fn head(approval: &Approval, style: Style) -> String {
    let left = times::span(approval.expires_at.saturating_sub(times::now()));
    let client = approval.client.as_deref().unwrap_or("somebody");
    format!("{}  asked by {}, {left} left", style.bold(&approval.id), output::plain(client))
}

pub(crate) fn answer(args: &ApproveArgs) -> Outcome {
    let outcome = reach::ask("answering", |client| async move { Ok(give(&client, args).await) });
    output::told(args.json, outcome.and_then(|given| given))
}

async fn give(client: &Client, args: &ApproveArgs) -> Outcome {
    let approval = chosen(client, args.id.as_deref()).await?;
    let answer = match (args.deny, args.session, args.always) {
        (true, ..) => Answer::Deny,
        (_, true, _) => Answer::Session,
        (_, _, true) => Answer::Always,
        _ => Answer::Once,
    };
    let request = AnswerRequest { answer, reason: args.reason.clone() };
    let answered = client.answer(&approval, &request).await?;
    if args.json {
        output::print_json(&answered)?;
        return Ok(0);
    }
    let how = match answer {
        Answer::Once => "allowed once",
        Answer::Session => "allowed for this session",
        Answer::Always => "allowed from now on: it is in command_allowlist",
        Answer::Deny => "denied",
    };
    output::notice(&format!("{how}: {}", output::plain(&answered.approval.command)));
    Ok(0)
}

/// The one that was named, by its beginning perhaps; or the only one there is.
async fn chosen(client: &Client, id: Option<&str>) -> Result<String, Stop> {
    let waiting = client.approvals(&ApprovalQuery::default()).await?.approvals;
    let fits = |approval: &&Approval| match id {
        Some(id) => approval.id == id || approval.id.trim_start_matches("appr_").starts_with(id),
        None => true,
    };
    let found: Vec<&Approval> = waiting.iter().filter(fits).collect();
    match (found.as_slice(), id) {
        ([only], _) => Ok(only.id.clone()),
        // The server knows what became of it.
        ([], Some(id)) => Ok(id.to_owned()),
        ([], None) => Err(Error::new(Kind::NotFound, "answering", "nothing waits for an answer").into()),
        (several, _) => {
            let message = format!("{} questions wait for an answer", several.len());
            Err(Error::new(Kind::Invalid, "answering", message)
                .with_hint("`farshell approvals` shows them; name one")
                .into())
        }
    }
}
