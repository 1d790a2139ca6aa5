//! The control plane. Each call is in the file of what it is about; here they only have their names.

mod apps;
mod create;
mod images;
mod logs;
mod sandboxes;

pub(crate) use apps::variables;
pub(crate) use create::gpus;

use crate::calls::Stranger;
use crate::world::World;
use farshell_modal_proto::client::modal_client_server::ModalClient;
use farshell_modal_proto::client::*;
use futures_util::stream::BoxStream;
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[derive(Clone, Debug)]
pub(crate) struct Client(pub(crate) Arc<World>);

type Reply<T> = Result<Response<T>, Status>;
const FIRST: bool = false;
const SECOND: bool = true;

#[tonic::async_trait]
impl ModalClient for Client {
    async fn client_hello(&self, _: Request<()>) -> Reply<ClientHelloResponse> {
        apps::hello()
    }

    async fn workspace_name_lookup(&self, request: Request<()>) -> Reply<WorkspaceNameLookupResponse> {
        apps::workspace(request.extensions().get::<Stranger>().is_some())
    }

    async fn auth_token_get(&self, _: Request<AuthTokenGetRequest>) -> Reply<AuthTokenGetResponse> {
        apps::auth_token(&self.0)
    }

    async fn environment_get_or_create(
        &self,
        request: Request<EnvironmentGetOrCreateRequest>,
    ) -> Reply<EnvironmentGetOrCreateResponse> {
        apps::environment(request.into_inner())
    }

    async fn app_get_or_create(
        &self,
        request: Request<AppGetOrCreateRequest>,
    ) -> Reply<AppGetOrCreateResponse> {
        apps::app(&self.0, request.into_inner())
    }

    async fn secret_get_or_create(
        &self,
        request: Request<SecretGetOrCreateRequest>,
    ) -> Reply<SecretGetOrCreateResponse> {
        apps::secret(&self.0, request.into_inner())
    }

    async fn image_get_or_create(
        &self,
        request: Request<ImageGetOrCreateRequest>,
    ) -> Reply<ImageGetOrCreateResponse> {
        images::get_or_create(&self.0, request.into_inner())
    }

    type ImageJoinStreamingStream = BoxStream<'static, Result<ImageJoinStreamingResponse, Status>>;

    async fn image_join_streaming(
        &self,
        request: Request<ImageJoinStreamingRequest>,
    ) -> Reply<Self::ImageJoinStreamingStream> {
        images::join(&self.0, &request.into_inner())
    }

    async fn image_from_id(&self, request: Request<ImageFromIdRequest>) -> Reply<ImageFromIdResponse> {
        images::from_id(&self.0, request.into_inner())
    }

    async fn image_delete(&self, request: Request<ImageDeleteRequest>) -> Reply<()> {
        images::delete(&self.0, &request.into_inner())
    }

    async fn sandbox_create_v2(
        &self,
        request: Request<SandboxCreateV2Request>,
    ) -> Reply<SandboxCreateV2Response> {
        create::second(&self.0, request.into_inner())
    }

    async fn sandbox_create(&self, request: Request<SandboxCreateRequest>) -> Reply<SandboxCreateResponse> {
        create::first(&self.0, request.into_inner())
    }

    async fn sandbox_get_task_id_v2(
        &self,
        request: Request<SandboxGetTaskIdRequest>,
    ) -> Reply<SandboxGetTaskIdResponse> {
        sandboxes::task_id(&self.0, request.into_inner(), SECOND).await
    }

    async fn sandbox_get_task_id(
        &self,
        request: Request<SandboxGetTaskIdRequest>,
    ) -> Reply<SandboxGetTaskIdResponse> {
        sandboxes::task_id(&self.0, request.into_inner(), FIRST).await
    }

    async fn sandbox_get_command_router_access(
        &self,
        request: Request<SandboxGetCommandRouterAccessRequest>,
    ) -> Reply<SandboxGetCommandRouterAccessResponse> {
        sandboxes::access_second(&self.0, request.into_inner())
    }

    async fn task_get_command_router_access(
        &self,
        request: Request<TaskGetCommandRouterAccessRequest>,
    ) -> Reply<TaskGetCommandRouterAccessResponse> {
        sandboxes::access_first(&self.0, &request.into_inner())
    }

    async fn sandbox_wait_v2(&self, request: Request<SandboxWaitRequest>) -> Reply<SandboxWaitResponse> {
        sandboxes::wait(&self.0, request.into_inner(), SECOND).await
    }

    async fn sandbox_wait(&self, request: Request<SandboxWaitRequest>) -> Reply<SandboxWaitResponse> {
        sandboxes::wait(&self.0, request.into_inner(), FIRST).await
    }

    async fn sandbox_terminate_v2(
        &self,
        request: Request<SandboxTerminateRequest>,
    ) -> Reply<SandboxTerminateResponse> {
        sandboxes::terminate(&self.0, &request.into_inner(), SECOND)
    }

    async fn sandbox_terminate(
        &self,
        request: Request<SandboxTerminateRequest>,
    ) -> Reply<SandboxTerminateResponse> {
        sandboxes::terminate(&self.0, &request.into_inner(), FIRST)
    }

    async fn sandbox_list_v2(&self, request: Request<SandboxListRequest>) -> Reply<SandboxListResponse> {
        sandboxes::list(&self.0, &request.into_inner(), SECOND)
    }

    async fn sandbox_list(&self, request: Request<SandboxListRequest>) -> Reply<SandboxListResponse> {
        sandboxes::list(&self.0, &request.into_inner(), FIRST)
    }

    async fn sandbox_tags_get_v2(
        &self,
        request: Request<SandboxTagsGetRequest>,
    ) -> Reply<SandboxTagsGetResponse> {
        sandboxes::tags(&self.0, &request.into_inner(), SECOND)
    }

    async fn sandbox_tags_get(
        &self,
        request: Request<SandboxTagsGetRequest>,
    ) -> Reply<SandboxTagsGetResponse> {
        sandboxes::tags(&self.0, &request.into_inner(), FIRST)
    }

    async fn sandbox_tags_set_v2(&self, request: Request<SandboxTagsSetRequest>) -> Reply<()> {
        sandboxes::set_tags(&self.0, request.into_inner(), SECOND)
    }

    async fn sandbox_tags_set(&self, request: Request<SandboxTagsSetRequest>) -> Reply<()> {
        sandboxes::set_tags(&self.0, request.into_inner(), FIRST)
    }

    async fn sandbox_get_from_name_v2(
        &self,
        request: Request<SandboxGetFromNameRequest>,
    ) -> Reply<SandboxGetFromNameResponse> {
        sandboxes::from_name(&self.0, &request.into_inner(), SECOND)
    }

    async fn sandbox_get_from_name(
        &self,
        request: Request<SandboxGetFromNameRequest>,
    ) -> Reply<SandboxGetFromNameResponse> {
        sandboxes::from_name(&self.0, &request.into_inner(), FIRST)
    }

    async fn sandbox_get_exit_snapshot_v2(
        &self,
        request: Request<SandboxGetExitSnapshotRequest>,
    ) -> Reply<SandboxGetExitSnapshotResponse> {
        sandboxes::exit_snapshot(&self.0, request.into_inner(), SECOND).await
    }

    async fn sandbox_get_exit_snapshot(
        &self,
        request: Request<SandboxGetExitSnapshotRequest>,
    ) -> Reply<SandboxGetExitSnapshotResponse> {
        sandboxes::exit_snapshot(&self.0, request.into_inner(), FIRST).await
    }

    async fn sandbox_snapshot_fs(
        &self,
        request: Request<SandboxSnapshotFsRequest>,
    ) -> Reply<SandboxSnapshotFsResponse> {
        sandboxes::snapshot(&self.0, request.into_inner()).await
    }

    type SandboxGetLogsStream = BoxStream<'static, Result<TaskLogsBatch, Status>>;

    async fn sandbox_get_logs(
        &self,
        request: Request<SandboxGetLogsRequest>,
    ) -> Reply<Self::SandboxGetLogsStream> {
        logs::read(&self.0, request.into_inner()).await
    }

    async fn sandbox_stdin_write(
        &self,
        request: Request<SandboxStdinWriteRequest>,
    ) -> Reply<SandboxStdinWriteResponse> {
        logs::write(&self.0, request.into_inner()).await
    }
}
