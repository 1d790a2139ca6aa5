//! Making a sandbox of either kind.

use super::{FIRST, Reply, SECOND, apps};
use crate::images::Image;
use crate::sandbox::Sandbox;
use crate::world::World;
use crate::{life, refuse};
use farshell_modal_proto::client::network_access::NetworkAccessType;
use farshell_modal_proto::client::{self as proto, *};
use std::sync::Arc;
use tonic::{Response, Status};

/// All arguments together.
const ARGUMENTS: usize = 65_536;
const LONGEST_LIFE: u32 = 24 * 3600;

pub(super) fn second(world: &Arc<World>, wish: SandboxCreateV2Request) -> Reply<SandboxCreateV2Response> {
    let definition = wish.definition.unwrap_or_default();
    let ephemeral = wish.ephemeral_secrets.unwrap_or_default().contents;
    let own = definition.environment_variables.clone().unwrap_or_default().contents;
    let env = apps::variables(
        world,
        &definition.secret_ids,
        &wish.secret_sources,
        ephemeral.into_iter().chain(own),
    )?;
    if gpus(&definition).is_some() {
        return Err(Status::invalid_argument("GPUs are not supported on Sandboxes of the second kind"));
    }
    let sandbox = make(world, wish.app_id, definition, env, wish.tags, SECOND)?;
    Ok(Response::new(SandboxCreateV2Response {
        sandbox_id: sandbox.id.clone(),
        task_id: sandbox.task.clone(),
        metadata: Some(sandbox.metadata()),
        command_router_access: Some(CommandRouterAccess {
            jwt: token(world, &sandbox),
            url: world.router.borrow().clone(),
        }),
        sandbox_token: world.signer.sign_of_sandbox(&sandbox.id),
        ..Default::default()
    }))
}

pub(super) fn first(world: &Arc<World>, wish: SandboxCreateRequest) -> Reply<SandboxCreateResponse> {
    let definition = wish.definition.unwrap_or_default();
    let own = definition.environment_variables.clone().unwrap_or_default().contents;
    let env = apps::variables(world, &definition.secret_ids, &[], own)?;
    let sandbox = make(world, wish.app_id, definition, env, wish.tags, FIRST)?;
    Ok(Response::new(SandboxCreateResponse {
        sandbox_id: sandbox.id.clone(),
        metadata: Some(sandbox.metadata()),
    }))
}

/// Access to the router for that sandbox.
pub(super) fn token(world: &World, sandbox: &Sandbox) -> String {
    match world.faults.take(&["expired-jwt"], "") {
        Some(_) => world.signer.sign_expired(&sandbox.task),
        None => world.signer.sign(&sandbox.task, world.options.jwt),
    }
}

fn make(
    world: &Arc<World>,
    app: String,
    definition: proto::Sandbox,
    env: Vec<(String, String)>,
    tags: Vec<SandboxTag>,
    second: bool,
) -> Result<Arc<Sandbox>, Status> {
    check(&definition)?;
    let image = image(world, &definition.image_id)?;
    let created = world.moment();
    let sandbox = {
        let mut book = world.book();
        if !book.apps.values().any(|known| *known == app) {
            return Err(Status::not_found(format!("App with ID {app} not found.")));
        }
        let taken = definition.name.as_ref().is_some_and(|name| {
            book.sandboxes.iter().any(|other| {
                other.app == app && other.definition.name.as_ref() == Some(name) && other.result().is_none()
            })
        });
        if taken {
            let name = definition.name.unwrap_or_default();
            return Err(Status::already_exists(format!("Sandbox with name '{name}' already exists.")));
        }
        let dir = &world.options.dir;
        let sandbox = Arc::new(Sandbox::new(second, app, definition, image, env, tags, created, dir));
        book.sandboxes.push(Arc::clone(&sandbox));
        sandbox
    };
    tokio::spawn(life::lead(Arc::clone(world), Arc::clone(&sandbox)));
    Ok(sandbox)
}

/// What is asked for, as in `H100:2`. There is none here: it is only recorded.
pub(crate) fn gpus(definition: &proto::Sandbox) -> Option<String> {
    let wish = definition.resources.as_ref()?.gpu_config.as_ref()?;
    (wish.count > 0).then(|| format!("{}:{}", wish.gpu_type, wish.count))
}

fn image(world: &World, id: &str) -> Result<Arc<Image>, Status> {
    let image = world.images.find(id).ok_or_else(|| refuse::no_image(id))?;
    match image.built() {
        Some(_) => Ok(image),
        None => Err(Status::failed_precondition(format!("Image {id} is not built"))),
    }
}

/// What Modal would refuse, and what the emulator can't do.
fn check(definition: &proto::Sandbox) -> Result<(), Status> {
    let wrong = |why: String| Err(Status::invalid_argument(why));
    let arguments: usize = definition.entrypoint_args.iter().map(String::len).sum();
    if arguments > ARGUMENTS {
        return wrong(format!("Total length of entrypoint arguments is {arguments}, more than {ARGUMENTS}"));
    }
    if definition.timeout_secs > LONGEST_LIFE {
        return wrong(format!("timeout_secs must be at most {LONGEST_LIFE}"));
    }
    if definition.workdir.as_ref().is_some_and(|dir| !dir.is_empty() && !dir.starts_with('/')) {
        return wrong("workdir must be an absolute path".into());
    }
    let wish = definition.resources.clone().unwrap_or_default();
    if wish.memory_mb_max > 0 && wish.memory_mb_max < wish.memory_mb {
        return wrong("memory limit is less than the memory request".into());
    }
    if wish.milli_cpu_max > 0 && wish.milli_cpu_max < wish.milli_cpu {
        return wrong("cpu limit is less than the cpu request".into());
    }
    if wish.ephemeral_disk_mb > 0 {
        return wrong("Ephemeral disk requests are not supported on Sandboxes".into());
    }
    let ports = match &definition.open_ports_oneof {
        Some(sandbox::OpenPortsOneof::OpenPorts(specs)) => specs.ports.len(),
        None => 0,
    };
    let access = definition.network_access.clone().unwrap_or_default().network_access_type();
    if ports > 0 && (access == NetworkAccessType::Blocked || definition.block_network) {
        return wrong("Cannot open ports when the network is blocked".into());
    }
    let not_served = [
        (ports > 0, "Sandbox.open_ports"),
        (!definition.volume_mounts.is_empty(), "Sandbox.volume_mounts"),
        (!definition.mount_ids.is_empty(), "Sandbox.mount_ids"),
        (definition.enable_snapshot, "Sandbox.enable_snapshot"),
    ];
    match not_served.iter().find(|(asked, _)| *asked) {
        Some((_, what)) => Err(refuse::not_served(what)),
        None => Ok(()),
    }
}
