//! Makes Rust of `proto/`, without protoc.

use prost::Message;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["modal/client.proto", "modal/task_command_router.proto"], ["proto"])?;
    let described = PathBuf::from(std::env::var("OUT_DIR")?).join("modal.fds");
    std::fs::write(described, files.encode_to_vec())?;
    tonic_prost_build::configure()
        // Connections are made by those who use the clients; so this crate needs no transport.
        .build_transport(false)
        .bytes(".")
        .compile_fds(files)?;
    Ok(())
}
