//! Who is asking, apps and secrets.

use super::Reply;
use crate::world::{BUILDER, World};
use farshell_modal_proto::client::*;
use std::time::Duration;
use tonic::{Response, Status};

/// As Modal's are, more or less: clients refresh it at half of that.
const AUTH_TOKEN: Duration = Duration::from_secs(1200);

pub(super) fn hello() -> Reply<ClientHelloResponse> {
    Ok(Response::new(ClientHelloResponse { image_builder_version: BUILDER.into(), ..Default::default() }))
}

pub(super) fn workspace(stranger: bool) -> Reply<WorkspaceNameLookupResponse> {
    let name = if stranger { "strangers" } else { "emulated" };
    Ok(Response::new(WorkspaceNameLookupResponse { workspace_name: name.into(), username: name.into() }))
}

pub(super) fn auth_token(world: &World) -> Reply<AuthTokenGetResponse> {
    Ok(Response::new(AuthTokenGetResponse { token: world.signer.sign("auth", AUTH_TOKEN) }))
}

pub(super) fn environment(wish: EnvironmentGetOrCreateRequest) -> Reply<EnvironmentGetOrCreateResponse> {
    let name = if wish.deployment_name.is_empty() { "main".into() } else { wish.deployment_name };
    let settings = EnvironmentSettings { image_builder_version: BUILDER.into(), ..Default::default() };
    Ok(Response::new(EnvironmentGetOrCreateResponse {
        environment_id: format!("en-{name}"),
        metadata: Some(EnvironmentMetadata { name, settings: Some(settings) }),
    }))
}

pub(super) fn app(world: &World, wish: AppGetOrCreateRequest) -> Reply<AppGetOrCreateResponse> {
    let name = wish.app_name.clone();
    let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
        return Err(Status::invalid_argument(format!("Invalid app name: {name:?}")));
    }
    let creating = wish.object_creation_type();
    let mut book = world.book();
    let known = book.apps.get(&name).cloned();
    let app_id = match (known, creating) {
        (Some(_), ObjectCreationType::CreateFailIfExists) => {
            return Err(Status::already_exists(format!("App {name} already exists")));
        }
        (Some(id), _) => id,
        (None, ObjectCreationType::Unspecified) => {
            return Err(Status::not_found(format!("App '{name}' not found in environment 'main'")));
        }
        (None, _) => {
            let id = crate::ids::short("ap");
            book.apps.insert(name.clone(), id.clone());
            id
        }
    };
    let metadata = AppHandleMetadata {
        description: name,
        app_id: app_id.clone(),
        environment_name: wish.environment_name,
    };
    Ok(Response::new(AppGetOrCreateResponse { app_id, handle_metadata: Some(metadata) }))
}

pub(super) fn secret(world: &World, wish: SecretGetOrCreateRequest) -> Reply<SecretGetOrCreateResponse> {
    if let Some(bad) = wish.env_dict.keys().find(|name| !is_name(name)) {
        return Err(Status::invalid_argument(format!("Invalid environment variable name: {bad:?}")));
    }
    let mut book = world.book();
    let known = book.secret_names.get(&wish.deployment_name).cloned();
    let secret_id = match known {
        Some(id) => id,
        None if wish.object_creation_type() == ObjectCreationType::Unspecified => {
            return Err(Status::not_found(format!("Secret '{}' not found", wish.deployment_name)));
        }
        None => {
            let id = crate::ids::short("st");
            book.secrets.insert(id.clone(), wish.env_dict.into_iter().collect());
            if !wish.deployment_name.is_empty() {
                book.secret_names.insert(wish.deployment_name.clone(), id.clone());
            }
            id
        }
    };
    let metadata = SecretMetadata { name: wish.deployment_name };
    Ok(Response::new(SecretGetOrCreateResponse { secret_id, metadata: Some(metadata) }))
}

fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Variables from secrets by id, from sources, and from a map: later ones win.
pub(crate) fn variables(
    world: &World,
    ids: &[String],
    sources: &[SecretSource],
    map: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<(String, String)>, Status> {
    use secret_source::Source;
    let secret = |id: &String| {
        let found = world.book().secrets.get(id).cloned();
        found.ok_or_else(|| Status::not_found(format!("Secret with ID {id} not found.")))
    };
    let mut all = Vec::new();
    for id in ids {
        all.extend(secret(id)?);
    }
    for source in sources {
        match &source.source {
            Some(Source::SecretId(id)) => all.extend(secret(id)?),
            Some(Source::Env(env)) => all.extend(env.contents.clone()),
            None => {}
        }
    }
    all.extend(map);
    match all.iter().find(|(name, value)| !is_name(name) || value.contains('\0')) {
        Some((bad, _)) => Err(Status::invalid_argument(format!("Invalid environment variable: {bad:?}"))),
        None => Ok(all),
    }
}
