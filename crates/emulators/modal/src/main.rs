//! See the library.

use farshell_modal_emulator::options::{Options, USAGE};
use farshell_modal_emulator::{inside, serve};
use std::io::Write;

fn main() {
    let mut args = std::env::args_os().skip(1).peekable();
    // What this program is inside of a sandbox.
    let inside = args.next_if(|word| word == "init" || word == "spawn");
    let result = match inside {
        Some(word) if word == "init" => inside::run(),
        Some(_) => inside::spawn(args),
        None => match Options::parse(args.map(|word| word.to_string_lossy().into_owned())) {
            Ok(options) => serve::run(options),
            Err(wrong) => {
                let _ = write!(std::io::stderr(), "{wrong}\n{USAGE}");
                std::process::exit(2);
            }
        },
    };
    if let Err(error) = result {
        let _ = writeln!(std::io::stderr(), "farshell-modal-emulator: {error}");
        std::process::exit(1);
    }
}
