//! `farshell logs`: what a process printed, from wherever, and what it prints now.

use crate::args::LogsArgs;
use crate::output::{self, Outcome, Stop};
use crate::signals::Interrupts;
use crate::writer::{Broken, Writer, Written};
use crate::{ids, reach};
use bytes::Bytes;
use farshell_api::Text;
use farshell_api::process::{LogPiece, LogQuery, View};
use farshell_api::stream::AttachTo;
use farshell_client::stream::Stream;
use farshell_client::{Client, Streaming, Update};
use farshell_engine::Error;
use serde_json::json;

pub(crate) fn run(args: &LogsArgs) -> Outcome {
    output::told(args.json, show(args))
}

fn show(args: &LogsArgs) -> Outcome {
    crate::runtime()?.block_on(async {
        let mut interrupts = Interrupts::listen()?;
        let showing = async {
            let client = reach::server().await?;
            let id = ids::whole(&client, &args.id).await?;
            let view = match (args.stdout, args.stderr) {
                (true, _) => View::Stdout,
                (_, true) => View::Stderr,
                (false, false) => View::Output,
            };
            let mut shower = Shower { client, id, view, json: args.json, writer: Writer::default() };
            match (args.follow, args.json) {
                (true, _) => shower.follow(args).await,
                (false, true) => shower.piece(args).await,
                (false, false) => shower.all(args).await,
            }
        };
        tokio::select! {
            shown = showing => shown,
            // The process is none of its business.
            _ = interrupts.next() => Ok(interrupts.code()),
        }
    })
}

struct Shower {
    client: Client,
    id: String,
    view: View,
    json: bool,
    writer: Writer,
}

impl Shower {
    /// The first piece that is asked for.
    async fn first(&self, args: &LogsArgs) -> Result<LogPiece, Stop> {
        let query = LogQuery {
            view: self.view,
            offset: args.since,
            line: args.lines.map(|n| -i64::from(n)),
            ..LogQuery::default()
        };
        Ok(self.client.log(&self.id, &query).await?)
    }

    async fn next(&self, offset: u64) -> Result<LogPiece, Stop> {
        let offset = Some(i64::try_from(offset).unwrap_or(i64::MAX));
        let query = LogQuery { view: self.view, offset, ..LogQuery::default() };
        Ok(self.client.log(&self.id, &query).await?)
    }

    /// One piece, for a program that asks for the next by itself.
    async fn piece(&self, args: &LogsArgs) -> Outcome {
        output::print_json(&self.first(args).await?)?;
        Ok(0)
    }

    /// Everything up to what there is now.
    async fn all(&mut self, args: &LogsArgs) -> Outcome {
        let first = self.first(args).await?;
        let total = first.total;
        self.history(first, total).await?;
        self.finish().await?;
        Ok(0)
    }

    /// From a piece on up to an offset. Returns the offset that was reached.
    async fn history(&mut self, mut piece: LogPiece, until: u64) -> Result<u64, Stop> {
        let mut at = piece.offset;
        loop {
            if piece.offset > at {
                self.gap(at, piece.offset).await?;
            }
            at = piece.next;
            // Only a live stream tells the two apart; here both are what was asked for.
            self.print(Stream::Stdout, piece.offset, piece.text.0.into()).await?;
            if at >= until || piece.eof || piece.next <= piece.offset {
                return Ok(at);
            }
            piece = self.next(at).await?;
        }
    }

    /// What there is, and then what comes: without a gap, and nothing twice.
    async fn follow(&mut self, args: &LogsArgs) -> Outcome {
        // Both numbers are of one moment, so together they are an offset in arrival order.
        let process = self.client.process(&self.id).await?;
        let (stdout, stderr) = (process.stdout_bytes, process.stderr_bytes);
        let (here, arrival) = match self.view {
            View::Output => (stdout + stderr, None),
            View::Stdout => (stdout, Some(stdout + stderr)),
            View::Stderr => (stderr, Some(stdout + stderr)),
        };
        let first = self.first(args).await?;
        let reached = self.history(first, here).await?;
        // The log may have grown since: what of it was shown is passed over.
        let from = arrival.unwrap_or(reached);
        let attach = AttachTo {
            id: self.id.clone(),
            target: None,
            instance: None,
            from,
            screen: false,
            until_closed: false,
            size: None,
        };
        let mut streaming = Streaming::attach(&self.client, attach);
        let mut at = here;
        if arrival.is_none() {
            at = reached;
        }
        let ended = loop {
            match streaming.next().await? {
                Update::Output(output) => {
                    let ours = match self.view {
                        View::Output => true,
                        View::Stdout => output.stream == Stream::Stdout,
                        View::Stderr => output.stream == Stream::Stderr,
                    };
                    if !ours {
                        continue;
                    }
                    let known = usize::try_from(reached.saturating_sub(at)).unwrap_or(usize::MAX);
                    let known = known.min(output.bytes.len());
                    let offset = at + known as u64;
                    at += output.bytes.len() as u64;
                    let bytes = output.bytes.slice(known..);
                    self.print(output.stream, offset, bytes).await?;
                }
                Update::Gap { from, to } => {
                    if self.view == View::Output {
                        at = to;
                    }
                    self.gap(from, to).await?;
                }
                Update::Ended(process) | Update::Detached { process, .. } => break process,
                _ => {}
            }
        };
        if self.json {
            output::print_json_line(&json!({"ended": ended}))?;
        }
        self.finish().await?;
        Ok(0)
    }

    async fn print(&mut self, stream: Stream, offset: u64, bytes: Bytes) -> Result<(), Stop> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.json {
            let name = match (self.view, stream) {
                (View::Stderr, _) | (View::Output, Stream::Stderr) => "stderr",
                (View::Stdout | View::Output, _) => "stdout",
            };
            let text = Text(bytes.to_vec());
            output::print_json_line(&json!({"stream": name, "offset": offset, "text": text}))?;
            return Ok(());
        }
        // A log is one thing: all of it goes to standard output.
        self.writer.write(Stream::Stdout, bytes)?;
        while !self.writer.has_room() {
            self.writer.work().await.map_err(broken)?;
        }
        Ok(())
    }

    async fn gap(&mut self, from: u64, to: u64) -> Result<(), Stop> {
        if self.json {
            output::print_json_line(&json!({"gap": [from, to]}))?;
        } else {
            let lost = to.saturating_sub(from);
            output::tell(&format!("farshell: {lost} bytes of output are lost (offsets {from} to {to})\n"));
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Stop> {
        self.writer.close();
        loop {
            if self.writer.work().await.map_err(broken)? == Written::All {
                return Ok(());
            }
        }
    }
}

fn broken(why: Broken) -> Stop {
    match why {
        Broken::NoReader => Stop::BrokenPipe,
        Broken::Failed { stream, error } => Error::io(format!("writing to standard {stream}"), error).into(),
    }
}
