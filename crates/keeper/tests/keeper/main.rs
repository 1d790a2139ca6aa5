//! The keeper with the real local backend: real outposts, real shells, a real database.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

mod audit;
mod away;
mod background;
mod control;
mod crash;
mod environments;
mod foreground;
mod gate;
mod gc;
mod hosts;
mod life;
mod places;
mod resting;
mod resume;
mod rig;
mod safe;
mod scale;
mod streams;
mod sudo;
mod variables;
mod watch;
