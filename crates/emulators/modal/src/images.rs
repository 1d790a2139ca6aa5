//! Images: tags that were pulled, what was built on them, and snapshots.

use crate::layers::Stack;
use crate::world::World;
use farshell_modal_proto::client as proto;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// What every image has, unless it says otherwise.
const ENV: &[(&str, &str)] = &[
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
];

#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) state: watch::Sender<State>,
    /// What building it said.
    pub(crate) lines: Mutex<Vec<String>>,
    /// When a snapshot is over.
    expires: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Building,
    Built(Built),
    Failed(String),
}

/// What a sandbox gets from its image.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) stack: Stack,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: Option<String>,
}

impl Built {
    pub(crate) fn new(stack: Stack) -> Self {
        let env = ENV.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { stack, env, workdir: None }
    }
}

impl Image {
    pub(crate) fn new(state: State, expires: Option<Instant>) -> Arc<Self> {
        Arc::new(Self {
            id: crate::ids::short("im"),
            state: watch::Sender::new(state),
            lines: Mutex::default(),
            expires,
        })
    }

    pub(crate) fn built(&self) -> Option<Built> {
        match &*self.state.borrow() {
            State::Built(built) => Some(built.clone()),
            _ => None,
        }
    }

    pub(crate) fn stack(&self) -> Option<Stack> {
        self.built().map(|built| built.stack)
    }

    pub(crate) fn env(&self) -> Vec<(String, String)> {
        self.built().map(|built| built.env).unwrap_or_default()
    }

    pub(crate) fn workdir(&self) -> Option<String> {
        self.built().and_then(|built| built.workdir)
    }

    pub(crate) fn say(&self, line: impl Into<String>) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    /// Unset while it is being built.
    pub(crate) fn result(&self) -> Option<proto::GenericResult> {
        use proto::generic_result::GenericStatus as Kind;
        match &*self.state.borrow() {
            State::Building => None,
            State::Built(_) => Some(crate::sandbox::result(Kind::Success, 0, "")),
            State::Failed(why) => Some(crate::sandbox::result(Kind::Failure, 1, why)),
        }
    }

    pub(crate) fn metadata(&self) -> proto::ImageMetadata {
        proto::ImageMetadata {
            workdir: self.workdir(),
            image_builder_version: Some(crate::world::BUILDER.into()),
            ..Default::default()
        }
    }
}

/// All images, by id, and by what they were built from.
#[derive(Debug, Default)]
pub(crate) struct Images {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    ids: HashMap<String, Arc<Image>>,
    recipes: HashMap<String, Arc<Image>>,
}

impl Images {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are over are gone.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Image>> {
        let mut book = self.book();
        let now = Instant::now();
        book.ids.retain(|_, image| image.expires.is_none_or(|end| now < end));
        book.ids.get(id).cloned()
    }

    pub(crate) fn add(&self, image: &Arc<Image>) {
        self.book().ids.insert(image.id.clone(), Arc::clone(image));
    }

    pub(crate) fn remove(&self, id: &str) -> bool {
        let mut book = self.book();
        book.recipes.retain(|_, image| image.id != id);
        book.ids.remove(id).is_some()
    }

    /// Those that nobody has built.
    pub(crate) fn snapshots(&self) -> Vec<String> {
        let book = self.book();
        let built = |id: &String| book.recipes.values().any(|image| image.id == *id);
        let mut all: Vec<String> = book.ids.keys().filter(|id| !built(id)).cloned().collect();
        all.sort();
        all
    }

    /// The layers of all that are not in use otherwise are removed.
    pub(crate) fn clear(&self) {
        *self.book() = Book::default();
    }

    /// The image of that recipe, built now if there is none.
    pub(crate) fn get_or_build(&self, world: &Arc<World>, recipe: proto::Image, anew: bool) -> Arc<Image> {
        // A map in it may be written in any order; the worst that does is to build twice.
        let key = format!("{recipe:?}");
        let image = {
            let mut book = self.book();
            let known = book.recipes.get(&key).filter(|_| !anew);
            if let Some(known) = known.filter(|known| !matches!(*known.state.borrow(), State::Failed(_))) {
                return Arc::clone(known);
            }
            let image = Image::new(State::Building, None);
            book.ids.insert(image.id.clone(), Arc::clone(&image));
            book.recipes.insert(key, Arc::clone(&image));
            image
        };
        let world = Arc::clone(world);
        let building = Arc::clone(&image);
        tokio::spawn(async move {
            let state = match crate::build::build(&world, &building, &recipe).await {
                Ok(built) => State::Built(built),
                Err(why) => State::Failed(why),
            };
            building.state.send_replace(state);
        });
        image
    }
}
