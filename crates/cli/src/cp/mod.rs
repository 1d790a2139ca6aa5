//! `farshell cp`: files and directories between this machine and an environment.
//!
//! | file | owns |
//! |---|---|
//! | `operand` | what a word of the command line means |
//! | `ends` | what is copied, and where it goes |
//! | `side` | a directory here or there, and what can be done below it |
//! | `work` | the tree: many entries at once, directories last |
//! | `file` | one file: compared, gone on with, or copied |
//! | `tally` | what has been done, and what not |

mod ends;
mod file;
mod operand;
mod side;
mod tally;
mod work;

use crate::args::CpArgs;
use crate::output::{self, Outcome, Stop, code, invalid, notice};
use crate::progress::Progress;
use crate::reach;
use crate::signals::Interrupts;
use bytes::Bytes;
use farshell_api::file::{OpenFiles, ReadQuery, WriteQuery};
use farshell_client::files::{At, Files};
use farshell_engine::Error;
use operand::Operand;
use serde_json::Value;
use std::io::{IsTerminal, Read, Write, stderr};
use std::sync::Arc;
use work::{Options, Work};

/// Bytes of standard input that are read at a time.
const PIECE: usize = 256 << 10;

pub(crate) fn run(args: &CpArgs) -> Outcome {
    output::told(args.json, copy(args))
}

fn copy(args: &CpArgs) -> Outcome {
    let mut operands = Vec::new();
    for word in &args.paths {
        operands.push(Operand::new(word)?);
    }
    let Some(to) = operands.pop() else { return Err(invalid("reading the paths", "there are none").into()) };
    let task = task(args, operands.iter().chain([&to]))?;
    crate::runtime()?.block_on(async {
        let mut interrupts = Interrupts::listen()?;
        let copying = async {
            let client = reach::server().await?;
            let target = reach::target(&task, args.target.backend.as_deref())?;
            let request = OpenFiles { target, session: args.session.clone() };
            let opening = Files::open(&client, request);
            let files = crate::progress::during("opening the environment", opening).await?;
            let outcome = by_kind(args, &files, &operands, &to).await;
            // It is closed by itself a minute later, too.
            let _ = files.close().await;
            outcome
        };
        tokio::select! {
            copied = copying => copied,
            // What is not whole has no name, and what is large goes on from here next time.
            _ = interrupts.next() => Ok(interrupts.code()),
        }
    })
}

/// The task whose environment is meant: all operands mean the same one.
fn task<'a>(args: &CpArgs, operands: impl Iterator<Item = &'a Operand>) -> Result<String, Error> {
    let mut tasks: Vec<&str> = operands
        .filter_map(|operand| match operand {
            Operand::There { task, .. } => Some(task.as_deref().unwrap_or(&args.target.task)),
            _ => None,
        })
        .collect();
    tasks.dedup();
    match tasks[..] {
        [] => Err(invalid("reading the paths", "none of them is in an environment")
            .with_hint("a path in the environment has a colon before it: `farshell cp ./file :/tmp/file`")),
        [task] => Ok(task.to_owned()),
        _ => Err(between()),
    }
}

fn between() -> Error {
    invalid("reading the paths", "one side has to be this machine, and the other one environment")
        .with_hint("copy here first, and from here to where it is to go")
}

async fn by_kind(args: &CpArgs, files: &Files, from: &[Operand], to: &Operand) -> Outcome {
    match (from, to) {
        ([Operand::Standard], Operand::There { path, .. }) => push_input(args, files, path).await,
        ([Operand::There { path, .. }], Operand::Standard) => print_file(files, path).await,
        _ => {
            let items = ends::items(files, from, to).await?;
            let options = Options { checksum: args.checksum, delete: args.delete };
            tree(args, files, Work::new(options, items.0), &items.1).await
        }
    }
}

async fn tree(args: &CpArgs, files: &Files, work: Arc<Work>, to: &side::Side) -> Outcome {
    let mut progress = Progress::new("copying");
    let seen = stderr().is_terminal();
    let copied = {
        let mut running = std::pin::pin!(work.run());
        loop {
            tokio::select! {
                biased;
                copied = &mut running => break copied,
                () = progress.turn() => if seen {
                    work.tally.show(&mut progress);
                },
            }
        }
    };
    progress.over();
    copied.map_err(|mut error| {
        error.hint = Some("the same command again goes on where this one stopped".into());
        error
    })?;
    if work.tally.changed() {
        file::persist(|| to.sync()).await?;
    }
    if args.json {
        let mut object = work.tally.json();
        place(&mut object, files);
        output::print_json(&object)?;
    } else {
        notice(&work.tally.text());
    }
    Ok(if work.tally.any_failed() { code::NO } else { 0 })
}

/// Every result names the place.
fn place(object: &mut Value, files: &Files) {
    let opened = files.opened();
    object["backend"] = opened.backend.into();
    object["environment"] = opened.environment.into();
    object["place"] = serde_json::json!({"name": opened.place.name, "id": opened.place.id});
}

/// What comes in here becomes a file there.
async fn push_input(args: &CpArgs, files: &Files, path: &[u8]) -> Outcome {
    let query = WriteQuery { parents: true, ..WriteQuery::default() };
    let mut writing = files.write(At::anywhere(path), &query).await?;
    let (pieces, mut input) = tokio::sync::mpsc::channel::<std::io::Result<Bytes>>(2);
    // Reading from a terminal or a pipe can't be waited for in any other way.
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut buffer = vec![0; PIECE];
            let piece = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(got) => {
                    buffer.truncate(got);
                    Ok(Bytes::from(buffer))
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if pieces.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    let mut bytes = 0;
    while let Some(piece) = input.recv().await {
        let piece = piece.map_err(|e| Stop::from(Error::io("reading standard input", e)))?;
        bytes += piece.len() as u64;
        writing.push(piece).await?;
    }
    writing.finish().await?;
    if args.json {
        let mut object = tally::Tally::default().json();
        object["files"] = 1.into();
        object["bytes"] = bytes.into();
        place(&mut object, files);
        output::print_json(&object)?;
    }
    Ok(0)
}

/// A file there goes out here.
async fn print_file(files: &Files, path: &[u8]) -> Outcome {
    let mut reading = files.read(At::anywhere(path), &ReadQuery::default()).await?;
    let mut out = std::io::stdout();
    while let Some(bytes) = reading.next().await? {
        out.write_all(&bytes)?;
    }
    out.flush()?;
    Ok(0)
}
