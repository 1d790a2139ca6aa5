//! All that the emulator knows.

use crate::faults::Faults;
use crate::images::{Built, Image, Images, State};
use crate::jwt::Signer;
use crate::layers::Layers;
use crate::options::Options;
use crate::refuse;
use crate::sandbox::{Sandbox, result};
use farshell_modal_proto::client::generic_result::GenericStatus;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OnceCell, watch};
use tonic::Status;

/// After this version no client adds commands of its own to an image.
pub(crate) const BUILDER: &str = "2025.06";

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) faults: Faults,
    pub(crate) signer: Signer,
    pub(crate) layers: Layers,
    pub(crate) images: Images,
    /// Where the router is now.
    pub(crate) router: watch::Sender<String>,
    /// Of a round trip, on connections that are made from now on.
    pub(crate) latency: watch::Sender<Duration>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) apps: BTreeMap<String, String>,
    pub(crate) secrets: HashMap<String, Vec<(String, String)>>,
    /// Of secrets that have one.
    pub(crate) secret_names: HashMap<String, String>,
    /// In the order they were made.
    pub(crate) sandboxes: Vec<Arc<Sandbox>>,
    /// By the caller's own id.
    pub(crate) snapshots: HashMap<String, Arc<OnceCell<String>>>,
    /// How often each was called.
    pub(crate) calls: BTreeMap<String, u64>,
    last: f64,
}

impl World {
    pub(crate) fn new(options: Options) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(options.dir.join("sandboxes"))?;
        crate::cgroup::sweep();
        Ok(Arc::new(Self {
            layers: Layers::new(&options.dir)?,
            faults: Faults::default(),
            signer: Signer::new(),
            images: Images::default(),
            router: watch::Sender::default(),
            latency: watch::Sender::new(options.latency),
            book: Mutex::default(),
            options,
        }))
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To whoever reads its log.
    pub(crate) fn say(&self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// No two are the same: a list is paged by it.
    pub(crate) fn moment(&self) -> f64 {
        let mut book = self.book();
        book.last = now().max(book.last + 1e-5);
        book.last
    }

    pub(crate) fn sandbox(&self, id: &str, second: bool) -> Result<Arc<Sandbox>, Status> {
        let book = self.book();
        let found = book.sandboxes.iter().find(|sandbox| sandbox.id == id && sandbox.second == second);
        found.cloned().ok_or_else(|| refuse::no_sandbox(id))
    }

    /// One that has not ended.
    pub(crate) fn task(&self, id: &str) -> Result<Arc<Sandbox>, Status> {
        let book = self.book();
        let found = book.sandboxes.iter().find(|sandbox| sandbox.task == id && sandbox.result().is_none());
        found.cloned().ok_or_else(|| refuse::no_task(id))
    }

    /// The file system of a sandbox as it is, as an image that lasts so many seconds, or for ever.
    pub(crate) async fn snapshot(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        ttl: Option<u32>,
    ) -> io::Result<String> {
        let built = sandbox
            .image()
            .and_then(|image| image.built())
            .ok_or_else(|| io::Error::other("the image was not built"))?;
        let (world, owner) = (Arc::clone(self), Arc::clone(sandbox));
        let copying = tokio::task::spawn_blocking(move || -> io::Result<Built> {
            let Some(place) = owner.place.get() else {
                // It never ran: it is what its image is.
                return Ok(built);
            };
            let _still = owner.result().is_none().then(|| place.cgroup.freeze());
            let stack = world.layers.freeze(&built.stack, &place.trees)?;
            Ok(Built { stack, ..built })
        });
        let built = copying.await.map_err(io::Error::other)??;
        let expires = ttl.map(|secs| Instant::now() + self.options.second * secs);
        let image = Image::new(State::Built(built), expires);
        self.images.add(&image);
        Ok(image.id.clone())
    }

    /// Ends everything, at the end of the emulator.
    pub(crate) async fn end(&self) {
        let all: Vec<_> = self.book().sandboxes.clone();
        for sandbox in &all {
            // Nobody will ask for it.
            sandbox.exit_snapshot.send_replace(crate::sandbox::ExitSnapshot::Off);
            sandbox.want(result(GenericStatus::Terminated, 137, ""));
        }
        for sandbox in &all {
            let _ = sandbox.done.subscribe().wait_for(|done| *done).await;
        }
        self.images.clear();
        self.book().sandboxes.clear();
        drop(all);
        for name in ["sandboxes", "layers", "host"] {
            let _ = std::fs::remove_dir_all(self.options.dir.join(name));
        }
    }
}

pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
