//! Runs the suite: `cargo nextest run -p farshell-conformance`, or `cargo test`.

fn main() -> std::process::ExitCode {
    farshell_conformance::main()
}
