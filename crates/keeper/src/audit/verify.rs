//! Whether the audit log is what was written.

use super::file::{Link, files, kept, line};
use farshell_api::audit::{AuditFault, AuditLine, AuditReport, Step};
use std::io::Result;
use std::path::Path;

/// Faults that are told; a log with more has seen worse.
const MOST: usize = 100;

/// Reads all lines in their order.
pub(super) fn verify(dir: &Path) -> Result<AuditReport> {
    let mut reader = Reader::default();
    for path in files(dir)? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let bytes = kept(&path)?;
        reader.file(&name, &bytes);
    }
    let mut report = reader.report;
    report.sound = report.faults.is_empty();
    Ok(report)
}

#[derive(Default)]
struct Reader {
    report: AuditReport,
    chain: Option<String>,
    last: u64,
    /// A line that is none, which the next one may explain.
    odd: Option<(AuditFault, u64)>,
}

impl Reader {
    fn file(&mut self, name: &str, bytes: &[u8]) {
        self.report.files += 1;
        let mut lines = bytes.split(|byte| *byte == b'\n').enumerate().peekable();
        while let Some((at, text)) = lines.next() {
            let here = |what: String| AuditFault { file: name.to_owned(), line: at as u64 + 1, what };
            let at_end = lines.peek().is_none();
            if at_end && text.is_empty() {
                break;
            }
            match (Link::parse(text), line(text)) {
                (Some(link), Some(line)) => self.line(&link, &line, &here),
                _ if at_end => {
                    let note = here(format!("the last {} bytes are a line that was torn", text.len()));
                    self.report.notes.push(note);
                }
                _ => {
                    self.give_up_odd();
                    self.odd = Some((here("this is no line of the log".into()), text.len() as u64));
                }
            }
        }
        self.give_up_odd();
    }

    fn line(&mut self, link: &Link<'_>, line: &AuditLine, here: &dyn Fn(String) -> AuditFault) {
        match self.odd.take() {
            Some((odd, bytes)) if line.step == Step::Torn && line.bytes == Some(bytes) => {
                let what =
                    format!("a line was torn after {bytes} bytes: its writer died, or the disk was full");
                self.report.notes.push(AuditFault { what, ..odd });
            }
            Some((odd, _)) => self.fault(odd),
            None => {}
        }
        self.report.lines += 1;
        if self.report.lines == 1 {
            self.report.first = line.seq;
        }
        if line.step == Step::Gap {
            let lost = line.lost.unwrap_or_default();
            self.report.notes.push(here(format!("{lost} lines could not be written before this one")));
        }
        // Of the oldest file that is kept, the lines before are gone.
        let before = self.chain.take().or_else(|| line.follows.clone()).unwrap_or_default();
        if !link.follows(&before) {
            self.fault(here(
                "the line was changed, or one before it was changed, taken out or put in".into(),
            ));
        } else if self.last != 0 && line.seq != self.last + 1 {
            self.fault(here(format!("line {} follows line {}", line.seq, self.last)));
        }
        self.chain = Some(link.chain.to_owned());
        self.last = line.seq;
        self.report.last = line.seq;
    }

    fn give_up_odd(&mut self) {
        if let Some((odd, _)) = self.odd.take() {
            self.fault(odd);
        }
    }

    fn fault(&mut self, fault: AuditFault) {
        if self.report.faults.len() < MOST {
            self.report.faults.push(fault);
        }
    }
}
