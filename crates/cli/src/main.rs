//! The `farshell` program.
//!
//! | file | question |
//! |---|---|
//! | `args.rs` | what was typed? |
//! | `plan.rs`, `variables.rs` | what does it mean, with the settings? |
//! | `load.rs` | what are the settings? |
//! | `registry.rs` | which backends are there? |
//! | `run/`, `config.rs`, `doctor.rs`, `env.rs` | the subcommands |
//! | `output.rs` | how is it said? |

mod args;
mod config;
mod doctor;
mod env;
mod load;
mod output;
mod plan;
mod registry;
mod run;
mod variables;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use farshell_engine::Error;
use output::{Outcome, Stop, code};

fn main() {
    let code = match Cli::try_parse() {
        Ok(cli) => match dispatch(cli) {
            Ok(code) => code,
            Err(Stop::BrokenPipe) => code::BROKEN_PIPE,
            Err(Stop::Failed(error)) => {
                output::print_error(&error);
                code::FAILED
            }
        },
        Err(error) => usage(&error),
    };
    // Threads that wait for input or signals are left behind.
    std::process::exit(code);
}

fn dispatch(cli: Cli) -> Outcome {
    if cli.version || cli.long_version {
        output::print(&version(cli.long_version))?;
        return Ok(0);
    }
    match cli.command {
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Config(command)) => config::run(command),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Env(command)) => env::run(command),
        Some(Command::Completions { shell }) => completions(shell),
        None => {
            output::print(&Cli::command().render_help().to_string())?;
            Ok(code::USAGE)
        }
    }
}

/// Help that was asked for, or what is wrong with what was typed.
fn usage(error: &clap::Error) -> i32 {
    let asked = !error.use_stderr();
    let words: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    let run = words.first().is_some_and(|word| word == "run");
    if !asked && run && words.iter().any(|word| word == "--json") {
        let text = error.render().to_string();
        let message = text.trim().trim_start_matches("error: ");
        let failed = output::invalid("reading the command line", message);
        return match output::print_json(&output::error_json(&failed)) {
            Ok(()) => code::FAILED,
            Err(_) => code::BROKEN_PIPE,
        };
    }
    match error.print() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => code::BROKEN_PIPE,
        _ if asked => 0,
        // A caller of `run` must be able to tell this from the command's own codes.
        _ if run => code::FAILED,
        _ => code::USAGE,
    }
}

fn version(long: bool) -> String {
    let mut text = format!("farshell {}\n", env!("CARGO_PKG_VERSION"));
    if long {
        use farshell_protocol::hello::{OLDEST, VERSION};
        text.push_str(&format!("protocol {VERSION} (oldest understood: {OLDEST})\n"));
        for outpost in farshell_bundle::outposts() {
            text.push_str(&format!("outpost {} {}\n", outpost.arch, outpost.hash));
        }
    }
    text
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "farshell", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// One thread is enough for one command, and starts fastest.
fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("starting the runtime", e))
}
