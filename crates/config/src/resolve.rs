//! Judges all settings together: what can't be used, what somebody should know, and what it all comes to.

use crate::choice::BackendKind;
use crate::config::{Candidate, Config, is_ours};
use crate::error::{InvalidSettings, Problem, ProblemKind, Warning};
use crate::key::{is_slip, suggestion};
use crate::kind::Fault;
use crate::settings::{Settings, Values};
use crate::source::Source;
use crate::suggest::nearest_variable;
use crate::table::{self, APPROVALS, BACKEND_ALIAS, NOT_USED, SETTINGS, Setting};
use crate::value::{Value, looks_secret};
use crate::yaml::Kind;

/// Settings that can be used, and what is odd about where they came from.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The settings.
    pub settings: Settings,
    /// What somebody should know.
    pub warnings: Vec<Warning>,
}

impl Config {
    /// What all layers come to.
    ///
    /// # Errors
    /// Some of what counts for the selected backend can't be used. Every such problem is reported.
    pub fn resolve(&self) -> Result<Resolved, InvalidSettings> {
        let mut problems = Vec::new();
        let mut warnings = self.oddities();
        self.check_section(&mut problems, &mut warnings);
        self.check_approvals(&mut problems, &mut warnings);
        self.check_overrides(&mut problems);
        let selected = self.backend();
        // With no backend, only what matters for all of them can be judged.
        let matters = |setting: &Setting| match &selected {
            Some(backend) => setting.matters_for(*backend),
            None => setting.backends.len() == BackendKind::ALL.len(),
        };
        let backend = selected.unwrap_or(BackendKind::Local);
        let mut values = Values::default();
        for setting in SETTINGS {
            let candidates = self.candidates(setting, backend);
            for (rank, candidate) in candidates.iter().enumerate() {
                match &candidate.parsed {
                    Err(fault) => {
                        let problem = bad_value(setting, candidate, fault);
                        match (rank, matters(setting)) {
                            (0, true) => problems.push(problem),
                            (0, false) => warnings.push(Warning::OtherBackend(problem)),
                            _ => warnings.push(Warning::Overridden(problem)),
                        }
                    }
                    Ok(parsed) if rank == 0 => {
                        warnings.extend(parsed.notes.iter().map(|note| Warning::LeftOut {
                            key: setting.path(),
                            source: candidate.source.clone(),
                            note: note.clone(),
                        }));
                        values.insert(setting.key, parsed.value.clone(), candidate.source.clone());
                    }
                    Ok(_) => {}
                }
            }
        }
        check_timeouts(&values, &mut problems);
        if selected.is_some() {
            check_needed(backend, &values, &problems.clone(), &mut problems);
        }
        if problems.is_empty() {
            Ok(Resolved { settings: Settings::build(backend, &values, &self.context.home), warnings })
        } else {
            Err(InvalidSettings { problems })
        }
    }

    /// The selected backend, if the setting itself can be used.
    pub(crate) fn backend(&self) -> Option<BackendKind> {
        let candidates = self.candidates(table::find("backend")?, BackendKind::Local);
        candidates.first()?.parsed.as_ref().ok()?.value.to_string().parse().ok()
    }

    fn check_section(&self, problems: &mut Vec<Problem>, warnings: &mut Vec<Warning>) {
        let Some((key, section)) = self.yaml.as_ref().and_then(|file| file.root.entry("terminal")) else {
            return;
        };
        match &section.kind {
            Kind::Null => {}
            Kind::Map(entries) => {
                let text = self.yaml.as_ref().map_or("", |file| file.text.as_str());
                for (key, _) in entries {
                    let name = key.scalar_text(text).unwrap_or_default();
                    let source = self.file_source(key);
                    if name == BACKEND_ALIAS || table::find(&name).is_some_and(|setting| !setting.top) {
                        continue;
                    }
                    match NOT_USED.iter().find(|(known, _)| *known == name) {
                        Some((_, why)) => {
                            warnings.push(Warning::NotUsed { key: format!("terminal.{name}"), source, why });
                        }
                        None => problems.push(unknown_key(&name, source)),
                    }
                }
            }
            _ => problems.push(Problem {
                key: "terminal".into(),
                source: Some(self.file_source(key)),
                kind: ProblemKind::NotAMap,
            }),
        }
    }

    /// Hermes has more keys here than Farshell. One that is nearly one of ours is taken for a slip.
    fn check_approvals(&self, problems: &mut Vec<Problem>, warnings: &mut Vec<Warning>) {
        let Some(file) = &self.yaml else { return };
        let Some((key, section)) = file.root.entry(APPROVALS) else { return };
        match &section.kind {
            Kind::Null => {}
            Kind::Map(entries) => {
                for (key, _) in entries {
                    let name = format!("{APPROVALS}.{}", key.scalar_text(&file.text).unwrap_or_default());
                    let source = self.file_source(key);
                    if table::find(&name).is_some() {
                        continue;
                    }
                    if is_slip(&name) {
                        let kind = ProblemKind::UnknownKey { suggestion: suggestion(&name) };
                        problems.push(Problem { key: name, source: Some(source), kind });
                    } else {
                        warnings.push(Warning::NotUsed { key: name, source, why: "it is Hermes' own" });
                    }
                }
            }
            _ => problems.push(Problem {
                key: APPROVALS.into(),
                source: Some(self.file_source(key)),
                kind: ProblemKind::NotAMap,
            }),
        }
    }

    fn check_overrides(&self, problems: &mut Vec<Problem>) {
        for (key, _) in &self.context.overrides {
            if table::find(key).is_none_or(|setting| setting.top) {
                problems.push(unknown_key(key, Source::CommandLine));
            }
        }
    }

    /// What is odd about the files and the environment, whatever the settings are.
    fn oddities(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let unknown = |variable: &str| is_ours(variable) && table::find_variable(variable).is_none();
        let suggestion = |variable: &str| {
            nearest_variable(variable, SETTINGS.iter().flat_map(Setting::variables)).map(str::to_owned)
        };
        for variable in self.context.environment.keys().filter(|name| unknown(name)) {
            warnings.push(Warning::UnknownVariable {
                variable: variable.clone(),
                source: Source::Environment { variable: variable.clone() },
                suggestion: suggestion(variable),
            });
        }
        let path = self.context.home.env_file();
        for entry in self.dotenv.variables().iter().filter(|entry| unknown(&entry.name)) {
            warnings.push(Warning::UnknownVariable {
                variable: entry.name.clone(),
                source: Source::DotEnv { path: path.clone(), line: entry.line, variable: entry.name.clone() },
                suggestion: suggestion(&entry.name),
            });
        }
        for skipped in self.dotenv.skipped() {
            warnings.push(Warning::SkippedLine { path: path.clone(), line: skipped.line });
        }
        let dotenv_secret = self.dotenv.variables().iter().any(|entry| looks_secret(&entry.name));
        if dotenv_secret && self.dotenv_mode & 0o044 != 0 {
            warnings.push(Warning::ReadableByOthers { path, mode: self.dotenv_mode });
        }
        let yaml_secret = self.section().is_some_and(|section| {
            SETTINGS.iter().any(|setting| setting.secret && section.entry(setting.key).is_some())
        });
        if yaml_secret && self.yaml_mode & 0o044 != 0 {
            warnings.push(Warning::ReadableByOthers {
                path: self.context.home.config_file(),
                mode: self.yaml_mode,
            });
        }
        warnings
    }
}

pub(crate) fn bad_value(setting: &Setting, candidate: &Candidate, fault: &Fault) -> Problem {
    Problem {
        key: setting.path(),
        source: Some(candidate.source.clone()),
        kind: ProblemKind::BadValue(fault.clone()),
    }
}

fn unknown_key(name: &str, source: Source) -> Problem {
    let suggestion = suggestion(name);
    Problem {
        key: format!("terminal.{name}"),
        source: Some(source),
        kind: ProblemKind::UnknownKey { suggestion },
    }
}

fn check_timeouts(values: &Values, problems: &mut Vec<Problem>) {
    let (Some((timeout, source)), Some((limit, limit_source))) =
        (values.get("timeout"), values.get("max_foreground_timeout"))
    else {
        return;
    };
    if let (Value::Integer(seconds), Value::Integer(most)) = (timeout, limit)
        && seconds > most
    {
        problems.push(Problem {
            key: "terminal.timeout".into(),
            source: Some(source.clone()),
            kind: ProblemKind::TooLarge {
                value: seconds.to_string(),
                limit_key: "terminal.max_foreground_timeout".into(),
                limit: most.to_string(),
                limit_source: limit_source.clone(),
            },
        });
    }
}

/// What the selected backend can't do without.
fn check_needed(backend: BackendKind, values: &Values, known: &[Problem], problems: &mut Vec<Problem>) {
    let needed: &[&str] = if backend == BackendKind::Ssh { &["ssh_host", "ssh_user"] } else { &[] };
    for setting in needed.iter().filter_map(|key| table::find(key)) {
        // A value that is there and wrong has been reported as wrong.
        let reported = known.iter().any(|problem| problem.key == setting.path());
        if values.get(setting.key).is_none() && !reported {
            problems.push(Problem {
                key: setting.path(),
                source: None,
                kind: ProblemKind::Missing { backend: backend.as_str(), variable: setting.variable },
            });
        }
    }
}
