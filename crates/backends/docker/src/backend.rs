//! [`Backend`] by an engine.

use crate::archive::Archive;
use crate::config::Config;
use crate::create::{Plan, other_user};
use crate::endpoint::{Address, Endpoint};
use crate::engine::{Container, Engine, Image};
use crate::error::{is_status, refusal};
use crate::extra::Extra;
use crate::install::{install, outpost_for, relative};
use crate::layout::{self, Layout, ROOT, Way};
use crate::place::DockerPlace;
use crate::{check, describe, kept, pull, survey};
use bollard::query_parameters::{CreateContainerOptions, UploadToContainerOptions};
use farshell_engine::backend::{
    Backend, BoxFuture, Capabilities, Finding, Found, News, Place, Progress, Spec, Support,
};
use farshell_engine::{Error, Kind, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// How long other processes may keep changing the container under us.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why an engine can't limit a container's disk, learned by asking once.
static NO_DISK_LIMIT: LazyLock<Mutex<HashMap<Address, String>>> = LazyLock::new(Mutex::default);

/// Containers of one engine. The engine is looked for when it is first needed, and again until it is found.
#[derive(Clone, Debug)]
pub struct Docker {
    config: Config,
    engine: Arc<OnceCell<Arc<Engine>>>,
}

impl Docker {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, engine: Arc::default() }
    }

    async fn engine(&self) -> Result<Arc<Engine>> {
        let engine =
            self.engine.get_or_try_init(|| async { Engine::reach(&self.config).await.map(Arc::new) });
        Ok(Arc::clone(engine.await?))
    }

    fn layout(&self, engine: &Engine, spec: &Spec) -> Layout {
        Layout::new(&self.config, &engine.endpoint, &spec.task)
    }

    fn place(&self, engine: &Arc<Engine>, layout: Layout, container: &Container) -> DockerPlace {
        let note = disk_refusal(&engine.endpoint);
        let limits = describe::limits(container, note.as_deref(), self.config.settings.container.disk_mb);
        DockerPlace::new(Arc::clone(engine), layout, container, limits)
    }

    /// Finds the container or makes it, and makes it run.
    async fn bring_up(&self, spec: &Spec, progress: &dyn Progress) -> Result<DockerPlace> {
        let engine = self.engine().await?;
        let layout = self.layout(&engine, spec);
        let extra = Extra::parse(&self.config.settings.extra_args)?;
        let mut maker = Maker::new(&self.config, &engine, &layout, &extra, spec);
        let deadline = Instant::now() + PATIENCE;
        let mut ours = false;
        loop {
            let Some(container) = engine.container(&layout.name).await? else {
                if Instant::now() >= deadline {
                    let message = "something keeps removing it";
                    return Err(Error::new(
                        Kind::Unavailable,
                        format!("making container {}", layout.name),
                        message,
                    ));
                }
                ours = maker.make(progress).await?;
                continue;
            };
            check_owner(&layout, &container)?;
            let status = container.state.status.as_str();
            if status == "removing" {
                survey::wait_gone(&engine, &container.id).await?;
                continue;
            }
            let same = container.label(layout::SPEC) == Some(spec.hash("docker").as_str());
            match status {
                "running" | "paused" | "restarting" if !same => {
                    let message = format!("container {} was made with other settings and runs", layout.name);
                    return Err(Error::new(Kind::SpecChanged, "preparing the environment", message)
                        .with_hint("remove the environment: what is kept of its files stays"));
                }
                // What is kept lies outside of it.
                "dead" => survey::remove(&engine, &container.id).await?,
                _ if !same => survey::remove(&engine, &container.id).await?,
                _ => {
                    let place = self.place(&engine, layout.clone(), &container);
                    // Whoever made it may have been interrupted before this.
                    let open = status == "created" && maker.fill(&container).await?;
                    let woken = async {
                        place.wake(Some(&container)).await?;
                        if open { kept::open_up(&engine, &container).await } else { Ok(()) }
                    };
                    match woken.await {
                        Ok(()) => return Ok(place),
                        Err(error) if error.kind == Kind::Unavailable && place.is_gone() => {}
                        Err(error) => {
                            // One that never ran is of no use to anybody.
                            if ours {
                                let _ = survey::remove(&engine, &container.id).await;
                            }
                            return Err(error);
                        }
                    }
                }
            }
        }
    }
}

/// Why the engine can't limit disks, if it was asked to.
fn disk_refusal(endpoint: &Endpoint) -> Option<String> {
    NO_DISK_LIMIT.lock().unwrap_or_else(PoisonError::into_inner).get(&endpoint.address).cloned()
}

/// A container of our name that is somebody else's is not touched.
fn check_owner(layout: &Layout, container: &Container) -> Result<()> {
    if container.label(layout::OWNER) == Some(layout.owner.as_str()) {
        return Ok(());
    }
    let message = format!("there is a container {} already, and it is not of this home", layout.name);
    Err(Error::new(Kind::AlreadyExists, "preparing the environment", message)
        .with_hint(format!("if nobody needs it: `docker rm -f {}`", layout.name)))
}

/// Makes one task's container.
struct Maker<'a> {
    config: &'a Config,
    engine: &'a Engine,
    layout: &'a Layout,
    extra: &'a Extra,
    spec: &'a Spec,
    /// The image, once it was looked at.
    image: Option<Image>,
}

impl<'a> Maker<'a> {
    fn new(
        config: &'a Config,
        engine: &'a Engine,
        layout: &'a Layout,
        extra: &'a Extra,
        spec: &'a Spec,
    ) -> Self {
        Self { config, engine, layout, extra, spec, image: None }
    }

    /// False: somebody else made it at the same moment, or is about to.
    async fn make(&mut self, progress: &dyn Progress) -> Result<bool> {
        let image = &self.config.settings.image;
        self.image = self.engine.image(image).await?;
        if self.image.is_none() {
            self.pull(progress).await?;
        }
        progress.say(&News { message: format!("making a container from {image}"), part: None });
        let mut way = if self.engine.shares_files() { Way::Shared } else { Way::Uploaded };
        let mut disk =
            self.config.settings.container.disk_mb.is_some() && disk_refusal(&self.engine.endpoint).is_none();
        let mut no_disk = None;
        let mut pulled = false;
        loop {
            let arch = self.arch(way).await?;
            let program = match way {
                Way::Shared => {
                    self.layout.make_shared()?;
                    if self.config.settings.container.persistent {
                        self.layout.make_kept()?;
                    }
                    Some(install(&self.config.home, outpost_for(&arch)?)?)
                }
                Way::Uploaded => None,
            };
            let volumes = self.image.as_ref().and_then(|image| image.config.as_ref()?.volumes.as_ref());
            let volumes: Vec<String> = volumes.into_iter().flat_map(BTreeMap::keys).cloned().collect();
            let plan = Plan {
                config: self.config,
                spec: self.spec,
                layout: self.layout,
                extra: self.extra,
                way,
                arch: &arch,
                program: program.as_deref(),
                volumes: &volumes,
                disk,
            };
            let options = CreateContainerOptions {
                name: Some(self.layout.name.clone()),
                platform: self.extra.platform.clone().unwrap_or_default(),
            };
            let body = plan.body()?;
            let making = survey::MAKING.read().await;
            let made = self.engine.api.create_container(Some(options), body).await;
            drop(making);
            let error = match made {
                Ok(made) => {
                    if let Some(message) = no_disk {
                        let mut known = NO_DISK_LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
                        known.insert(self.engine.endpoint.address.clone(), message);
                    }
                    self.heed(&made.id, &made.warnings).await?;
                    return Ok(true);
                }
                Err(error) => error,
            };
            let (status, message) = refusal(&error).map_or((0, String::new()), |(s, m)| (s, m.to_owned()));
            if status == 409 || message.contains("already in use") {
                // The name is taken before there is a container to look at.
                tokio::time::sleep(Duration::from_millis(20)).await;
                return Ok(false);
            }
            if way == Way::Shared && self.names_our_files(&message) {
                // The socket leads to an engine elsewhere.
                self.engine.note_elsewhere();
                way = Way::Uploaded;
            } else if status == 404 && message.to_lowercase().contains("image") && !pulled {
                pulled = true;
                self.pull(progress).await?;
            } else if disk && status != 0 {
                // Whatever it is: without this it either works, or says what it is.
                disk = false;
                no_disk = Some(message);
            } else {
                return Err(self.engine.explain(format!("making container {}", self.layout.name), error));
            }
        }
    }

    async fn pull(&mut self, progress: &dyn Progress) -> Result<()> {
        pull::pull(self.engine, self.config, self.extra.platform.as_deref(), progress).await?;
        self.image = self.engine.image(&self.config.settings.image).await?;
        Ok(())
    }

    async fn arch(&self, way: Way) -> Result<String> {
        match way {
            Way::Shared => Ok(std::env::consts::ARCH.to_owned()),
            Way::Uploaded => {
                let arch = self.engine.info().await?.architecture.unwrap_or_default();
                // As this build names it.
                Ok(outpost_for(&arch)?.arch.to_owned())
            }
        }
    }

    /// A refusal because of a path that only this machine has.
    fn names_our_files(&self, message: &str) -> bool {
        let home = self.config.home.to_string_lossy();
        message.contains(home.as_ref())
            && ["does not exist", "no such file", "not shared"]
                .iter()
                .any(|text| message.to_lowercase().contains(text))
    }

    /// A limit that the engine drops is an error: nobody would read a warning.
    async fn heed(&self, id: &str, warnings: &[String]) -> Result<()> {
        let Some(warning) = warnings.iter().find(|warning| warning.to_lowercase().contains("discarded"))
        else {
            return Ok(());
        };
        survey::remove(self.engine, id).await?;
        let message = format!("the engine can't keep a limit: {}", warning.trim());
        Err(Error::new(Kind::Unavailable, format!("making container {}", self.layout.name), message)
            .with_hint(
                "set the limit to 0 to do without it: container_cpu, container_memory, docker_pids_limit",
            ))
    }

    /// Puts into a new container what it needs before its first start. True if [`kept::open_up`] has to follow that.
    async fn fill(&mut self, container: &Container) -> Result<bool> {
        let uploaded = container.label(layout::WAY) == Some(Way::Uploaded.name());
        if self.image.is_none() {
            self.image = self.engine.image(&self.config.settings.image).await?;
        }
        let user = self.image.as_ref().and_then(|image| image.config.as_ref()?.user.clone());
        let other = other_user(self.config, self.extra, user.as_deref());
        if uploaded {
            let outpost = outpost_for(container.label(layout::ARCH).unwrap_or_default())?;
            let (dir, program) = relative(outpost);
            let archive = Archive::default()
                .dir("b", 0o755)
                .dir(&format!("b/{dir}"), 0o755)
                .file(&format!("b/{program}"), 0o755, outpost.bytes)
                .link(&format!("b/run-{}", outpost.arch), &program)
                .dir("d", 0o755)
                .dir("d/t", 0o1777);
            self.upload(&container.id, ROOT, archive).await?;
        } else if other {
            self.upload(&container.id, &format!("{ROOT}/d"), Archive::default().dir("t", 0o1777)).await?;
        }
        // Directories of this machine are open already; volumes and memory are root's.
        Ok(other && (uploaded || !self.config.settings.container.persistent))
    }

    async fn upload(&self, id: &str, path: &str, archive: Archive) -> Result<()> {
        upload(self.engine, id, path, archive).await
    }
}

pub(crate) async fn upload(engine: &Engine, id: &str, path: &str, archive: Archive) -> Result<()> {
    let options = UploadToContainerOptions { path: path.to_owned(), ..UploadToContainerOptions::default() };
    let body = bollard::body_full(archive.finish().into());
    match engine.api.upload_to_container(id, Some(options), body).await {
        Ok(()) => Ok(()),
        Err(error) if is_status(&error, 404) && engine.container(id).await?.is_none() => Ok(()),
        Err(error) => Err(engine.explain(format!("putting files into {path} of the container"), error)),
    }
}

impl Backend for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            limits_cpu: Support::Enforced,
            limits_memory: Support::Enforced,
            // Where the engine's storage driver can; each place says whether it does.
            limits_disk: Support::Approximated,
            limits_processes: Support::Enforced,
            isolates: true,
            persists_files: true,
            suspends: true,
        }
    }

    fn provision<'a>(
        &'a self,
        spec: &'a Spec,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(async move { Ok(Box::new(self.bring_up(spec, progress).await?) as Box<dyn Place>) })
    }

    fn find<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(async move {
            let engine = self.engine().await?;
            let layout = self.layout(&engine, spec);
            let container = engine.container(&layout.name).await?;
            // Somebody else's container of that name is not the task's place.
            let container = container.filter(|container| {
                check_owner(&layout, container).is_ok() && container.state.status != "removing"
            });
            Ok(container.map(|c| Box::new(self.place(&engine, layout, &c)) as Box<dyn Place>))
        })
    }

    fn check(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async move {
            match self.engine().await {
                Ok(engine) => check::findings(&engine, &self.config).await,
                Err(error) => vec![check::problem(&error)],
            }
        })
    }

    fn survey(&self) -> BoxFuture<'_, Result<Vec<Found>>> {
        Box::pin(async move {
            let engine = self.engine().await?;
            survey::all(&engine, &layout::owner(&self.config, &engine.endpoint)).await
        })
    }

    fn kept_files<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let engine = self.engine().await.ok()?;
            kept::place_of(&engine, &self.layout(&engine, spec)).await
        })
    }

    fn remove_files<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let engine = self.engine().await?;
            kept::remove(&engine, &self.layout(&engine, spec), &self.config).await
        })
    }

    fn remove_found<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let engine = self.engine().await?;
            // Looked at again: an id that was made up must not cost anybody a container.
            let owner = layout::owner(&self.config, &engine.endpoint);
            if let Some(volume) = found.id.strip_prefix(survey::VOLUME) {
                return survey::remove_volume(&engine, &owner, volume).await;
            }
            match engine.container(&found.id).await? {
                None => {}
                Some(container) if container.label(layout::OWNER) == Some(owner.as_str()) => {
                    survey::remove(&engine, &container.id).await?;
                }
                Some(_) => {
                    let message = "the container is not of this home";
                    return Err(Error::new(Kind::NotFound, format!("removing {}", found.name), message));
                }
            }
            if found.name.starts_with("farshell-") && !found.name.contains('/') {
                let _ = std::fs::remove_dir_all(layout::private_dir(&self.config, &found.name));
            }
            Ok(())
        })
    }
}
