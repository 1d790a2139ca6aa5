//! The agent's tools, beside what they stand on and what they stand for.

use crate::program::Api;
use crate::stats::{Bench, Column, Metric, Weight, on};
use serde_json::json;
use std::cell::OnceCell;
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Files of the tree that is searched, and how many in each directory.
const FILES: usize = 100_000;
const EACH: usize = 100;
/// What is looked for: rare, so that everything is looked at.
const PATTERN: &str = "needle_[0-9]+";

/// A tree of files, made when it is first needed.
#[derive(Debug, Default)]
struct Tree(OnceCell<tempfile::TempDir>);

impl Tree {
    fn path(&self) -> Result<&Path> {
        if self.0.get().is_none() {
            let dir = tempfile::tempdir()?;
            for n in 0..FILES {
                let directory = dir.path().join(format!("d{}", n / EACH));
                if n % EACH == 0 {
                    std::fs::create_dir(&directory)?;
                }
                let mut text = format!("file {n}\n{}", "some words that are not looked for\n".repeat(20));
                if n % (FILES / 20) == 0 {
                    text.push_str(&format!("needle_{n}\n"));
                }
                std::fs::write(directory.join(format!("f{n}.txt")), text)?;
            }
            drop(self.0.set(dir));
        }
        Ok(self.0.get().ok_or("no tree")?.path())
    }
}

/// The rows of the tools.
pub fn rows<'a>(bench: &mut Bench<'a>, runtime: &'a Runtime, api: &'a Api) {
    // What a tool adds: here the limit is the same command without it.
    bench
        .group(Weight::Light, vec![Metric::time("terminal tool through the server")])
        .case(Column::Limit, on(runtime, async || Ok(vec![api.run("true").await?])))
        .case(
            Column::Ours,
            on(runtime, async || Ok(vec![api.tool("terminal", json!({"command": "true"})).await?])),
        );
    if Command::new("rg").arg("--version").stdout(Stdio::null()).status().is_err() {
        return;
    }
    let tree = Rc::new(Tree::default());
    let ours = Rc::clone(&tree);
    bench
        .group(Weight::Heavy, vec![Metric::time(format!("search_files in {FILES} files"))])
        .case(Column::Limit, move || Ok(vec![ripgrep(tree.path()?)?]))
        .case(
            Column::Ours,
            on(runtime, move || {
                let ours = Rc::clone(&ours);
                async move {
                    let path = ours.path()?.to_str().ok_or("a path that is no text")?;
                    Ok(vec![api.tool("search_files", json!({"pattern": PATTERN, "path": path})).await?])
                }
            }),
        );
}

/// Ripgrep itself, as a process.
fn ripgrep(path: &Path) -> Result<Duration> {
    let start = Instant::now();
    let output = Command::new("rg").args(["--line-number", PATTERN]).arg(path).output()?;
    let took = start.elapsed();
    match output.stdout.iter().filter(|byte| **byte == b'\n').count() {
        20 => Ok(took),
        other => Err(format!("ripgrep found {other} lines").into()),
    }
}
