//! Rounds of samples, and what they say.
//!
//! A [`Bench`] is a list of groups. A group has metrics (rows of the table) and, for each [`Column`], a case: a
//! function whose call gives one duration for each metric. In each round every group is sampled once, all its
//! columns one right after the other, and another column goes first each time: whatever else the machine does
//! meets all columns alike.

use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

/// One duration for each metric of the group. An error ends the whole run: a table with holes compares
/// nothing.
pub type Sample = Result<Vec<Duration>, Box<dyn Error>>;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The least it can cost on this machine.
    Limit,
    Ours,
    Hermes,
}

impl Column {
    const ALL: [Self; 3] = [Self::Limit, Self::Ours, Self::Hermes];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Ours => "ours",
            Self::Hermes => "hermes",
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: String,
    /// Bytes that a sample moves: shown as a rate too.
    pub bytes: Option<u64>,
    /// Commands that a sample runs: the same.
    pub commands: Option<u64>,
}

impl Metric {
    #[must_use]
    pub fn time(name: impl Into<String>) -> Self {
        Self { name: name.into(), bytes: None, commands: None }
    }

    #[must_use]
    pub fn rate(name: impl Into<String>, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..Self::time(name) }
    }

    #[must_use]
    pub fn per_second(name: impl Into<String>, commands: u64) -> Self {
        Self { commands: Some(commands), ..Self::time(name) }
    }
}

/// How often a group is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// In every round.
    Light,
    /// Seconds a sample: only in as many rounds as [`Plan::heavy`] says, spread over the run.
    Heavy,
}

/// The length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds before them that don't; heavy groups have none.
    pub warm_up: usize,
    /// Rounds in which the heavy groups take part.
    pub heavy: usize,
}

impl Plan {
    /// The heavy rounds are spread evenly, the last round is one of them.
    fn is_heavy(self, round: usize) -> bool {
        let heavy = self.heavy.min(self.rounds);
        round * heavy / self.rounds.max(1) != (round + 1) * heavy / self.rounds.max(1)
    }
}

struct Case<'a> {
    column: Column,
    sample: Box<dyn FnMut() -> Sample + 'a>,
    /// By metric.
    samples: Vec<Vec<Duration>>,
}

/// Metrics that are measured together.
pub struct Group<'a> {
    weight: Weight,
    metrics: Vec<Metric>,
    cases: Vec<Case<'a>>,
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

impl<'a> Group<'a> {
    /// Adds a column. Call it once for each column that can do this.
    pub fn case(&mut self, column: Column, sample: impl FnMut() -> Sample + 'a) -> &mut Self {
        self.cases.push(Case {
            column,
            sample: Box::new(sample),
            samples: vec![Vec::new(); self.metrics.len()],
        });
        self
    }

    fn round(&mut self, first: usize, counts: bool) -> Result<(), Box<dyn Error>> {
        let cases = self.cases.len();
        for at in 0..cases {
            let case = &mut self.cases[(first + at) % cases];
            let column = case.column.name();
            let name =
                || self.metrics.iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>().join(", ");
            let durations = (case.sample)().map_err(|error| format!("{} ({column}): {error}", name()))?;
            if durations.len() != case.samples.len() {
                return Err(format!("{} ({column}): {} durations", name(), durations.len()).into());
            }
            if counts {
                for (samples, duration) in case.samples.iter_mut().zip(durations) {
                    samples.push(duration);
                }
            }
        }
        Ok(())
    }
}

/// Everything that is measured in a run.
#[derive(Debug, Default)]
pub struct Bench<'a> {
    groups: Vec<Group<'a>>,
}

impl<'a> Bench<'a> {
    /// Adds a group without columns.
    pub fn group(&mut self, weight: Weight, metrics: Vec<Metric>) -> &mut Group<'a> {
        self.groups.push(Group { weight, metrics, cases: Vec::new() });
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// Keeps only the groups that have a metric with `part` in its name.
    pub fn only(&mut self, part: &str) {
        self.groups.retain(|group| group.metrics.iter().any(|metric| metric.name.contains(part)));
    }

    /// Samples everything.
    ///
    /// # Errors
    /// A sample failed; the text names it.
    pub fn run(mut self, plan: Plan) -> Result<Report, Box<dyn Error>> {
        for round in 0..plan.warm_up {
            for group in self.groups.iter_mut().filter(|group| group.weight == Weight::Light) {
                group.round(round, false)?;
            }
        }
        for round in 0..plan.rounds {
            for group in &mut self.groups {
                if group.weight == Weight::Light || plan.is_heavy(round) {
                    group.round(round, true)?;
                }
            }
        }
        Ok(Report { rows: self.groups.into_iter().flat_map(rows).collect() })
    }
}

fn rows(group: Group<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> =
        group.metrics.into_iter().map(|metric| Row { metric, columns: Vec::new() }).collect();
    for case in group.cases {
        for (row, samples) in rows.iter_mut().zip(case.samples) {
            row.columns.extend(Summary::of(samples).map(|summary| (case.column, summary)));
        }
    }
    rows
}

/// What the samples of one case say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub n: usize,
    pub min: Duration,
    pub median: Duration,
    /// With fewer than 100 samples the largest.
    pub p99: Duration,
}

impl Summary {
    /// `None` without samples.
    #[must_use]
    pub fn of(mut samples: Vec<Duration>) -> Option<Self> {
        samples.sort_unstable();
        let (n, min) = (samples.len(), *samples.first()?);
        let median = (samples[(n - 1) / 2] + samples[n / 2]) / 2;
        // The smallest sample that at least 99 of 100 do not exceed.
        let p99 = samples[(n * 99).div_ceil(100) - 1];
        Some(Self { n, min, median, p99 })
    }
}

/// One metric with all its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub metric: Metric,
    pub columns: Vec<(Column, Summary)>,
}

impl Row {
    #[must_use]
    pub fn summary(&self, column: Column) -> Option<Summary> {
        self.columns.iter().find(|(known, _)| *known == column).map(|(_, summary)| *summary)
    }

    /// How many times as long the first takes: the ratio of the medians of the same rounds.
    #[must_use]
    pub fn ratio(&self, of: Column, to: Column) -> Option<f64> {
        let (of, to) = (self.summary(of)?.median.as_secs_f64(), self.summary(to)?.median.as_secs_f64());
        (to > 0.0).then(|| of / to)
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub rows: Vec<Row>,
}

/// The ratios that are shown: ours is as good as the first is near 1 and the second is large.
const RATIOS: [(Column, Column); 2] = [(Column::Ours, Column::Limit), (Column::Hermes, Column::Ours)];

impl Report {
    fn shown(&self, column: Column) -> bool {
        self.rows.iter().any(|row| row.summary(column).is_some())
    }

    /// A table for people, with the columns and ratios that were measured.
    #[must_use]
    pub fn table(&self) -> String {
        let columns: Vec<Column> = Column::ALL.into_iter().filter(|column| self.shown(*column)).collect();
        let ratios: Vec<(Column, Column)> =
            RATIOS.into_iter().filter(|(of, to)| self.shown(*of) && self.shown(*to)).collect();
        let mut head = vec!["metric".to_owned(), "n".to_owned()];
        for column in &columns {
            head.extend([format!("{} p50", column.name()), "p99".into()]);
        }
        head.extend(ratios.iter().map(|(of, to)| format!("{}/{}", of.name(), to.name())));
        let mut lines = vec![head];
        for row in &self.rows {
            let n = row.columns.iter().map(|(_, summary)| summary.n).min().unwrap_or(0);
            let mut line = vec![row.metric.name.clone(), n.to_string()];
            for column in &columns {
                let summary = row.summary(*column);
                line.push(summary.map_or_else(|| "-".into(), |summary| middle(&row.metric, summary.median)));
                line.push(summary.map_or_else(|| "-".into(), |summary| duration(summary.p99)));
            }
            line.extend(ratios.iter().map(|(of, to)| {
                row.ratio(*of, *to).map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x"))
            }));
            lines.push(line);
        }
        align(&lines)
    }

    /// The same for programs; durations in nanoseconds.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let mut out = json!({ "metric": row.metric.name });
            if let Some(bytes) = row.metric.bytes {
                out["bytes"] = bytes.into();
            }
            if let Some(commands) = row.metric.commands {
                out["commands"] = commands.into();
            }
            for (column, summary) in &row.columns {
                out[column.name()] = json!({
                    "n": summary.n,
                    "min_ns": nanos(summary.min),
                    "p50_ns": nanos(summary.median),
                    "p99_ns": nanos(summary.p99),
                });
            }
            for (of, to) in RATIOS {
                if let Some(ratio) = row.ratio(of, to) {
                    out[format!("{}/{}", of.name(), to.name())] = ratio.into();
                }
            }
            out
        });
        Value::Array(rows.collect())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn middle(metric: &Metric, median: Duration) -> String {
    let per_second = |amount: u64| amount as f64 / median.as_secs_f64();
    match (metric.bytes, metric.commands) {
        _ if median.is_zero() => duration(median),
        (Some(bytes), _) => format!("{} ({:.2} GB/s)", duration(median), per_second(bytes) / 1e9),
        (None, Some(commands)) => format!("{} ({:.0}/s)", duration(median), per_second(commands)),
        (None, None) => duration(median),
    }
}

/// Three digits and a unit.
fn duration(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    let (number, unit) = match micros {
        ..1e3 => (micros, "µs"),
        ..1e6 => (micros / 1e3, "ms"),
        _ => (micros / 1e6, "s"),
    };
    let digits = if number < 10.0 {
        2
    } else if number < 100.0 {
        1
    } else {
        0
    };
    format!("{number:.digits$} {unit}")
}

/// The first column to the left, the others to the right.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = if at == 0 { write!(out, "{cell:<width$}") } else { write!(out, "  {cell:>width$}") };
        }
        out.push('\n');
    }
    out
}

/// Makes a case of an async function: `group.case(Column::Ours, on(&runtime, async || …))`. Only the sample's
/// own clock counts, so entering the runtime costs it nothing.
pub fn on<'a>(
    runtime: &'a tokio::runtime::Runtime,
    mut sample: impl AsyncFnMut() -> Sample + 'a,
) -> impl FnMut() -> Sample + 'a {
    move || runtime.block_on(sample())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(all: &[u64]) -> Vec<Duration> {
        all.iter().map(|&micros| Duration::from_micros(micros)).collect()
    }

    #[test]
    fn summaries() {
        assert_eq!(Summary::of(vec![]), None);
        let summary = Summary::of(micros(&[30, 10, 20, 40])).unwrap();
        assert_eq!(
            (summary.n, summary.min, summary.median, summary.p99),
            (4, micros(&[10])[0], micros(&[25])[0], micros(&[40])[0])
        );
        let many: Vec<u64> = (1..=200).collect();
        assert_eq!(Summary::of(micros(&many)).unwrap().p99, micros(&[198])[0]);
    }

    #[test]
    fn what_a_sample_does_is_shown_by_the_second() {
        let shown = |metric: Metric| middle(&metric, Duration::from_millis(500));
        assert_eq!(shown(Metric::time("x")), "500 ms");
        assert_eq!(shown(Metric::rate("x", 1_000_000_000)), "500 ms (2.00 GB/s)");
        assert_eq!(shown(Metric::per_second("x", 1500)), "500 ms (3000/s)");
    }

    #[test]
    fn durations_have_three_digits() {
        let shown: Vec<String> = [1, 99, 103, 1_500, 15_000, 150_000, 1_180_000]
            .map(|us| duration(Duration::from_micros(us)))
            .into();
        assert_eq!(shown, ["1.00 µs", "99.0 µs", "103 µs", "1.50 ms", "15.0 ms", "150 ms", "1.18 s"]);
    }

    #[test]
    fn columns_take_turns_and_ratios_are_of_one_run() {
        let order = std::cell::RefCell::new(String::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut bench = Bench::default();
        bench
            .group(Weight::Light, vec![Metric::time("light")])
            .case(Column::Limit, || {
                order.borrow_mut().push('l');
                Ok(micros(&[10]))
            })
            .case(
                Column::Ours,
                on(&runtime, async || {
                    order.borrow_mut().push('o');
                    Ok(micros(&[12]))
                }),
            );
        bench.group(Weight::Heavy, vec![Metric::time("start"), Metric::rate("move", 1000)]).case(
            Column::Limit,
            || {
                order.borrow_mut().push('H');
                Ok(micros(&[1000, 1]))
            },
        );
        let report = bench.run(Plan { rounds: 4, warm_up: 1, heavy: 2 }).unwrap();
        assert_eq!(*order.borrow(), "lo".to_owned() + "lo" + "olH" + "lo" + "olH");
        assert_eq!(
            report.table(),
            "metric  n            limit p50      p99  ours p50      p99  ours/limit\n\
             light   4              10.0 µs  10.0 µs   12.0 µs  12.0 µs       1.20x\n\
             start   2              1.00 ms  1.00 ms         -        -           -\n\
             move    2  1.00 µs (1.00 GB/s)  1.00 µs         -        -           -\n"
        );
        let json = report.json();
        assert_eq!(json[0]["ours"]["p50_ns"], 12_000);
        assert_eq!(json[0]["ours/limit"], 1.2);
        assert_eq!(json[2]["bytes"], 1000);
    }

    #[test]
    fn a_failed_sample_ends_the_run_and_is_named() {
        let mut bench = Bench::default();
        bench
            .group(Weight::Light, vec![Metric::time("broken")])
            .case(Column::Limit, || Err("no bash".into()));
        let error = bench.run(Plan { rounds: 1, warm_up: 0, heavy: 0 }).unwrap_err();
        assert_eq!(error.to_string(), "broken (limit): no bash");
    }
}
