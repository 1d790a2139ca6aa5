//! `config.yaml`: reading it with the place of every node (`node`), and changing one value in it while every
//! other byte stays as it was (`edit`, `emit`).

mod edit;
mod emit;
mod node;

pub use edit::{Refusal, RefusalKind, set, unset};
pub use node::{Kind, Merge, Node, SyntaxError, parse};
