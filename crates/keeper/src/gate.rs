//! The one choke point: whatever a surface wants to run is judged here, before its environment is entered.
//!
//! 1. The policy decides by the settings and by what a person has said before in this session.
//! 2. Where it says "ask", the question is put ([`crate::approvals`]), and whoever waits is told.
//! 3. What was decided, and by whom, is in the audit log before anything runs.
//!
//! A call that is dropped while it waits has not run and never will.

mod ask;

use crate::approvals::Approvals;
use crate::audit::{self, Audit, Audited};
use crate::events::event;
use crate::progress::Observer;
use crate::request::Plan;
use crate::resolve::{Resolved, Wanted};
use crate::{Inner, Origin, denial, result};
use farshell_api::approval::{Subject, Surface};
use farshell_api::audit::{AuditLine, AuditOutcome, Step};
use farshell_api::event::EventKind;
use farshell_api::run::Target;
use farshell_engine::Result;
use farshell_policy::{Allow, Decision, Level, Mode, Policy, Scope, Verdict};
use farshell_protocol::process::Start;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a command that the log and a question show.
const SHOWN: usize = 4096;
/// Sessions whose answers, and directories, are remembered; and answers of one of them.
const MOST_SESSIONS: usize = 4096;
const MOST_GRANTS: usize = 1000;
/// Rules about programs that do what is typed to them.
const TYPED: [&str; 2] = ["rule:shell-reads-input", "rule:interpreter-reads-input"];

#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) audit: Arc<Audit>,
    sessions: Mutex<HashMap<SessionKey, Known>>,
}

/// The environment's key, the task, the session.
type SessionKey = (String, String, String);

/// What is remembered of a session.
#[derive(Debug, Default)]
struct Known {
    granted: Vec<Grant>,
    /// Where its last command left it.
    cwd: Option<String>,
}

/// What a person has allowed for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Grant {
    Command(Allow),
    Code(String),
    Writes,
}

/// What is to be judged.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    subject: Subject,
    /// The command, the code, or the path.
    text: &'a str,
    /// The text is not all that will be run: some bytes are not text.
    lossy: bool,
    target: &'a Target,
    session: &'a str,
    workdir: Option<&'a str>,
    process: Option<&'a str>,
    /// Its input can be written to; on a terminal, by a person at ours.
    input: Input,
    /// A person has typed it as it is.
    typed: bool,
    /// Not the first of its kind.
    repeated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    None,
    Open,
    Terminal,
}

/// Something that is no command of the shell and needs leave all the same.
#[derive(Clone, Copy, Debug)]
pub struct Deed<'a> {
    pub target: &'a Target,
    pub session: &'a str,
    pub subject: Subject,
    /// The code (of Python), or the absolute path of the file.
    pub text: &'a str,
    /// Where it is done, if not where the session is.
    pub workdir: Option<&'a str>,
    /// The process that it will be, if it will be one: see [`crate::Keeper::stream_permitted`].
    pub process: Option<&'a str>,
    /// Whoever would be asked has typed it as it is, and so has answered.
    pub typed: bool,
    /// One of many of which the first was written down. The others are only if there is something about them.
    pub repeated: bool,
}

/// Leave to do something.
#[derive(Debug)]
pub struct Permit {
    pub(crate) audited: Audited,
}

impl Permit {
    /// Records what became of it. If nobody does, it counts as not done.
    pub fn ended(self, outcome: AuditOutcome) {
        self.audited.ended(outcome, None);
    }
}

/// A command that may run, with the settings by which that was decided.
#[derive(Debug)]
pub(crate) struct Cleared {
    pub(crate) resolved: Arc<Resolved>,
    pub(crate) wanted: Wanted,
    /// What the outpost will be asked.
    pub(crate) start: Start,
    /// It was judged with a `sudo` in it, which may want a password.
    pub(crate) sudo: bool,
    pub(crate) audited: Audited,
}

/// Who decided.
struct Ruling {
    allowed: bool,
    by: String,
    reason: Option<String>,
    approval: Option<String>,
}

impl Gate {
    pub(crate) fn new(dir: &std::path::Path) -> Self {
        Self {
            approvals: Approvals::new(),
            audit: Arc::new(Audit::open(&dir.join("audit"))),
            sessions: Mutex::default(),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, Known>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: SessionKey, change: impl FnOnce(&mut Known)) {
        let mut sessions = self.sessions();
        // Who has so many is asked once more.
        if sessions.len() >= MOST_SESSIONS && !sessions.contains_key(&key) {
            sessions.clear();
        }
        change(sessions.entry(key).or_default());
    }

    /// A command has left its session here.
    pub(crate) fn session_is_at(&self, environment: &str, task: &str, session: &str, cwd: &[u8]) {
        let Ok(cwd) = std::str::from_utf8(cwd) else { return };
        let key = (environment.to_owned(), task.to_owned(), session.to_owned());
        let same = self.sessions().get(&key).is_some_and(|known| known.cwd.as_deref() == Some(cwd));
        if !same {
            self.remember(key, |known| known.cwd = Some(cwd.to_owned()));
        }
    }
}

impl Inner {
    /// Settings, environment and leave for a command.
    pub(crate) async fn clear(
        self: &Arc<Self>,
        plan: &Plan,
        by: &Origin,
        observer: &dyn Observer,
    ) -> Result<Cleared> {
        let target = &plan.request.target;
        let resolved = self.resolver.resolve(target)?;
        let wanted = resolved.wanted(&target.task)?;
        // Nobody is asked about what can't be started anyway.
        let session =
            crate::sessions::outpost_name(wanted.shared, wanted.task.as_str(), &plan.request.session)?;
        let start = plan.start(&resolved, session)?;
        if self.is_known(plan) {
            return Ok(Cleared { resolved, wanted, start, sudo: false, audited: Audited::elsewhere() });
        }
        let text = plan.request.command.lossy();
        let workdir = plan.request.workdir.as_ref().map(|dir| dir.lossy());
        let case = Case {
            subject: Subject::Command,
            text: &text,
            lossy: text.as_bytes() != plan.request.command.0,
            target,
            session: &plan.request.session,
            workdir: workdir.as_deref(),
            process: Some(plan.id.as_str()),
            input: match (&plan.request.pty, plan.request.stdin) {
                (Some(_), _) => Input::Terminal,
                (None, true) => Input::Open,
                (None, false) => Input::None,
            },
            typed: false,
            repeated: false,
        };
        let (audited, level) = self.judge(case, &resolved, &wanted, by, observer).await?;
        // Every command that calls it is at least risky; one that only speaks of it is not.
        let sudo = level != Level::Safe && text.contains("sudo");
        Ok(Cleared { resolved, wanted, start, sudo, audited })
    }

    /// Whether this very command was let through before, under the same id.
    fn is_known(&self, plan: &Plan) -> bool {
        let Some(known) = self.recent().get(plan.id.as_str()).map(|known| known.process()) else {
            return false;
        };
        let request = &plan.request;
        known.command == request.command
            && known.task == request.target.task
            && known.session.as_deref() == Some(&request.session)
    }

    pub(crate) async fn permit(
        self: &Arc<Self>,
        deed: Deed<'_>,
        by: &Origin,
        observer: &dyn Observer,
    ) -> Result<Permit> {
        let resolved = self.resolver.resolve(deed.target)?;
        let wanted = resolved.wanted(&deed.target.task)?;
        let case = Case {
            subject: deed.subject,
            text: deed.text,
            lossy: false,
            target: deed.target,
            session: deed.session,
            workdir: deed.workdir,
            process: deed.process,
            input: Input::None,
            typed: deed.typed,
            repeated: deed.repeated,
        };
        let (audited, _) = self.judge(case, &resolved, &wanted, by, observer).await?;
        Ok(Permit { audited })
    }

    async fn judge(
        self: &Arc<Self>,
        case: Case<'_>,
        resolved: &Arc<Resolved>,
        wanted: &Wanted,
        origin: &Origin,
        observer: &dyn Observer,
    ) -> Result<(Audited, Level)> {
        let rules = &resolved.rules;
        let mode = rules.mode(case.target.approvals.as_deref())?;
        let key = (wanted.key.clone(), case.target.task.clone(), case.session.to_owned());
        let (granted, known_cwd) = match self.gate.sessions().get(&key) {
            Some(known) => (known.granted.clone(), known.cwd.clone()),
            None => (Vec::new(), None),
        };
        let start = || self.start_dir(case.target, resolved);
        let context =
            rules.context(directory(case.workdir, known_cwd.or_else(start)), case.input != Input::None);
        // `farshell shell` and its like: whoever types there is the one who would be asked.
        let person = origin.surface == Surface::Cli && case.input == Input::Terminal;
        let typed = TYPED.iter().filter(|_| person).map(|rule| Allow::new(*rule, Scope::Once));
        let policy = rules.policy.with(mode, granted.iter().filter_map(Grant::allow).cloned().chain(typed));
        let policy = policy.as_ref().unwrap_or(&rules.policy);
        let (decision, verdict) = match case.subject {
            Subject::Command => policy.decide(case.text, &context),
            Subject::Code => policy.decide_code("python3", case.text, &context),
            Subject::FileWrite => policy.decide_write(case.text, &context),
        };
        let masked = rules.redactor.redact(case.text);
        let about = About { case, wanted, origin, verdict: &verdict, masked: &masked };
        let isolated = context.is_isolated();
        let already = granted.iter().any(|grant| grant.covers(case));
        let ruling = match &decision {
            Decision::Allow => Ruling::allowed(by_what(policy, &verdict, isolated)),
            Decision::Ask { .. } if already => Ruling::allowed("session".to_owned()),
            Decision::Ask { .. } if case.typed => Ruling::allowed("person:typed".to_owned()),
            Decision::Ask { reasons } => {
                let approval = self.approval(&about, reasons, resolved);
                self.ask(approval, case, &about, resolved, key, observer).await?
            }
            Decision::Deny { reasons } => {
                let by = denial::by(reasons, mode);
                let ruling = Ruling { allowed: false, by: by.into(), reason: None, approval: None };
                self.record(&about, &ruling, false)?;
                return Err(denial::by_policy(case.subject, reasons, mode));
            }
        };
        if case.repeated && ruling.allowed && verdict.level == Level::Safe {
            return Ok((Audited::elsewhere(), verdict.level));
        }
        self.record(&about, &ruling, rules.audit_required)?;
        if !ruling.allowed {
            return Err(denial::by_answer(case.subject, &ruling.by, ruling.reason.as_deref(), rules.timeout));
        }
        Ok((Audited::new(Arc::clone(&self.gate.audit), about.line(Step::Ended)), verdict.level))
    }

    /// Where a session of this machine begins.
    fn start_dir(&self, target: &Target, resolved: &Resolved) -> Option<String> {
        use farshell_config::settings::{Backend, StartDirectory};
        match (&resolved.settings.backend, &resolved.settings.cwd) {
            (Backend::Local(_), StartDirectory::Path(path)) => Some(path.clone()),
            (Backend::Local(_), StartDirectory::BackendDefault) => {
                self.resolver.here(target).map(|dir| dir.to_string_lossy().into_owned())
            }
            _ => None,
        }
    }

    /// Writes down what was decided. What is to run does not, if it must be written down and can't be.
    fn record(&self, about: &About<'_>, ruling: &Ruling, required: bool) -> Result<()> {
        let line = AuditLine {
            command: Some(about.shown()),
            command_sha256: (about.masked.len() > SHOWN).then(|| sha256(about.masked)),
            level: Some(level(about.verdict.level).to_owned()),
            rules: about.rules(),
            decision: Some(if ruling.allowed { "allow" } else { "deny" }.to_owned()),
            decided_by: Some(ruling.by.clone()),
            reason: ruling.reason.clone(),
            approval: ruling.approval.clone(),
            ..about.line(Step::Decided)
        };
        match self.gate.audit.write(line) {
            Err(error) if required && ruling.allowed => {
                let hint = "approvals.audit_required says that nothing runs without a line in the audit log";
                Err(error.with_hint(hint))
            }
            _ => Ok(()),
        }
    }
}

impl Ruling {
    fn allowed(by: String) -> Self {
        Self { allowed: true, by, reason: None, approval: None }
    }
}

impl Grant {
    fn of(case: Case<'_>) -> Option<Self> {
        match case.subject {
            Subject::Command if case.lossy => None,
            Subject::Command => {
                Some(Self::Command(Allow { scope: Scope::Session, ..Allow::exactly(case.text) }))
            }
            Subject::Code => Some(Self::Code(sha256(case.text))),
            Subject::FileWrite => Some(Self::Writes),
        }
    }

    fn allow(&self) -> Option<&Allow> {
        match self {
            Self::Command(allow) => Some(allow),
            Self::Code(_) | Self::Writes => None,
        }
    }

    /// What the policy does not see.
    fn covers(&self, case: Case<'_>) -> bool {
        match self {
            Self::Command(_) => false,
            Self::Code(hash) => case.subject == Subject::Code && *hash == sha256(case.text),
            Self::Writes => case.subject == Subject::FileWrite,
        }
    }
}

/// What is said of a case wherever it is spoken of.
struct About<'a> {
    case: Case<'a>,
    wanted: &'a Wanted,
    origin: &'a Origin,
    verdict: &'a Verdict,
    masked: &'a str,
}

impl About<'_> {
    fn line(&self, step: Step) -> AuditLine {
        AuditLine {
            kind: Some(self.case.subject),
            surface: Some(self.origin.surface),
            client: self.origin.client.clone(),
            task: Some(self.case.target.task.clone()),
            session: Some(self.case.session.to_owned()),
            environment: Some(self.wanted.key.clone()),
            process_id: self.case.process.map(str::to_owned),
            ..audit::line(step)
        }
    }

    fn event(&self, kind: EventKind, data: serde_json::Value) -> farshell_store::NewEvent {
        farshell_store::NewEvent {
            task: Some(self.case.target.task.clone()),
            process_id: self.case.process.map(str::to_owned),
            environment: Some(self.wanted.key.clone()),
            ..event(kind, data)
        }
    }

    fn shown(&self) -> String {
        result::head(self.masked, SHOWN).to_owned()
    }

    fn rules(&self) -> Vec<String> {
        let mut rules: Vec<String> =
            self.verdict.reasons.iter().map(|reason| reason.rule.to_owned()).collect();
        rules.sort();
        rules.dedup();
        rules
    }
}

fn by_what(policy: &Policy, verdict: &Verdict, isolated: bool) -> String {
    match (policy.mode, verdict.level) {
        _ if isolated => "isolated".to_owned(),
        (Mode::Smart, Level::Risky) | (Mode::Ask, _) => "allowlist".to_owned(),
        (mode, _) => format!("mode:{mode}"),
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Safe => "safe",
        Level::Risky => "risky",
        Level::Forbidden => "forbidden",
    }
}

/// Where a command begins: absolute, or not known.
fn directory(workdir: Option<&str>, cwd: Option<String>) -> Option<String> {
    match workdir {
        Some(dir) if dir.starts_with('/') => Some(dir.to_owned()),
        // The home directory may be anything.
        Some(dir) if dir.starts_with('~') => None,
        Some(dir) => Some(format!("{}/{dir}", cwd?)),
        None => cwd.filter(|cwd| cwd.starts_with('/')),
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
