//! How a person is asked, by way of the client.

use crate::Shared;
use farshell_api::approval::{Answer, AnswerRequest, Approval, ApprovalQuery};
use farshell_keeper::Origin;
use rmcp::model::{ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Value, json};
use std::fmt::Write;

/// The field of the form, and the key of the question in a request that ends with it.
pub(crate) const ANSWER: &str = "answer";
/// Characters of a command that a person is shown.
const SHOWN: usize = 4_000;

/// Whether the client can show a form. One that only says that it can ask means forms.
pub(crate) fn can_ask(capabilities: Option<&ClientCapabilities>) -> bool {
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation.as_ref());
    elicitation.is_some_and(|how| how.form.is_some() || how.url.is_none())
}

/// The question.
pub(crate) fn question(approval: &Approval) -> Option<ElicitRequest> {
    let mut answers = vec![
        ("once", "Allow this once"),
        ("session", "Allow for the rest of this session"),
        ("always", "Always allow"),
        ("deny", "Deny"),
    ];
    answers.retain(|(name, _)| *name != "always" || approval.may_always);
    let (names, titles): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    // Titles as the older form of the protocol has them: newer clients know it too.
    let schema = json!({
        "type": "object",
        "properties": {ANSWER: {"type": "string", "title": "Answer", "enum": names, "enumNames": titles}},
        "required": [ANSWER],
    });
    let schema = serde_json::from_value(schema).ok()?;
    Some(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(approval),
        requested_schema: schema,
    }))
}

fn message(approval: &Approval) -> String {
    let Approval { backend, task, .. } = approval;
    let mut text = format!("May this be done on {backend} (task {task})?\n");
    let mut command: String = approval.command.chars().take(SHOWN).collect();
    if command.len() < approval.command.len() {
        let _ = write!(command, "\n[… {} more bytes]", approval.command.len() - command.len());
    }
    for line in command.lines() {
        let _ = write!(text, "\n    {line}");
    }
    for reason in &approval.reasons {
        let _ = write!(text, "\n\n{}: {} ({}).", reason.what, reason.why, reason.rule);
    }
    text
}

/// How somebody else can answer.
pub(crate) fn elsewhere(approval: &Approval) -> String {
    let id = &approval.id;
    format!("waiting for a person's approval: `farshell approve {id}` or `farshell approve {id} --deny`")
}

/// What was answered.
pub(crate) fn answer(result: &ElicitResult) -> AnswerRequest {
    let deny = |reason: &str| AnswerRequest { answer: Answer::Deny, reason: Some(reason.to_owned()) };
    match result.action {
        ElicitationAction::Accept => {
            let said = result.content.as_ref().and_then(|content| content.get(ANSWER));
            let answer = said.cloned().map(serde_json::from_value::<Answer>);
            match answer {
                Some(Ok(answer)) => AnswerRequest { answer, reason: None },
                _ => deny("the client's answer was none of those that were offered"),
            }
        }
        ElicitationAction::Decline => deny("declined in the client"),
        // Also whatever else it may be called one day.
        _ => deny("the question was dismissed in the client"),
    }
}

/// The same, as it comes with a request of its own.
pub(crate) fn answer_of(value: Option<&Value>) -> Option<AnswerRequest> {
    let result = serde_json::from_value::<ElicitResult>(value?.clone());
    Some(result.map_or_else(|_| unreadable(), |result| answer(&result)))
}

pub(crate) fn unreadable() -> AnswerRequest {
    AnswerRequest { answer: Answer::Deny, reason: Some("the client's answer can't be read".into()) }
}

impl Shared {
    /// Passes an answer on. If somebody else was faster, theirs counts.
    pub(crate) async fn answered(&self, approval: &Approval, origin: &Origin, answer: AnswerRequest) {
        let _ = self.keeper.on_behalf(origin.clone()).answer(&approval.id, answer).await;
    }

    /// Returns when an approval needs no answer any more.
    pub(crate) async fn settled(&self, id: &str) {
        let mut query = ApprovalQuery::default();
        while let Ok(list) = self.keeper.approvals(query).await {
            if list.approvals.iter().all(|approval| approval.id != id) {
                return;
            }
            query = ApprovalQuery { after: Some(list.revision), wait: Some(600.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshell_api::approval::Reason;

    fn approval() -> Approval {
        Approval {
            id: "appr_1".into(),
            subject: farshell_api::approval::Subject::Command,
            task: "default".into(),
            session: "default".into(),
            environment: "local/default".into(),
            backend: "local".into(),
            surface: farshell_api::approval::Surface::Mcp,
            client: None,
            process_id: None,
            command: "cd x\nrm -rf *".into(),
            workdir: None,
            reasons: vec![Reason {
                rule: "recursive-delete".into(),
                level: "risky".into(),
                what: "deletes a tree".into(),
                piece: "rm -rf *".into(),
                why: "it can't be undone".into(),
            }],
            asked_at: 0,
            expires_at: 0,
            may_always: true,
        }
    }

    #[test]
    fn the_form_offers_what_can_be_answered() {
        let asked = |approval: &Approval| serde_json::to_value(question(approval).unwrap()).unwrap();
        let value = asked(&approval());
        assert_eq!(
            value,
            json!({"method": "elicitation/create", "params": {
                "mode": "form",
                "message": "May this be done on local (task default)?\n\n    cd x\n    rm -rf *\n\ndeletes a tree: it can't be undone (recursive-delete).",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"answer": {
                        "type": "string",
                        "title": "Answer",
                        "enum": ["once", "session", "always", "deny"],
                        "enumNames": ["Allow this once", "Allow for the rest of this session", "Always allow", "Deny"],
                    }},
                    "required": ["answer"],
                },
            }})
        );
        let value = asked(&Approval { may_always: false, ..approval() });
        assert_eq!(
            value["params"]["requestedSchema"]["properties"]["answer"]["enum"],
            json!(["once", "session", "deny"])
        );
    }

    #[test]
    fn whatever_is_no_clear_yes_is_a_no() {
        let said = |value: Value| answer_of(Some(&value)).unwrap().answer;
        assert_eq!(said(json!({"action": "accept", "content": {"answer": "once"}})), Answer::Once);
        assert_eq!(said(json!({"action": "accept", "content": {"answer": "always"}})), Answer::Always);
        for other in [
            json!({"action": "accept", "content": {"answer": "yes"}}),
            json!({"action": "accept", "content": {"answer": true}}),
            json!({"action": "accept"}),
            json!({"action": "accept", "content": null}),
            json!({"action": "decline", "content": {"answer": "once"}}),
            json!({"action": "cancel"}),
            json!({"action": "maybe"}),
            json!("accept"),
            json!(null),
        ] {
            assert_eq!(said(other.clone()), Answer::Deny, "{other}");
        }
        assert_eq!(answer_of(None), None);
    }
}
