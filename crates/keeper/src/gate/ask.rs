//! The question that is put to a person, and its answer.

use super::{About, Case, Grant, MOST_GRANTS, Ruling, SessionKey, level};
use crate::Inner;
use crate::approvals::{Reply, Silence, new_id, word};
use crate::now;
use crate::progress::Observer;
use crate::resolve::Resolved;
use farshell_api::approval::{Answer, AnswerRequest, Answered, Approval, Reason, Subject};
use farshell_api::audit::{AuditLine, Step};
use farshell_api::event::EventKind;
use farshell_engine::{Error, Kind, Result};
use farshell_policy::Allow;
use serde_json::json;
use std::sync::Arc;

/// What is longer is not put into the settings.
const LONGEST_ALWAYS: usize = 2000;

impl Inner {
    pub(super) fn approval(
        &self,
        about: &About<'_>,
        reasons: &[farshell_policy::Reason],
        resolved: &Resolved,
    ) -> Approval {
        let (case, at) = (about.case, now());
        let whole = case.text.len() <= LONGEST_ALWAYS && !case.lossy && about.masked == case.text;
        let redactor = &resolved.rules.redactor;
        let reasons = reasons.iter().map(|reason| Reason {
            rule: reason.rule.to_owned(),
            level: level(reason.level).to_owned(),
            what: redactor.redact(&reason.what).into_owned(),
            piece: redactor.redact(&reason.piece).into_owned(),
            why: reason.why.to_owned(),
        });
        Approval {
            id: new_id(),
            subject: case.subject,
            task: case.target.task.clone(),
            session: case.session.to_owned(),
            environment: about.wanted.key.clone(),
            backend: resolved.backend.name().to_owned(),
            surface: about.origin.surface,
            client: about.origin.client.clone(),
            process_id: case.process.map(str::to_owned),
            command: about.shown(),
            workdir: case.workdir.map(str::to_owned),
            reasons: reasons.collect(),
            asked_at: at,
            expires_at: at.saturating_add(crate::request::millis(resolved.rules.timeout)),
            may_always: case.subject == Subject::Command && whole,
        }
    }

    /// Asks a person, and waits.
    pub(super) async fn ask(
        self: &Arc<Self>,
        approval: Approval,
        case: Case<'_>,
        about: &About<'_>,
        resolved: &Resolved,
        key: SessionKey,
        observer: &dyn Observer,
    ) -> Result<Ruling> {
        let id = approval.id.clone();
        let question = self.gate.approvals.put(approval.clone())?;
        let mut asking = Asking { inner: self, about, id: &id, over: false };
        let asked = AuditLine {
            command: Some(about.shown()),
            level: Some(level(about.verdict.level).to_owned()),
            rules: about.rules(),
            approval: Some(id.clone()),
            ..about.line(Step::Asked)
        };
        // Whether it runs is decided, and written, later.
        let _ = self.gate.audit.write(asked);
        self.tell(EventKind::ApprovalRequested, about, json!({ "approval": approval })).await;
        observer.approval(&approval);
        let answered = question.answered(resolved.rules.timeout, observer.gone()).await;
        asking.over = true;
        drop(asking);
        let (allowed, by, reason) = match answered {
            Ok(Reply { answer, reason }) => {
                if answer == Answer::Session
                    && let Some(grant) = Grant::of(case)
                {
                    self.gate.remember(key, |known| {
                        known.granted.truncate(MOST_GRANTS);
                        known.granted.push(grant);
                    });
                }
                (answer != Answer::Deny, format!("person:{}", word(answer)), reason)
            }
            Err(Silence::TimedOut) => (false, "timeout".to_owned(), None),
            Err(Silence::Withdrawn) => (false, "withdrawn".to_owned(), None),
            Err(Silence::Closed) => (false, "server".to_owned(), None),
        };
        self.tell(EventKind::ApprovalAnswered, about, told(&id, allowed, &by, reason.as_deref())).await;
        Ok(Ruling { allowed, by, reason, approval: Some(id) })
    }

    /// An event for those who look at events. Nothing depends on it.
    async fn tell(&self, kind: EventKind, about: &About<'_>, data: serde_json::Value) {
        let _ = self.common.store.append(about.event(kind, data)).await;
    }

    /// Answers a question.
    pub(crate) async fn answer(&self, id: &str, request: AnswerRequest) -> Result<Answered> {
        if request.answer == Answer::Always {
            let waiting = self.gate.approvals.find(id)?;
            if !waiting.may_always {
                let message =
                    "this can't be allowed for always: it has a secret in it, or is no short command";
                return Err(Error::new(Kind::Invalid, format!("answering {id}"), message)
                    .with_hint("allow it once, or for this session"));
            }
            self.allow_always(&waiting.command).await?;
        }
        let approval = self.gate.approvals.answer(id, &request)?;
        Ok(Answered { approval, answer: request.answer })
    }

    /// Adds a command to the settings' allowlist.
    async fn allow_always(&self, command: &str) -> Result<()> {
        let home = self.resolver.world().home.clone();
        let entry = Allow::exactly(command).text;
        let written = tokio::task::spawn_blocking(move || {
            let context = farshell_config::Context {
                home: farshell_config::HermesHome::new(home, None),
                environment: Default::default(),
                overrides: Vec::new(),
            };
            farshell_config::add(&context, "command_allowlist", &entry)
        });
        let what = "adding the command to command_allowlist";
        match written.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error::new(Kind::System, what, error.to_string())
                .with_hint("allow it once, or for this session, and mend the settings")),
            Err(error) => Err(Error::new(Kind::System, what, error.to_string())),
        }
    }
}

/// A question on its way. Dropped before its end, nobody waits for the answer any more.
struct Asking<'a> {
    inner: &'a Arc<Inner>,
    about: &'a About<'a>,
    id: &'a str,
    over: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let by = "withdrawn".to_owned();
        let data = told(self.id, false, &by, None);
        let ruling = Ruling { allowed: false, by, reason: None, approval: Some(self.id.to_owned()) };
        let _ = self.inner.record(self.about, &ruling, false);
        let event = self.about.event(EventKind::ApprovalAnswered, data);
        let common = Arc::clone(&self.inner.common);
        self.inner.common.tasks.spawn(async move { drop(common.store.append(event).await) });
    }
}

fn told(id: &str, allowed: bool, by: &str, reason: Option<&str>) -> serde_json::Value {
    let decision = if allowed { "allow" } else { "deny" };
    json!({ "approval": id, "decision": decision, "decided_by": by, "reason": reason })
}
