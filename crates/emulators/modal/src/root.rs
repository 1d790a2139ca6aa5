//! A sandbox that runs: its namespace, and the connection to the first process in there.

use crate::cgroup::Cgroup;
use crate::process::Process;
use crate::wire::{Event, Order, Setup, Spawn, receive, send};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

/// How long a sandbox may take to come up or go down. A loaded machine takes a second.
const PATIENCE: Duration = Duration::from_secs(30);

type Answer = io::Result<Option<OwnedFd>>;

#[derive(Debug)]
pub(crate) struct Root {
    /// `unshare`, which waits for the namespace's first process. Taken by whoever stops it.
    child: Mutex<Option<Child>>,
    /// The namespace lives as long as this is open.
    control: UnixStream,
    /// One message at a time.
    saying: Mutex<()>,
    next: AtomicU64,
    book: Mutex<Book>,
    over: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Book {
    asked: HashMap<u64, oneshot::Sender<Answer>>,
    running: HashMap<u64, Arc<Process>>,
}

impl Root {
    /// With `extra` arguments of `unshare`.
    pub(crate) async fn start(setup: Setup, extra: &[&str], cgroup: &Cgroup) -> io::Result<Arc<Self>> {
        let (control, theirs) = UnixStream::pair()?;
        let mut command = Command::from(farshell_emulator_inside::namespaces(extra)?);
        command.arg("init").stdin(OwnedFd::from(theirs)).kill_on_drop(true);
        let child = command.spawn()?;
        // The first process waits for its orders; until then it can be put where it belongs.
        cgroup.join(first_process(child.id().unwrap_or(0)).await?)?;
        let root = Arc::new(Self {
            child: Mutex::new(Some(child)),
            control,
            saying: Mutex::default(),
            next: AtomicU64::new(1),
            book: Mutex::default(),
            over: watch::Sender::new(false),
        });
        root.say(&Order::Setup(setup), &[])?;
        let (ready, waiting) = oneshot::channel();
        let reading = root.control.try_clone()?;
        let weak = Arc::downgrade(&root);
        std::thread::spawn(move || {
            let first = match receive::<Event>(&reading) {
                Ok(Some((Event::Ready, _))) => Ok(()),
                Ok(Some((Event::Failed(why), _))) => Err(io::Error::other(why)),
                Ok(_) => Err(io::Error::other("the first process of the sandbox ended")),
                Err(error) => Err(error),
            };
            let _ = ready.send(first);
            while let Ok(Some((event, files))) = receive::<Event>(&reading) {
                match weak.upgrade() {
                    Some(root) => root.happened(event, files),
                    None => return,
                }
            }
            if let Some(root) = weak.upgrade() {
                root.end();
            }
        });
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(Ok(Ok(()))) => Ok(root),
            Ok(Ok(Err(error))) => Err(error),
            _ => Err(io::Error::other("the sandbox did not come up")),
        }
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, order: &Order, files: &[OwnedFd]) -> io::Result<()> {
        let _one = self.saying.lock();
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send(&self.control, order, &files)
    }

    fn happened(&self, event: Event, files: Vec<OwnedFd>) {
        let (id, answer) = match event {
            Event::Started(id) => (id, Ok(files.into_iter().next())),
            Event::Refused(id, why) => (id, Err(io::Error::other(why))),
            Event::Exited(id, status) => {
                let process = self.book().running.remove(&id);
                return process.into_iter().for_each(|process| process.exited(status));
            }
            Event::Ready | Event::Failed(_) => return,
        };
        let asked = self.book().asked.remove(&id);
        if let Some(asked) = asked {
            let _ = asked.send(answer);
        }
    }

    /// Nothing runs in there any more.
    fn end(&self) {
        let book = std::mem::take(&mut *self.book());
        for process in book.running.into_values() {
            process.gone();
        }
        self.over.send_replace(true);
    }

    /// For the next process.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// The controlling side of the terminal, if it has one.
    pub(crate) async fn spawn(&self, process: &Arc<Process>, order: Spawn, files: Vec<OwnedFd>) -> Answer {
        let id = order.id;
        let (answer, waiting) = oneshot::channel();
        {
            let mut book = self.book();
            book.asked.insert(id, answer);
            book.running.insert(id, Arc::clone(process));
        }
        let said = self.say(&Order::Spawn(order), &files);
        drop(files);
        let answer = match said {
            Ok(()) => waiting.await.unwrap_or_else(|_| Err(io::Error::other("the sandbox ended"))),
            Err(error) => Err(error),
        };
        if answer.is_err() {
            self.book().running.remove(&id);
        }
        answer
    }

    /// That process, with its group.
    pub(crate) fn kill(&self, number: u64) {
        let _ = self.say(&Order::Kill(number), &[]);
    }

    /// When the first process has ended, whyever.
    pub(crate) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Ends every process in it, and waits for that.
    pub(crate) async fn stop(&self) {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child
            && tokio::time::timeout(PATIENCE, child.wait()).await.is_err()
        {
            let _ = child.kill().await;
        }
        self.end();
    }
}

/// The child of `unshare`, once it is there.
async fn first_process(unshare: u32) -> io::Result<u32> {
    let children = format!("/proc/{unshare}/task/{unshare}/children");
    let beginning = std::time::Instant::now();
    while beginning.elapsed() < PATIENCE {
        let text = tokio::fs::read_to_string(&children).await?;
        if let Some(pid) = text.split_whitespace().next().and_then(|pid| pid.parse().ok()) {
            return Ok(pid);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(io::Error::other("unshare started nothing"))
}
