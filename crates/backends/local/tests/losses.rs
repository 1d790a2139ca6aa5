//! Connections that are lost again and again, each after the outpost has heard a request and before its answer is heard.
#![expect(clippy::unwrap_used, reason = "tests")]

use farshell_engine::backend::{Backend, BoxFuture, ByteStream, Identity, Place, Spec, TaskName};
use farshell_engine::client::{Outpost, new_process_id};
use farshell_engine::{Kind, Result};
use farshell_protocol::process::{Start, Surroundings, What};
use farshell_protocol::session::{Mode, OpenSession};
use farshell_protocol::{ProcessId, SessionName};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A place to which so many connections are lost.
#[derive(Debug)]
struct Stormy {
    place: Box<dyn Place>,
    left: Arc<AtomicU32>,
}

impl Place for Stormy {
    fn identity(&self) -> Identity {
        self.place.identity()
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async move {
            let stream = self.place.connect().await?;
            let less = |left: u32| left.checked_sub(1);
            let lost = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            Ok(if lost.is_ok() { cut(stream) } else { stream })
        })
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        self.place.destroy()
    }
}

/// The stream, until the first answer after the greeting.
fn cut(stream: ByteStream) -> ByteStream {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let ByteStream { read: mut from_outpost, write: mut to_outpost } = stream;
    let (mut from_engine, mut to_engine) = tokio::io::split(ours);
    tokio::spawn(async move {
        let up = async move { drop(tokio::io::copy(&mut from_engine, &mut to_outpost).await) };
        let down = async move {
            let mut buffer = [0; 1 << 12];
            let greeting = from_outpost.read(&mut buffer).await.unwrap();
            to_engine.write_all(&buffer[..greeting]).await.unwrap();
            drop(from_outpost.read(&mut buffer).await);
        };
        tokio::select! { () = up => {} () = down => {} }
    });
    let (read, write) = tokio::io::split(theirs);
    ByteStream { read: Box::new(read), write: Box::new(write) }
}

struct Rig {
    outpost: Outpost,
    left: Arc<AtomicU32>,
    dir: tempfile::TempDir,
}

impl Rig {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let local = farshell_local::Local::new(farshell_local::Config { home: dir.path().join("home") });
        let spec = Spec {
            task: TaskName::new("losses").unwrap(),
            lease: Duration::from_secs(60),
            settings: Default::default(),
        };
        let place = local.provision(&spec, &()).await.unwrap();
        let left = Arc::new(AtomicU32::new(0));
        let outpost = Outpost::new(Arc::new(Stormy { place, left: Arc::clone(&left) }));
        Self { outpost, left, dir }
    }

    /// From now on, so many connections are lost.
    fn storm(&self, losses: u32) {
        self.outpost.disconnect();
        self.left.store(losses, Ordering::SeqCst);
    }

    fn start(&self) -> Start {
        let text = format!("echo ran >>{}/ran; exec sleep 1000", self.dir.path().display());
        let argv = ["sh", "-c", &text].map(|word| word.as_bytes().to_vec().into()).to_vec();
        Start::new(new_process_id(), What::Exec { argv, surroundings: Surroundings::default() })
    }

    /// Waits until so many processes have begun, and says how many have.
    async fn ran(&self, wanted: usize) -> usize {
        loop {
            let text = std::fs::read_to_string(self.dir.path().join("ran")).unwrap_or_default();
            if text.lines().count() >= wanted {
                return text.lines().count();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self, processes: Vec<ProcessId>) {
        self.storm(0);
        self.outpost.kill(processes, Duration::ZERO).await.unwrap();
        self.outpost.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn what_may_be_asked_twice_is_asked_until_it_is_answered() {
    let rig = Rig::new().await;
    let name = SessionName::new("s").unwrap();
    let open = OpenSession {
        name: name.clone(),
        mode: Mode::Live,
        env: Vec::new(),
        clear_env: false,
        cwd: None,
        init_files: Vec::new(),
    };
    rig.storm(4);
    rig.outpost.open_session(open).await.unwrap();
    rig.storm(4);
    assert_eq!(rig.outpost.sessions().await.unwrap().len(), 1);
    rig.storm(4);
    rig.outpost.close_session(name.clone()).await.unwrap();
    assert_eq!(rig.outpost.sessions().await.unwrap().len(), 0);
    // Without a loss nothing is taken for done that was not there.
    assert_eq!(rig.outpost.close_session(name).await.unwrap_err().kind, Kind::NotFound);
    rig.storm(100);
    assert_eq!(rig.outpost.sessions().await.unwrap_err().kind, Kind::Disconnected);
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn what_is_started_is_started_once() {
    let rig = Rig::new().await;
    let (first, second) = (rig.start(), rig.start());
    let ids = vec![first.id.clone(), second.id.clone()];
    rig.storm(4);
    assert_eq!(rig.outpost.start(first).await.unwrap().id, ids[0]);
    assert_eq!(rig.ran(1).await, 1);
    rig.storm(100);
    assert_eq!(rig.outpost.start(second).await.unwrap_err().kind, Kind::UnknownOutcome);
    assert_eq!(rig.ran(2).await, 2);
    rig.end(ids).await;
}
