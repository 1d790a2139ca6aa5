//! Connections that are lost again and again, each after the outpost has heard a request and before its answer is heard.
#![expect(clippy::unwrap_used, reason = "tests")]

use farshell_engine::backend::{Backend, BoxFuture, ByteStream, Identity, Place, Spec, TaskName};
use farshell_engine::client::{Outpost, new_process_id};
use farshell_engine::{Kind, Result};
use farshell_protocol::file::{FileOp, FileReply, FileType, IgnoreCase, Search, Target, Want, Write};
use farshell_protocol::frame::{self, Decoder};
use farshell_protocol::hello::Hello;
use farshell_protocol::message::{from_bytes, to_bytes};
use farshell_protocol::process::{Start, Surroundings, What};
use farshell_protocol::session::{Mode, OpenSession};
use farshell_protocol::{ProcessId, SessionName};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What becomes of a connection that is lost, at the outpost's end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The outpost hears of it at once.
    Closed,
    /// It does not hear of it, as where a bridge is between the two.
    Kept,
    /// What was sent arrives when nobody expects it any more.
    Late,
    /// It is lost only when it is let go of.
    Held,
    /// It is lost only when so many bytes of answers were heard.
    After(u64),
}

/// A place to which so many connections are lost.
#[derive(Debug)]
struct Stormy {
    place: Box<dyn Place>,
    storm: Arc<Storm>,
}

#[derive(Debug, Default)]
struct Storm {
    left: AtomicU32,
    end: Mutex<Option<End>>,
    /// A file that is made when the next connection has been lost.
    before_next: Mutex<Option<std::path::PathBuf>>,
    /// The outpost is said to be one of the first version of the protocol, which knows no numbers.
    first_version: AtomicBool,
    kept: Mutex<Vec<ByteStream>>,
    /// Lets go of what is late.
    released: tokio::sync::Notify,
    /// How many of the late have arrived, or are held.
    arrived: AtomicU32,
}

impl Place for Stormy {
    fn identity(&self) -> Identity {
        self.place.identity()
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async move {
            let stream = self.place.connect().await?;
            let less = |left: u32| left.checked_sub(1);
            let lost = self.storm.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            let end = self.storm.end.lock().unwrap().unwrap_or(End::Closed);
            Ok(if lost.is_ok() { cut(stream, end, Arc::clone(&self.storm)) } else { stream })
        })
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        self.place.destroy()
    }
}

/// The stream, until the first answer after the greeting.
fn cut(stream: ByteStream, end: End, storm: Arc<Storm>) -> ByteStream {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let ByteStream { read: mut from_outpost, write: mut to_outpost } = stream;
    let (mut from_engine, mut to_engine) = tokio::io::split(ours);
    tokio::spawn(async move {
        let mut buffer = [0; 1 << 12];
        let mut hello = [0; 1 << 12];
        let said = from_engine.read(&mut hello).await.unwrap();
        to_outpost.write_all(&hello[..said]).await.unwrap();
        let greeting = from_outpost.read(&mut buffer).await.unwrap();
        let mut greeting = buffer[..greeting].to_vec();
        if storm.first_version.load(Ordering::SeqCst) {
            greeting = as_first_version(&greeting);
        }
        to_engine.write_all(&greeting).await.unwrap();
        if let End::Late = end {
            let mut sent = vec![0; 1 << 12];
            let len = from_engine.read(&mut sent).await.unwrap();
            drop((from_engine, to_engine));
            storm.released.notified().await;
            to_outpost.write_all(&sent[..len]).await.unwrap();
            // Its answer, which nobody hears.
            drop(from_outpost.read(&mut buffer).await);
            storm.arrived.fetch_add(1, Ordering::SeqCst);
            return;
        }
        {
            let up = async { drop(tokio::io::copy(&mut from_engine, &mut to_outpost).await) };
            let down = async {
                if let End::After(bytes) = end {
                    let mut some = (&mut from_outpost).take(bytes);
                    drop(tokio::io::copy(&mut some, &mut to_engine).await);
                } else {
                    drop(from_outpost.read(&mut buffer).await);
                }
            };
            tokio::select! { () = up => {} () = down => {} }
        }
        if let End::Held = end {
            storm.arrived.fetch_add(1, Ordering::SeqCst);
            storm.released.notified().await;
        }
        if let Some(path) = storm.before_next.lock().unwrap().take() {
            std::fs::write(path, "").unwrap();
        }
        if let End::Kept = end {
            storm.kept.lock().unwrap().push(ByteStream { read: from_outpost, write: to_outpost });
        }
    });
    let (read, write) = tokio::io::split(theirs);
    ByteStream { read: Box::new(read), write: Box::new(write) }
}

/// The greeting of an outpost, as one of the first version of the protocol would say it.
fn as_first_version(greeting: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new();
    decoder.push(greeting);
    let frame = decoder.next_frame().unwrap().unwrap();
    let mut hello: Hello = from_bytes(frame.payload).unwrap();
    hello.version = 1;
    let mut out = Vec::new();
    frame::encode(&mut out, frame.kind, frame.call, &to_bytes(&hello));
    out
}

struct Rig {
    outpost: Outpost,
    /// To the same one, by connections that are not lost.
    calm: Outpost,
    storm: Arc<Storm>,
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
        let storm = Arc::new(Storm::default());
        let outpost = Outpost::new(Arc::new(Stormy { place, storm: Arc::clone(&storm) }));
        let calm = Outpost::new(Arc::from(local.provision(&spec, &()).await.unwrap()));
        Self { outpost, calm, storm, dir }
    }

    /// From now on, so many connections are lost.
    fn storm(&self, losses: u32) {
        self.outpost.disconnect();
        self.storm.left.store(losses, Ordering::SeqCst);
    }

    /// From now on, lost connections end like this.
    fn ends(&self, end: End) {
        *self.storm.end.lock().unwrap() = Some(end);
    }

    fn path(&self, name: &str) -> Vec<u8> {
        self.dir.path().join(name).into_os_string().into_encoded_bytes()
    }

    fn write(&self, name: &str) -> Write {
        let path = self.path(name).into();
        Write { path, mode: None, set_mode: false, parents: false, create_only: true, expect: None }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    /// Waits until something that was late has arrived, or is held.
    async fn arrived(&self) {
        while self.storm.arrived.load(Ordering::SeqCst) < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A session that begins in a new directory of this name.
    async fn session(&self, name: &SessionName, dir: &str) {
        std::fs::create_dir(self.dir.path().join(dir)).unwrap();
        let open = OpenSession {
            name: name.clone(),
            mode: Mode::Live,
            env: Vec::new(),
            clear_env: false,
            cwd: Some(self.path(dir)),
            init_files: Vec::new(),
        };
        self.calm.open_session(open).await.unwrap();
    }

    async fn change(&self, op: FileOp) -> Result<FileReply> {
        self.storm(4);
        self.outpost.file(None, op).await
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

#[tokio::test]
async fn a_change_of_files_is_made_once() {
    let rig = Rig::new().await;
    for end in [End::Closed, End::Kept] {
        rig.ends(end);
        let large = vec![b'x'; 1 << 20];
        for bytes in [&b""[..], b"new", &large] {
            rig.storm(4);
            let (stat, created) = rig.outpost.write_file(None, rig.write("file"), bytes).await.unwrap();
            assert_eq!((stat.size, created), (bytes.len() as u64, true), "{end:?}");
            assert_eq!(std::fs::read(rig.dir.path().join("file")).unwrap(), bytes);
            // It is there now, and not because of this call.
            rig.storm(4);
            let error = rig.outpost.write_file(None, rig.write("file"), b"other").await.unwrap_err();
            assert_eq!(error.kind, Kind::AlreadyExists);
            let remove =
                FileOp::Remove { path: rig.path("file").into(), recursive: false, missing_ok: false };
            assert_eq!(rig.change(remove).await.unwrap(), FileReply::Removed { entries: 1 });
        }
        let dir = |parents| FileOp::MakeDir { path: rig.path("dir").into(), parents, mode: None };
        assert_eq!(rig.change(dir(false)).await.unwrap(), FileReply::Done);
        assert_eq!(rig.change(dir(false)).await.unwrap_err().kind, Kind::AlreadyExists);
        std::fs::write(rig.dir.path().join("dir/file"), "12345").unwrap();
        let (from, to) = (rig.path("dir"), rig.path("copy"));
        let copy = FileOp::Copy { from: from.clone().into(), to: to.into(), replace: false };
        assert_eq!(rig.change(copy).await.unwrap(), FileReply::Copied { bytes: 5 });
        let renamed = FileOp::Move { from: from.into(), to: rig.path("moved").into(), replace: false };
        assert_eq!(rig.change(renamed).await.unwrap(), FileReply::Done);
        for (name, found) in [("copy", 2), ("moved", 2), ("dir", 0)] {
            let remove = FileOp::Remove { path: rig.path(name).into(), recursive: true, missing_ok: true };
            assert_eq!(rig.change(remove).await.unwrap(), FileReply::Removed { entries: found }, "{name}");
        }
    }
    rig.storm(100);
    let error = rig.outpost.write_file(None, rig.write("file"), b"new").await.unwrap_err();
    assert_eq!(error.kind, Kind::UnknownOutcome);
    assert_eq!(rig.read("file"), "new");
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn an_outpost_that_knows_no_numbers_is_not_asked_for_a_change_again() {
    let rig = Rig::new().await;
    rig.storm.first_version.store(true, Ordering::SeqCst);
    rig.storm(100);
    let dir = FileOp::MakeDir { path: rig.path("dir").into(), parents: false, mode: None };
    let error = rig.outpost.file(None, dir).await.unwrap_err();
    assert_eq!(error.kind, Kind::UnknownOutcome, "{error}");
    assert!(error.message.contains("older release"), "{error}");
    // It was made, by the only attempt; the second connection said no more than hello.
    assert!(rig.dir.path().join("dir").is_dir());
    assert_eq!(rig.storm.left.load(Ordering::SeqCst), 98);
    // What only looks is asked again.
    rig.storm(4);
    let stat = FileOp::Stat { path: rig.path("dir").into(), follow: true };
    assert!(matches!(rig.outpost.file(None, stat).await.unwrap(), FileReply::Stat(_)));
    rig.storm.first_version.store(false, Ordering::SeqCst);
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn a_change_that_failed_is_not_made_again() {
    let rig = Rig::new().await;
    // The first attempt finds nothing to remove; that there is something when the second comes changes nothing.
    let remove = || FileOp::Remove { path: rig.path("gone").into(), recursive: false, missing_ok: false };
    rig.storm(1);
    *rig.storm.before_next.lock().unwrap() = Some(rig.dir.path().join("gone"));
    assert_eq!(rig.outpost.file(None, remove()).await.unwrap_err().kind, Kind::NotFound);
    assert!(rig.dir.path().join("gone").exists());
    assert_eq!(rig.outpost.file(None, remove()).await.unwrap(), FileReply::Removed { entries: 1 });
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn a_change_that_arrives_when_it_is_made_already_is_not_made_again() {
    let rig = Rig::new().await;
    let anew = || Write { create_only: false, ..rig.write("file") };
    rig.ends(End::Late);
    rig.storm(1);
    rig.outpost.write_file(None, anew(), b"first").await.unwrap();
    rig.outpost.write_file(None, anew(), b"second").await.unwrap();
    rig.storm.released.notify_waiters();
    rig.arrived().await;
    assert_eq!(rig.read("file"), "second");
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn a_change_whose_later_attempt_was_refused_is_not_made_when_it_arrives() {
    let rig = Rig::new().await;
    let name = SessionName::new("s").unwrap();
    rig.ends(End::Late);
    rig.storm(1);
    let dir = FileOp::MakeDir { path: rig.path("made").into(), parents: false, mode: None };
    let error = rig.outpost.file(Some(name.clone()), dir).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotFound);
    rig.session(&name, "dir").await;
    rig.storm.released.notify_waiters();
    rig.arrived().await;
    assert!(!rig.dir.path().join("made").exists());
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn a_relative_path_is_that_of_the_first_attempt() {
    let rig = Rig::new().await;
    let name = SessionName::new("s").unwrap();
    rig.session(&name, "first").await;
    rig.ends(End::Held);
    rig.storm(1);
    let write = Write { path: b"file".to_vec().into(), ..rig.write("file") };
    // More than is taken without an answer.
    let large = vec![b'x'; 8 << 20];
    let meanwhile = async {
        rig.arrived().await;
        rig.calm.close_session(name.clone()).await.unwrap();
        rig.session(&name, "then").await;
        rig.storm.released.notify_waiters();
    };
    let (written, ()) = tokio::join!(rig.outpost.write_file(Some(name.clone()), write, &large), meanwhile);
    assert_eq!(written.unwrap().0.size, large.len() as u64);
    let found = ["first/file", "then/file"].map(|path| rig.dir.path().join(path).exists());
    assert_eq!(found, [true, false]);
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn what_became_of_a_file_that_was_sent_piece_by_piece_is_found_out() {
    let rig = Rig::new().await;
    for end in [End::Closed, End::Kept] {
        rig.ends(end);
        rig.storm(4);
        let mut upload = rig.outpost.upload(None, rig.write("file")).await.unwrap();
        upload.push(b"some").await.unwrap();
        let (stat, created) = upload.finish().await.unwrap();
        assert_eq!((stat.size, created, rig.read("file").as_str()), (4, true, "some"), "{end:?}");
        std::fs::remove_file(rig.dir.path().join("file")).unwrap();
    }
    // Its end did not arrive, and never will. That can be asked also when the session is closed.
    let name = SessionName::new("s").unwrap();
    rig.session(&name, "dir").await;
    rig.ends(End::Late);
    rig.storm(1);
    let mut upload = rig.outpost.upload(Some(name.clone()), rig.write("file")).await.unwrap();
    upload.push(b"some").await.unwrap();
    rig.calm.close_session(name).await.unwrap();
    assert_eq!(upload.finish().await.unwrap_err().kind, Kind::Disconnected);
    rig.storm.released.notify_waiters();
    rig.arrived().await;
    assert!(!rig.dir.path().join("file").exists());
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn files_are_read_to_their_end() {
    let rig = Rig::new().await;
    let large: String = (0..200_000).map(|i| format!("{i}\n")).collect();
    std::fs::write(rig.dir.path().join("large"), &large).unwrap();
    let path = rig.path("large");
    rig.storm(4);
    let stat =
        rig.outpost.file(None, FileOp::Stat { path: path.clone().into(), follow: true }).await.unwrap();
    assert!(matches!(stat, FileReply::Stat(stat) if stat.kind == FileType::File));
    rig.storm(4);
    let mut stream = rig.outpost.read_file(None, &path, 0, None).await.unwrap();
    let mut all = stream.next().await.unwrap().unwrap();
    // In the middle of it, and again before it is there.
    rig.storm(4);
    while let Some(piece) = stream.next().await.unwrap() {
        all.extend(piece);
    }
    assert!(all == large.as_bytes());
    assert_eq!(stream.end.map(|end| (end.bytes, end.changed)), Some((large.len() as u64, false)));
    rig.storm(4);
    let dir = rig.dir.path().as_os_str().as_encoded_bytes();
    let (entries, truncated) = rig.outpost.list_dir(None, dir, 0).await.unwrap();
    assert_eq!((entries.len(), truncated), (2, false));
    rig.storm(4);
    let search = Search {
        path: path.into(),
        target: Target::Content {
            pattern: "^199999$".into(),
            literal: false,
            ignore_case: IgnoreCase::No,
            context: 0,
            multiline: false,
            want: Want::Counts,
        },
        globs: Vec::new(),
        no_ignore: true,
        hidden: true,
        limit: 0,
        timeout_ms: None,
    };
    let searched = rig.outpost.search(None, search, |_| {}).await.unwrap();
    assert_eq!(searched.matches, 1);
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn a_file_of_which_only_the_beginning_ever_comes_is_given_up() {
    let rig = Rig::new().await;
    std::fs::write(rig.dir.path().join("large"), "x".repeat(8 << 20)).unwrap();
    rig.ends(End::After(700 << 10));
    rig.storm(100);
    let mut stream = rig.outpost.read_file(None, &rig.path("large"), 0, None).await.unwrap();
    let mut bytes = 0;
    let error = loop {
        match stream.next().await {
            Ok(piece) => bytes += piece.unwrap().len(),
            Err(error) => break error,
        }
    };
    assert!(bytes > 0 && bytes < 700 << 10, "{bytes}");
    assert_eq!(error.kind, Kind::Disconnected);
    assert!(rig.storm.left.load(Ordering::SeqCst) > 50);
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn a_file_that_is_another_one_after_a_loss_is_not_joined_to_the_old_one() {
    let rig = Rig::new().await;
    for (other, name) in [("y".repeat(3 << 20), "changed"), ("x".into(), "shorter")] {
        std::fs::write(rig.dir.path().join(name), "x".repeat(3 << 20)).unwrap();
        let mut stream = rig.outpost.read_file(None, &rig.path(name), 0, None).await.unwrap();
        assert!(stream.next().await.unwrap().is_some());
        std::fs::write(rig.dir.path().join(name), other).unwrap();
        rig.storm(0);
        let error = loop {
            match stream.next().await {
                Ok(piece) => assert!(piece.is_some_and(|piece| piece.iter().all(|byte| *byte == b'x'))),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, Kind::Disconnected, "{name}");
    }
    rig.end(Vec::new()).await;
}

#[tokio::test]
async fn a_signal_is_sent_once() {
    let rig = Rig::new().await;
    let text = format!(
        "trap 'echo got >>{0}/got' USR1; echo ran >>{0}/ran; while :; do sleep 0.01; done",
        rig.dir.path().display()
    );
    let argv = ["sh", "-c", &text].map(|word| word.as_bytes().to_vec().into()).to_vec();
    let start = Start::new(new_process_id(), What::Exec { argv, surroundings: Surroundings::default() });
    let id = start.id.clone();
    rig.outpost.start(start).await.unwrap();
    assert_eq!(rig.ran(1).await, 1);
    for times in 1..=3 {
        rig.storm(4);
        rig.outpost.signal(id.clone(), 10).await.unwrap();
        // A second one would come soon after the first.
        while std::fs::read_to_string(rig.dir.path().join("got")).unwrap_or_default().lines().count() < times
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(rig.read("got").lines().count(), times);
    }
    rig.storm(4);
    assert_eq!(rig.outpost.signal(new_process_id(), 10).await.unwrap_err().kind, Kind::NotFound);
    rig.end(vec![id]).await;
}
