//! Daytona's API served on this machine: the control plane, the toolbox behind its proxy, and real processes in a private
//! root per sandbox. For tests of clients, ours and Daytona's own.
//!
//! # From a request to a process
//! 1. `serve` accepts connections and arms [`faults`]: a request may be refused, delayed or cut off.
//! 2. `control` answers for sandboxes, whose states change on their own time (`world`, `sandbox`).
//! 3. A sandbox that is started is a process namespace with a root of its own (`root`): this same program runs in it as its
//!    first process (`inside`) and as the toolbox's daemon (`daemon`), which listens on a Unix socket.
//! 4. `proxy` hands requests for a sandbox's toolbox to that socket, as Daytona's proxy does.
//!
//! What it does not do is in the README beside this crate: no image is built, and no limit or network rule is enforced.

pub mod daemon;
pub mod faults;
pub mod inside;
pub mod options;
pub mod serve;

mod control;
mod events;
mod proxy;
mod reply;
mod root;
mod sandbox;
mod timers;
mod world;
