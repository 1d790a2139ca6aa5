//! Ids that people shorten.

use crate::output::Stop;
use farshell_api::process::{Process, ProcessQuery};
use farshell_client::Client;
use farshell_engine::{Error, Kind};

const PREFIX: &str = "proc_";
/// Hex digits of an id that was not shortened.
const DIGITS: usize = 16;
const FINDING: &str = "finding the process";
/// Candidates that an error names.
const SHOWN: usize = 5;

/// The whole id.
pub(crate) async fn whole(client: &Client, given: &str) -> Result<String, Stop> {
    // One round trip less where nothing is missing.
    if given.strip_prefix(PREFIX).is_some_and(|digits| digits.len() == DIGITS) {
        return Ok(given.to_owned());
    }
    let all = client.processes(&ProcessQuery { task: None, all: true }).await?;
    Ok(choose(given, &all)?)
}

fn choose(given: &str, all: &[Process]) -> Result<String, Error> {
    let ids = || all.iter().map(|process| process.id.as_str());
    // Ids of other clients need not look like ours.
    if ids().any(|id| id == given) {
        return Ok(given.to_owned());
    }
    let matching: Vec<&str> = match given {
        "" => Vec::new(),
        given => ids()
            .filter(|id| {
                id.starts_with(given)
                    || id.strip_prefix(PREFIX).is_some_and(|digits| digits.starts_with(given))
            })
            .collect(),
    };
    match matching.as_slice() {
        [id] => Ok((*id).to_owned()),
        [] => Err(Error::new(Kind::NotFound, FINDING, format!("no process {given:?} is known"))
            .with_hint("`farshell ps --all` lists those that are")),
        many => {
            let mut names = many[..many.len().min(SHOWN)].join(", ");
            if many.len() > SHOWN {
                names.push_str(", …");
            }
            Err(Error::new(Kind::Invalid, FINDING, format!("{given:?} can be any of {names}"))
                .with_hint("give more of it"))
        }
    }
}
