//! The `.env` file: reading it (`parse`) and changing one variable in it (`edit`).
//!
//! # Rules
//! * A line is `NAME=value`, `export NAME=value`, a `#` comment, or blank. The last line for a name counts.
//! * An unquoted value goes to the end of the line, or to a `#` after a blank; blanks around it don't belong
//!   to it. A value that starts like a JSON list or object and is one is kept exactly, `#` and all.
//! * In double quotes, `\n`, `\t`, `\r`, `\"`, `\'`, `\\` and `\$` are understood. In single quotes everything is
//!   literal but `\'`. Quoted values may go over several lines.
//! * Nothing is expanded: a `$` is a `$`.
//! * The text is UTF-8, with or without a byte order mark, or UTF-16 with one. Either line end will do. NUL
//!   characters are dropped.
//! * A line that is none of these is skipped, and reported as skipped.

mod edit;
mod parse;

pub use edit::{NotEditable, remove, set};
pub use parse::{DotEnv, NotText, Skipped, Variable};
