//! Subcommands about what may run.

use crate::times::Span;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farshell approve                     the only one that waits, once
  farshell approve 3f2a --session      also the next time, in this session
  farshell approve --always            also from now on: it is written to command_allowlist
  farshell approve --deny --reason 'use the staging host'

The first answer counts. No answer in approvals.timeout seconds is a no.")]
pub(crate) struct ApproveArgs {
    /// Which one, or the beginning of its id; the only one if there is one.
    pub(crate) id: Option<String>,

    /// Also the next time, in this environment, task and session.
    #[arg(long, conflicts_with_all = ["always", "deny"])]
    pub(crate) session: bool,

    /// Also from now on.
    #[arg(long, conflicts_with = "deny")]
    pub(crate) always: bool,

    /// Say no.
    #[arg(long)]
    pub(crate) deny: bool,

    /// Told to whoever asked, and recorded.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farshell approvals
  farshell approvals --wait 60 --json    waits for the first one")]
pub(crate) struct ApprovalsArgs {
    /// Wait so many seconds for the first one.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) wait: Option<f64>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farshell audit                        the last 50 lines
  farshell audit --since 2h --task ci
  farshell audit -f --json              one JSON object on each line, as they come
  farshell audit --verify               whether a line was changed, taken out or put in

Exit code of --verify: 1 if the log is not what was written.")]
pub(crate) struct AuditArgs {
    /// Go on with what comes.
    #[arg(short, long, conflicts_with = "verify")]
    pub(crate) follow: bool,

    /// Only what happened in this time: 90s, 10m, 2h, 7d.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Span>,

    /// Only those of this task.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) task: Option<String>,

    /// So many of the last lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<u32>,

    /// Read everything, and say whether it is what was written.
    #[arg(long, conflicts_with_all = ["since", "task", "lines"])]
    pub(crate) verify: bool,

    /// Print JSON: one object, with --follow one for each line.
    #[arg(long)]
    pub(crate) json: bool,
}
