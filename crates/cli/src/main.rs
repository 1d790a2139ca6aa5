//! The `farshell` program.
//!
//! | file | question |
//! |---|---|
//! | `args/` | what was typed? |
//! | `reach.rs`, `ids.rs` | where is the server, and which process is meant? |
//! | `run/`, `attach.rs`, `terminal/` | running a command; this terminal connected to that of a process |
//! | `cp/` | copying files and directories |
//! | `ps.rs`, `logs.rs`, `steer.rs` | processes |
//! | `tool.rs` | the agent's tools |
//! | `ask.rs`, `approvals.rs`, `audit.rs` | what may run, and what did |
//! | `env.rs`, `events.rs`, `gc.rs` | environments, what happened, what was left behind |
//! | `mcp.rs` | the tools for a client that speaks MCP through our pipes |
//! | `serve.rs`, `server.rs`, `registry.rs` | being the server, and with which backends; looking at it |
//! | `config.rs`, `doctor.rs`, `load.rs` | settings |
//! | `input.rs`, `writer.rs`, `signals.rs` | what comes in here, what goes out, and what interrupts |
//! | `output.rs`, `table.rs`, `times.rs`, `progress.rs` | how is it said? |

mod approvals;
mod args;
mod ask;
mod attach;
mod audit;
mod config;
mod cp;
mod doctor;
mod env;
mod events;
mod gc;
mod ids;
mod input;
mod load;
mod logs;
mod mcp;
mod output;
mod password;
mod progress;
mod ps;
mod reach;
mod registry;
mod run;
mod serve;
mod server;
mod signals;
mod steer;
mod table;
mod terminal;
mod times;
mod tool;
mod writer;

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
                code::of(&error)
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
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Shell(args)) => attach::shell(&args),
        Some(Command::Cp(args)) => cp::run(&args),
        Some(Command::Ps(args)) => ps::run(&args),
        Some(Command::Logs(args)) => logs::run(&args),
        Some(Command::Wait(args)) => steer::wait(&args),
        Some(Command::Send(args)) => steer::send(&args),
        Some(Command::Kill(args)) => steer::kill(&args),
        Some(Command::Signal(args)) => steer::signal(&args),
        Some(Command::Attach(args)) => attach::attach(&args),
        Some(Command::Approve(args)) => approvals::answer(&args),
        Some(Command::Approvals(args)) => approvals::list(&args),
        Some(Command::Audit(args)) => audit::run(&args),
        Some(Command::Env(command)) => env::run(&command),
        Some(Command::Events(args)) => events::run(&args),
        Some(Command::Gc(args)) => gc::run(&args),
        Some(Command::Tool(args)) => tool::call(&args),
        Some(Command::Tools(args)) => tool::list(&args),
        Some(Command::Mcp(args)) => mcp::run(&args),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Server(command)) => server::run(&command),
        Some(Command::Config(command)) => config::run(command),
        Some(Command::Doctor(args)) => doctor::run(&args),
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
        let failed = output::api_error(output::invalid("reading the command line", message));
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
