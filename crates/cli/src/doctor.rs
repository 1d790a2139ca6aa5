//! `farshell doctor`: which backends can serve here, and what to do where one can't.

use crate::args::DoctorArgs;
use crate::load;
use crate::output::{self, Outcome, Style, code};
use crate::registry;
use farshell_client::Client;
use farshell_config::{BackendKind, Config, InvalidSettings, Resolved};
use farshell_engine::backend::{Finding, Severity};
use farshell_engine::{Backend, Error};
use farshell_keeper::{Asker, Backends as _};
use serde_json::{Value, json};
use std::sync::Arc;

/// What was found out about one backend.
struct Examined {
    kind: BackendKind,
    selected: bool,
    findings: Vec<Finding>,
}

impl Examined {
    fn usable(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Problem)
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Outcome {
    let named = args
        .backends
        .iter()
        .map(|name| name.parse::<BackendKind>())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| output::invalid("choosing what to look at", e.to_string()))?;
    let kinds = if named.is_empty() { BackendKind::ALL } else { &named };
    let config = load::config(None)?;
    let resolved = config.resolve();
    let selected = load::selected(&config);
    let runtime = crate::runtime()?;
    let mut examined = Vec::new();
    for kind in kinds {
        let findings = runtime.block_on(examine(*kind, &config));
        examined.push(Examined { kind: *kind, selected: selected == Some(*kind), findings });
    }
    // The verdict is about the selected backend, also when others were asked about.
    let serves = resolved.is_ok()
        && match (selected, examined.iter().find(|e| e.selected)) {
            (_, Some(examined)) => examined.usable(),
            (Some(kind), None) => {
                Examined { kind, selected: true, findings: runtime.block_on(examine(kind, &config)) }.usable()
            }
            (None, None) => false,
        };
    let server = runtime.block_on(server(&config));
    if args.json {
        output::print_json(&report_json(&config, &resolved, selected, &examined, serves, &server))?;
    } else {
        output::print(&report_text(&config, &resolved, &examined, &server, Style::stdout()))?;
    }
    Ok(if serves { 0 } else { code::NO })
}

/// The server that runs now, in its own words; `null` if none does. None is started for this.
async fn server(config: &Config) -> Value {
    let asked = match Client::connect(config.home().root()).await {
        Ok(client) => client.any_status().await,
        Err(error) if error.kind == "not_found" => return Value::Null,
        Err(error) => Err(error),
    };
    asked.unwrap_or_else(|error| output::error_json(&error))
}

/// The same as a line for people.
fn server_finding(server: &Value) -> Finding {
    let text = |name: &str| server.get(name).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    if let Some(error) = server.get("error") {
        let field = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        return Finding::problem(field("message"), field("hint"));
    }
    let (Some(pid), Some(version)) = (text("pid"), text("version")) else {
        return Finding::good("none runs; the next command starts one");
    };
    let runs = format!("pid {pid}, release {version}");
    match version == env!("CARGO_PKG_VERSION") {
        true => Finding::good(runs),
        false => Finding::warning(
            format!("{runs}, and this program is release {}", env!("CARGO_PKG_VERSION")),
            "`farshell server stop`; the next command starts a server of this release",
        ),
    }
}

async fn examine(kind: BackendKind, config: &Config) -> Vec<Finding> {
    match kind {
        BackendKind::Local => registry::local(config.home().root()).check().await,
        kind => of_settings(kind).await,
    }
}

/// The backend that a command from here would use, with the settings that would count for it.
async fn of_settings(kind: BackendKind) -> Vec<Finding> {
    let opened = || -> Result<Arc<dyn Backend>, Error> {
        let context = load::context(Some(kind.as_str()))?;
        let environment = context.environment;
        let config = load::config(Some(kind.as_str()))?;
        let settings = load::settings(&config)?;
        let here = std::env::current_dir().ok();
        let asker =
            Asker { home: config.home().root(), environment: &environment, start_dir: here.as_deref() };
        registry::Registry.open(&settings, &asker)
    };
    match opened() {
        Ok(backend) => backend.check().await,
        Err(error) => {
            let hint = error.hint.clone().unwrap_or_default();
            vec![Finding::problem(error.to_string(), hint)]
        }
    }
}

fn report_text(
    config: &Config,
    resolved: &Result<Resolved, InvalidSettings>,
    examined: &[Examined],
    server: &Value,
    style: Style,
) -> String {
    let (problems, warnings) = settings_findings(resolved);
    let paths = config.paths();
    let file = if paths.config.exists() { "" } else { " (not there: defaults count)" };
    let mut text = format!("{} {}{file}\n", style.bold("settings"), paths.config.display());
    for (severity, found) in [(Severity::Problem, problems), (Severity::Warning, warnings)] {
        for what in found {
            point(&mut text, &Finding { severity, what, hint: None }, style);
        }
    }
    text.push_str(&format!("\n{}\n", style.bold("server")));
    point(&mut text, &server_finding(server), style);
    for examined in examined {
        let verdict = if examined.usable() { style.green("usable") } else { style.red("not usable") };
        let selected = if examined.selected { " (selected)" } else { "" };
        text.push_str(&format!("\n{}{selected}: {verdict}\n", style.bold(examined.kind.as_str())));
        for finding in &examined.findings {
            point(&mut text, finding, style);
        }
    }
    text
}

fn point(text: &mut String, finding: &Finding, style: Style) {
    let mark = match finding.severity {
        Severity::Good => style.green("ok"),
        Severity::Warning => style.yellow("warning"),
        Severity::Problem => style.red("problem"),
    };
    text.push_str(&format!("  {mark}: {}\n", finding.what));
    if let Some(hint) = &finding.hint {
        text.push_str(&format!("    {} {hint}\n", style.dim("do:")));
    }
}

fn report_json(
    config: &Config,
    resolved: &Result<Resolved, InvalidSettings>,
    selected: Option<BackendKind>,
    examined: &[Examined],
    serves: bool,
    server: &Value,
) -> Value {
    let (problems, warnings) = settings_findings(resolved);
    let paths = config.paths();
    json!({
        "usable": serves,
        "selected": selected.map(BackendKind::as_str),
        "settings": {"config": paths.config, "env": paths.env, "problems": problems, "warnings": warnings},
        "server": server,
        "backends": examined.iter().map(|examined| json!({
            "name": examined.kind.as_str(),
            "selected": examined.selected,
            "usable": examined.usable(),
            "findings": examined.findings.iter().map(|finding| json!({
                "severity": severity_name(finding.severity),
                "what": finding.what,
                "hint": finding.hint,
            })).collect::<Value>(),
        })).collect::<Value>(),
    })
}

fn settings_findings(resolved: &Result<Resolved, InvalidSettings>) -> (Vec<String>, Vec<String>) {
    match resolved {
        Ok(resolved) => (Vec::new(), resolved.warnings.iter().map(ToString::to_string).collect()),
        Err(invalid) => (invalid.problems.iter().map(ToString::to_string).collect(), Vec::new()),
    }
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Good => "good",
        Severity::Warning => "warning",
        Severity::Problem => "problem",
    }
}
