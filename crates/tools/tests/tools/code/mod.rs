//! Scripts: what they give, what they call, how they end, and what they can't do to us.

mod abuse;
mod calls;
mod ends;
mod gate;
mod output;

use crate::rig::Rig;
use serde_json::{Value, json};

impl Rig {
    async fn code(&self, code: &str) -> Value {
        self.done("execute_code", json!({ "code": code })).await
    }
}

/// What stands in these fields.
fn fields<const N: usize>(result: &Value, names: [&str; N]) -> [Value; N] {
    names.map(|name| result[name].clone())
}
