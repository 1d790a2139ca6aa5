//! What Slurm says of a job, and that in words.

use std::time::Duration;
use tokio::time::Instant;

/// What is asked of `squeue`. What may hold anything comes last.
pub(crate) const FORMAT: &str = "%i|%T|%N|%L|%S|%P|%j|%k|%r";

/// A job as Slurm knows it at this moment.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: u32,
    pub(crate) phase: Phase,
    /// Where it runs or ran.
    pub(crate) node: Option<String>,
    pub(crate) partition: String,
    pub(crate) name: String,
    pub(crate) comment: String,
    /// Why it waits, as Slurm calls it.
    pub(crate) reason: String,
    /// When it is expected to start, where Slurm has an idea.
    pub(crate) start: Option<String>,
    /// When its time is up.
    pub(crate) end: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Queued,
    Running,
    /// It is over, and Slurm still cleans up behind it.
    Ending,
    /// Slurm's word for how: `TIMEOUT`, `CANCELLED`, …
    Ended(String),
}

impl Job {
    /// A line of [`FORMAT`].
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(9, '|');
        let mut next = || fields.next().map(str::trim);
        let id = next()?.parse().ok()?;
        let phase = phase(next()?);
        let given = |text: &str| match text {
            "" | "N/A" | "(null)" | "None assigned" => None,
            text => Some(text.to_owned()),
        };
        let node = given(next()?);
        let end = seconds(next()?).and_then(|left| Instant::now().checked_add(left));
        let (start, partition, name) = (given(next()?), next()?.to_owned(), next()?.to_owned());
        let (comment, reason) = (next()?.to_owned(), next()?.to_owned());
        Some(Self { id, phase, node, partition, name, comment, reason, start, end })
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ending | Phase::Ended(_))
    }

    fn on(&self) -> String {
        self.node.as_ref().map_or_else(String::new, |node| format!(" on {node}"))
    }

    /// `Slurm job 12 on n1, 58 min left`
    pub(crate) fn running(&self) -> String {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = match left {
            None => "no time limit".to_owned(),
            Some(Duration::ZERO) => "its time is up".to_owned(),
            Some(left) => format!("{} left", span(left)),
        };
        format!("Slurm job {}{}, {left}", self.id, self.on())
    }

    /// `Slurm job 12 is queued in partition debug: Resources (it waits for …), 3 jobs are before it`
    pub(crate) fn queued(&self, before: Option<usize>) -> String {
        let mut text = format!("Slurm job {} is queued in partition {}", self.id, self.partition);
        if !self.reason.is_empty() && self.reason != "None" {
            text += &format!(": {}", self.reason);
            if let Some(meaning) = meaning(&self.reason) {
                text += &format!(" ({meaning})");
            }
        }
        match before {
            Some(0) => text += "; it is the next one",
            Some(1) => text += "; 1 job is before it",
            Some(before) => text += &format!("; {before} jobs are before it"),
            None => {}
        }
        if let Some(start) = &self.start {
            text += &format!("; expected to start at {start}");
        }
        text
    }

    /// How it ended, and by whom, as far as Slurm says.
    pub(crate) fn epitaph(&self, canceller: Option<u32>) -> String {
        let (job, on) = (format!("Slurm job {}", self.id), self.on());
        let Phase::Ended(how) = &self.phase else { return format!("{job}{on} is ending") };
        match how.as_str() {
            "TIMEOUT" => format!("{job}{on} reached its time limit and was ended by Slurm"),
            "NODE_FAIL" => format!("{job} was ended by Slurm because its node failed{}", self.of_node()),
            "CANCELLED" => format!("{job}{on} was cancelled (scancel) by {}", who(canceller)),
            "OUT_OF_MEMORY" => format!("{job}{on} ran out of memory and was killed"),
            "PREEMPTED" => format!("{job}{on} was preempted: Slurm gave its node to another job"),
            "DEADLINE" => format!("{job} was ended by Slurm at its deadline"),
            "BOOT_FAIL" => {
                format!("{job} was ended by Slurm because its node did not start{}", self.of_node())
            }
            "COMPLETED" => format!("{job}{on} has ended"),
            "FAILED" => format!("{job}{on} ended with an error"),
            other => format!("{job}{on} was ended by Slurm: {other}"),
        }
    }

    fn of_node(&self) -> String {
        self.node.as_ref().map_or_else(String::new, |node| format!(": {node}"))
    }
}

fn who(canceller: Option<u32>) -> String {
    match canceller {
        Some(uid) if uid == rustix::process::getuid().as_raw() => "you, outside of Farshell".to_owned(),
        Some(0) => "the administrator".to_owned(),
        Some(uid) => format!("user {uid}"),
        None => "somebody: Slurm keeps no accounts here that say by whom".to_owned(),
    }
}

/// What Slurm wrote into the log of a job that it ended, for those that it has forgotten.
pub(crate) fn from_log(id: u32, log: &str) -> String {
    let line = log.lines().rev().find(|line| line.contains("*** JOB ") && line.contains(" CANCELLED AT "));
    let how = match line {
        Some(line) if line.contains("TIME LIMIT") => "TIMEOUT",
        Some(line) if line.contains("NODE FAILURE") => "NODE_FAIL",
        Some(line) if line.contains("PREEMPTION") => "PREEMPTED",
        Some(_) => "CANCELLED",
        None => return format!("Slurm job {id} has ended, and Slurm no longer knows how"),
    };
    let node = line.and_then(|line| line.split_once(" ON ")?.1.split_whitespace().next()).map(str::to_owned);
    Job {
        id,
        phase: Phase::Ended(how.to_owned()),
        node,
        partition: String::new(),
        name: String::new(),
        comment: String::new(),
        reason: String::new(),
        start: None,
        end: None,
    }
    .epitaph(None)
}

fn phase(word: &str) -> Phase {
    match word {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT"
        | "RESV_DEL_HOLD" => Phase::Queued,
        "RUNNING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "RESIZING" => Phase::Running,
        "COMPLETING" | "STAGE_OUT" => Phase::Ending,
        // sacct says `CANCELLED by 1000`.
        other => Phase::Ended(other.split_whitespace().next().unwrap_or_default().to_owned()),
    }
}

/// What a reason means, where its name does not say it.
fn meaning(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "Resources" => "it waits until a node has room",
        "Priority" => "jobs of higher priority come first",
        "Dependency" => "another job has to end first",
        "BeginTime" => "it may not begin yet",
        "Licenses" => "it waits for a licence",
        "Reservation" => "its reservation has not begun",
        "JobHeldUser" => "somebody holds it: `scontrol release` lets it go",
        "JobHeldAdmin" => "the administrator holds it",
        "PartitionTimeLimit" => {
            "it asks for more time than the partition allows: change singularity_slurm.time"
        }
        "PartitionNodeLimit" | "PartitionConfig" => "the partition does not allow what it asks for",
        "PartitionDown" | "PartitionInactive" => "the partition is closed",
        "BadConstraints" => "no node has what it asks for",
        "InvalidAccount" => "the account is not valid: change singularity_slurm.account",
        "InvalidQOS" => "the quality of service is not valid: change singularity_slurm.extra",
        "AssociationJobLimit" | "QOSJobLimit" | "QOSMaxJobsPerUserLimit" | "AssocMaxJobsLimit" => {
            "you have as many jobs as you may have"
        }
        _ if reason.starts_with("ReqNodeNotAvail") => "the node that it asks for is not available",
        _ if reason.starts_with("Nodes required for job are DOWN") => "the nodes are down or reserved",
        _ => return None,
    })
}

/// `1-02:03:04`, as Slurm writes durations. Nothing if it is none.
fn seconds(text: &str) -> Option<Duration> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let mut total = 0;
    let parts: Vec<&str> = rest.split(':').collect();
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    for part in parts {
        total = total * 60 + part.parse::<u64>().ok()?;
    }
    Some(Duration::from_secs(days.checked_mul(86400)?.checked_add(total)?))
}

fn span(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: &str, rest: &str) -> Job {
        Job::parse(&format!("12|{state}|{rest}")).unwrap()
    }

    #[tokio::test]
    async fn jobs_are_told_in_words() {
        let queued = job("PENDING", "|1:00:00|2026-11-16T10:30:00|debug|farshell-a-1|mark=1|Resources");
        assert_eq!(
            queued.queued(Some(3)),
            "Slurm job 12 is queued in partition debug: Resources (it waits until a node has room); 3 jobs are \
             before it; expected to start at 2026-11-16T10:30:00"
        );
        let odd = job("PENDING", "|INVALID|N/A|debug|n||Nodes required for job are DOWN, DRAINED | odd");
        assert_eq!((odd.phase.clone(), odd.reason.ends_with("| odd"), odd.end), (Phase::Queued, true, None));
        let running = job("RUNNING", "n1|1-00:00:00|2026-11-16T10:30:00|debug|farshell-a-1|c|None");
        assert_eq!(running.running(), "Slurm job 12 on n1, 23 h left");
        let endless = job("RUNNING", "n1|UNLIMITED|2026-11-16T10:30:00|debug|farshell-a-1|c|None");
        assert_eq!(endless.running(), "Slurm job 12 on n1, no time limit");
        assert!(job("COMPLETING", "n1|0:00|x|debug|n|c|None").is_over());
        assert!(Job::parse("slurm_load_jobs error: Invalid job id specified").is_none());
    }

    #[test]
    fn ends_are_told_with_their_cause() {
        let ended = |state: &str| job(state, "n1|0:00|x|debug|n|c|None");
        for (state, expected) in [
            ("TIMEOUT", "Slurm job 12 on n1 reached its time limit and was ended by Slurm"),
            ("NODE_FAIL", "Slurm job 12 was ended by Slurm because its node failed: n1"),
            ("OUT_OF_MEMORY", "Slurm job 12 on n1 ran out of memory and was killed"),
            ("REVOKED", "Slurm job 12 on n1 was ended by Slurm: REVOKED"),
        ] {
            assert_eq!(ended(state).epitaph(None), expected);
        }
        let cancelled = ended("CANCELLED by 4242");
        assert_eq!(cancelled.epitaph(Some(4242)), "Slurm job 12 on n1 was cancelled (scancel) by user 4242");
        assert!(cancelled.epitaph(None).contains("by somebody"));
        let log = "INFO: x\nslurmstepd: error: *** JOB 7 ON n2 CANCELLED AT 2026-11-16T10:00:00 DUE TO TIME LIMIT ***\n";
        assert_eq!(from_log(7, log), "Slurm job 7 on n2 reached its time limit and was ended by Slurm");
        assert!(from_log(7, "").contains("no longer knows how"));
    }
}
