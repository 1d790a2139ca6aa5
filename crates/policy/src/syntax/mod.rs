//! The grammar of bash: from text to [`ast::Node`].
//!
//! A hand-written recursive descent without a separate lexer, as bash's own is entangled with its grammar.
//! - `parser`: lists, pipelines, simple commands. `assign`: assignments. `redirect`: redirections,
//!   here-documents.
//! - `compound`: `if`, `for`, `case`, functions, `[[ … ]]`.
//! - `word`: quotes and expansions.
//!
//! It is built for hostile text: input, nesting and the number of steps are bounded, so it ends soon and never
//! overflows the stack. Text that it does not understand is an error, and the commands before the error are
//! given all the same, because bash runs a script line by line and has run them when it finds the error.
//!
//! Why no existing parser: `docs/decisions/014-our-own-shell-grammar.md`.

mod assign;
pub(crate) mod ast;
mod compound;
mod parser;
mod redirect;
mod word;

pub(crate) use parser::{Trouble, parse};
pub(crate) use word::expandable;
