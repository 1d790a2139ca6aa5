//! The tools that work on files: the outpost does the work, the same on every backend. Nothing of the place is needed
//! for it, no shell and no program.
//!
//! | module | what it is |
//! |---|---|
//! | `room` | an environment whose files are used: paths, what they really are, reading and writing |
//! | `shield` | what must not be written, or shown |
//! | `seen` | which version of a file a task has seen |
//! | `content` | bytes as text and back |
//! | `syntax` | whether JSON, YAML and TOML are that |
//! | `read`, `write`, `patch`, `search` | the tools |

pub(crate) mod content;
pub(crate) mod patch;
pub(crate) mod read;
mod room;
pub(crate) mod search;
mod seen;
mod shield;
mod syntax;
pub(crate) mod write;

use crate::Tool;
pub(crate) use room::{Located, Room};
pub(crate) use seen::Seen;

pub(crate) fn tools() -> Vec<Tool> {
    vec![read::tool(), write::tool(), patch::tool(), search::tool()]
}
