//! The tools as the official Python client of the Model Context Protocol meets them: by pipes and by HTTP, in the
//! newest protocol and in the one before it, on this machine and in a container.
//!
//! The client is the one that `FARSHELL_TEST_MCP` names: see `scripts/rig`. What it does is in `client.py`.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]
#![expect(clippy::print_stderr, reason = "what is skipped is said")]

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

use rig::{World, finish, wait_until};
use std::process::{Child, Command, Stdio};

/// How the client comes to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Pipes,
    Http,
}

/// The value of a variable. Without it a test is skipped, which is said; where tests must run, it is a failure.
fn needed(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    if value.is_none() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{name} is not set");
        eprintln!("skipped: {name} is not set; see scripts/rig/README.md");
    }
    value
}

/// A server that is told to listen; gone at the end.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listening(world: &World) -> (Server, String) {
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    // A client in Python takes its time to come.
    command.env("FARSHELL_SERVER_IDLE", "600");
    let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut address = None;
    wait_until("the server's address", || {
        let said = world.call(&["server", "status", "--json"]);
        address = serde_json::from_str::<serde_json::Value>(&said.stdout)
            .ok()
            .and_then(|status| Some(status["listen"][0].as_str()?.to_owned()));
        address.is_some()
    });
    (server, address.unwrap())
}

/// Plays a story of `client.py`.
fn play(world: &World, way: Way, mode: &str, story: &str) {
    let Some(python) = needed("FARSHELL_TEST_MCP") else { return };
    let command = world.command(&[]);
    let chosen = command.get_envs().find(|(name, _)| *name == "TERMINAL_ENV").and_then(|(_, value)| value);
    let backend = chosen.map_or_else(|| "local".into(), |value| value.to_string_lossy().into_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/client.py");
    let mut player = Command::new(python);
    player.arg(script).arg(story).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            player.env(name, value);
        }
    }
    player
        .env("FARSHELL", command.get_program())
        .env("FARSHELL_MODE", mode)
        .env("FARSHELL_BACKEND", &backend);
    player.current_dir(world.work());
    let mut server = None;
    if way == Way::Http {
        let (serving, address) = listening(world);
        server = Some(serving);
        let token = std::fs::read_to_string(world.hermes().join("farshell/server/token")).unwrap();
        player.env("FARSHELL_URL", format!("http://{address}/mcp?backend={backend}"));
        player.env("FARSHELL_TOKEN", token.trim());
    }
    player.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = finish(player.spawn().unwrap());
    assert_eq!(said.code, 0, "{story}: {}\n{}", said.stdout, said.stderr);
    // What it has started in places is removed with the world, by whatever server answers then.
    world.call(&["env", "rm", "--all", "--force"]);
    drop(server);
}

/// The stories on this machine, in every way.
macro_rules! local {
    ($($story:ident)*) => {
        $(mod $story {
            use super::{Way, World, play};

            #[test]
            fn by_pipes() {
                play(&World::new(), Way::Pipes, "auto", stringify!($story));
            }

            #[test]
            fn by_pipes_with_a_greeting() {
                play(&World::new(), Way::Pipes, "legacy", stringify!($story));
            }

            #[test]
            fn by_http() {
                play(&World::new(), Way::Http, "auto", stringify!($story));
            }

            #[test]
            fn by_http_with_a_session() {
                play(&World::new(), Way::Http, "legacy", stringify!($story));
            }
        })*
    };
}

local!(every_tool progress cancellation gone approvals approvals_elsewhere many);

/// In a container, if there is an engine.
mod docker {
    use super::{Way, World, needed, play};

    fn world() -> Option<World> {
        // Not asked for without a client, so that one reason is said and not two.
        needed("FARSHELL_TEST_MCP")?;
        let (host, image) = (needed("FARSHELL_TEST_DOCKER")?, needed("FARSHELL_TEST_IMAGE")?);
        let world = World::new().with("DOCKER_HOST", &host).with("TERMINAL_ENV", "docker");
        std::fs::write(world.hermes().join("config.yaml"), format!("terminal:\n  docker_image: {image}\n"))
            .unwrap();
        Some(world)
    }

    #[test]
    fn every_tool_by_pipes() {
        let Some(world) = world() else { return };
        play(&world, Way::Pipes, "auto", "every_tool");
    }

    #[test]
    fn every_tool_by_http() {
        let Some(world) = world() else { return };
        play(&world, Way::Http, "legacy", "every_tool");
    }

    #[test]
    fn cancellation() {
        let Some(world) = world() else { return };
        play(&world, Way::Pipes, "legacy", "cancellation");
    }

    #[test]
    fn progress() {
        let Some(world) = world() else { return };
        play(&world, Way::Http, "auto", "progress");
    }
}
