//! See the library.

use farshell_daytona_emulator::options::Options;
use farshell_daytona_emulator::{daemon, inside, serve};
use std::io::Write;

const USAGE: &str =
    "usage: farshell-daytona-emulator --dir DIR [--listen ADDRESS] [--key KEY] [--delay-ms N] [--minute-ms N]
                                 [--faults JSON] [--storm N]

With --storm one of N requests goes wrong. Prints its address once it listens, and ends when its standard input does.
";

fn main() {
    let mut args = std::env::args().skip(1).peekable();
    // What this program is inside of a sandbox.
    let inside = args.next_if(|word| word == "init" || word == "daemon");
    let result = match inside.as_deref() {
        Some("init") => inside::run(&args.collect::<Vec<_>>()),
        Some(_) => daemon::run(&args.collect::<Vec<_>>()),
        None => match Options::parse(args) {
            Ok(options) => serve::run(options),
            Err(wrong) => {
                let _ = write!(std::io::stderr(), "{wrong}\n{USAGE}");
                std::process::exit(2);
            }
        },
    };
    if let Err(error) = result {
        let _ = writeln!(std::io::stderr(), "farshell-daytona-emulator: {error}");
        std::process::exit(1);
    }
}
