//! Refusals, in words like Modal's.

use farshell_modal_proto::client::{RpcRetryPolicy, RpcStatus};
use prost::Message;
use tonic::{Code, Status};

pub(crate) fn no_sandbox(id: &str) -> Status {
    Status::not_found(format!("Sandbox with ID {id} not found."))
}

pub(crate) fn no_task(id: &str) -> Status {
    Status::not_found(format!("task {id} not found"))
}

pub(crate) fn no_exec(id: &str) -> Status {
    Status::not_found(format!("exec {id} not found"))
}

pub(crate) fn no_image(id: &str) -> Status {
    Status::not_found(format!("Image with ID {id} not found. It may have expired or been deleted."))
}

pub(crate) fn not_served(what: &str) -> Status {
    Status::unimplemented(format!("the emulator does not serve {what}"))
}

/// Too much at once: try again after so long.
pub(crate) fn throttle(seconds: f32) -> Status {
    let policy = RpcRetryPolicy { retry_after_secs: seconds };
    let detail = prost_types::Any {
        type_url: "type.modal.com/modal.client.RPCRetryPolicy".into(),
        value: policy.encode_to_vec(),
    };
    let message = "Rate limit exceeded";
    let whole =
        RpcStatus { code: Code::ResourceExhausted as i32, message: message.into(), details: vec![detail] };
    Status::with_details(Code::ResourceExhausted, message, whole.encode_to_vec().into())
}
