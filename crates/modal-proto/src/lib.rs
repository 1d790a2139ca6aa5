//! The part of Modal's gRPC interface that Farshell speaks: messages, clients and servers.
//!
//! Modal publishes no interface description of its own for other languages. The files in `proto/` are ours: they hold
//! only the calls that the backend makes, or that the emulator must answer for Modal's own clients to work. Names and
//! field numbers are those of the Python package `modal` 1.6.3; the test `descriptors` compares them where that package
//! is installed. What a message has beyond the fields here is ignored when it is read.
//!
//! Clients take a channel (`ModalClientClient::new`): how it is connected is the caller's affair. Both sides must raise
//! the receive limit to [`MAX_MESSAGE`].

/// The largest message, either way; without it the limit is 4 MiB.
pub const MAX_MESSAGE: usize = 100 << 20;

/// What the sources in `proto/` describe, as an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/modal.fds"));

/// Named as the packages are nested.
#[expect(
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod modal {
    pub mod client {
        tonic::include_proto!("modal.client");
    }
    pub mod task_command_router {
        tonic::include_proto!("modal.task_command_router");
    }
}

pub use modal::{client, task_command_router as router};
