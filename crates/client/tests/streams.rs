//! Streams that lose their server. The servers here say what the test tells them to.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

use farshell_api::process::{Process, ProcessState};
use farshell_api::run::StartRequest;
use farshell_api::stream::{AttachTo, ClientMessage, Open, ServerMessage};
use farshell_api::{API_VERSION, ApiError, VERSION_HEADER};
use farshell_client::home::Files;
use farshell_client::stream::Stream;
use farshell_client::{Client, Output, Starter, Streaming, Update};
use futures_util::{SinkExt, StreamExt};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

struct World {
    home: tempfile::TempDir,
    listener: UnixListener,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let files = Files::of(home.path());
        std::fs::create_dir_all(&files.dir).unwrap();
        let listener = UnixListener::bind(files.socket()).unwrap();
        Self { home, listener }
    }

    async fn client(&self) -> Client {
        let starter = Starter { program: "/bin/false".into(), args: Vec::new() };
        Client::connect_or_start(self.home.path(), starter).await.unwrap()
    }

    /// The next connection, up to what it wants.
    async fn accept(&self) -> (Peer, Open) {
        let mut peer = Peer::new(self.listener.accept().await.unwrap().0).await;
        let Message::Text(text) = peer.receive().await else { panic!("no text first") };
        (peer, serde_json::from_str(&text).unwrap())
    }
}

struct Peer {
    socket: WebSocketStream<UnixStream>,
}

impl Peer {
    async fn new(stream: UnixStream) -> Self {
        #[expect(clippy::result_large_err, reason = "the signature is the library's")]
        let versioned = |request: &Request, mut response: Response| {
            assert_eq!(request.headers()[VERSION_HEADER], API_VERSION.to_string());
            response.headers_mut().insert(VERSION_HEADER, API_VERSION.into());
            Ok(response)
        };
        Self { socket: accept_hdr_async(stream, versioned).await.unwrap() }
    }

    async fn receive(&mut self) -> Message {
        self.socket.next().await.unwrap().unwrap()
    }

    async fn send(&mut self, message: &ServerMessage) {
        self.socket.send(Message::text(serde_json::to_string(message).unwrap())).await.unwrap();
    }

    async fn opened(&mut self, stdin_taken: u64, instance: Option<&str>) {
        let instance = instance.map(str::to_owned);
        self.send(&ServerMessage::Opened { process: Box::new(process()), stdin_taken, instance }).await;
    }

    async fn output(&mut self, stream: u8, offset: u64, text: &str) {
        let data = [&[stream][..], &offset.to_le_bytes(), text.as_bytes()].concat();
        self.socket.send(Message::binary(data)).await.unwrap();
    }

    async fn ended(&mut self) {
        self.send(&ServerMessage::Ended { process: Box::new(process()) }).await;
    }

    async fn fail(&mut self, kind: &str) {
        self.send(&ServerMessage::Error { error: failure(kind) }).await;
    }

    async fn input(&mut self) -> (u64, String) {
        let Message::Binary(data) = self.receive().await else { panic!("no input") };
        let offset = u64::from_le_bytes(data[..8].try_into().unwrap());
        (offset, String::from_utf8(data[8..].to_vec()).unwrap())
    }

    async fn message(&mut self) -> ClientMessage {
        let Message::Text(text) = self.receive().await else { panic!("no text") };
        serde_json::from_str(&text).unwrap()
    }
}

fn failure(kind: &str) -> ApiError {
    ApiError {
        kind: kind.into(),
        operation: "attaching".into(),
        message: "no".into(),
        hint: None,
        retry: "never".into(),
    }
}

fn process() -> Process {
    Process {
        id: "proc_1".into(),
        task: "default".into(),
        environment: "local/default".into(),
        backend: "local".into(),
        command: "true".into(),
        state: ProcessState::Running,
        ..Process::default()
    }
}

fn request() -> StartRequest {
    StartRequest { id: Some("proc_1".into()), ..StartRequest::new("true") }
}

fn output(stream: Stream, offset: u64, text: &'static str) -> Update {
    Update::Output(Output { stream, offset, bytes: text.into() })
}

fn attach(from: u64, instance: Option<&str>) -> Open {
    let attach = AttachTo {
        id: "proc_1".into(),
        target: Some(request().target),
        instance: instance.map(str::to_owned),
        from,
        screen: false,
        until_closed: false,
        size: None,
    };
    Open { start: None, attach: Some(attach) }
}

fn start() -> Open {
    Open { start: Some(Box::new(request())), attach: None }
}

/// Everything up to the end, or the kind of error.
async fn all(mut streaming: Streaming) -> (Vec<Update>, Option<String>) {
    let mut updates = Vec::new();
    loop {
        match streaming.next().await {
            Ok(update) => {
                let last = matches!(update, Update::Ended(_));
                updates.push(update);
                if last {
                    return (updates, None);
                }
            }
            Err(error) => return (updates, Some(error.kind)),
        }
    }
}

#[tokio::test]
async fn output_goes_on_at_the_byte() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let server = async {
        let (mut first, open) = world.accept().await;
        assert_eq!(open, start());
        first.opened(0, Some("i")).await;
        first.output(1, 0, "one").await;
        first.output(2, 3, "two").await;
        drop(first);
        let (mut second, open) = world.accept().await;
        assert_eq!(open, attach(6, Some("i")));
        second.opened(0, Some("i")).await;
        // A server that begins a little earlier is heard from where the stream was.
        second.output(1, 4, "wothree").await;
        second.send(&ServerMessage::Gap { from: 11, to: 20 }).await;
        drop(second);
        let (mut third, open) = world.accept().await;
        assert_eq!(open, attach(20, Some("i")));
        third.opened(0, None).await;
        third.ended().await;
    };
    let (updates, ()) = tokio::join!(all(streaming), server);
    let expected = vec![
        Update::Opened(Box::new(process())),
        output(Stream::Stdout, 0, "one"),
        output(Stream::Stderr, 3, "two"),
        Update::Resumed,
        output(Stream::Stdout, 6, "three"),
        Update::Gap { from: 11, to: 20 },
        Update::Resumed,
        Update::Ended(Box::new(process())),
    ];
    assert_eq!(updates, (expected, None));
}

#[tokio::test]
async fn a_start_that_was_never_answered_is_sent_again() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let server = async {
        assert_eq!(world.accept().await.1, start());
        let (mut second, open) = world.accept().await;
        assert_eq!(open, start());
        second.opened(0, None).await;
        second.ended().await;
    };
    let (updates, ()) = tokio::join!(all(streaming), server);
    let opened = Update::Opened(Box::new(process()));
    assert_eq!(updates, (vec![opened, Update::Ended(Box::new(process()))], None));
}

#[tokio::test]
async fn a_start_that_did_not_arrive_is_sent_again() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let server = async {
        let (mut first, _) = world.accept().await;
        first.opened(0, Some("i")).await;
        drop(first);
        let (mut second, open) = world.accept().await;
        assert_eq!(open, attach(0, Some("i")));
        second.fail("not_found").await;
        let (mut third, open) = world.accept().await;
        assert_eq!(open, start());
        third.opened(0, Some("i")).await;
        third.ended().await;
    };
    let (updates, ()) = tokio::join!(all(streaming), server);
    assert_eq!(updates.1, None);
}

#[tokio::test]
async fn what_may_have_run_is_never_sent_again() {
    // No instance to compare with; output that was seen; another outpost.
    for (instance, printed, kind) in
        [(None, "", "not_found"), (Some("i"), "x", "not_found"), (Some("i"), "", "unknown_outcome")]
    {
        let world = World::new();
        let client = world.client().await;
        let streaming = Streaming::start(&client, request());
        let server = async {
            let (mut first, _) = world.accept().await;
            first.opened(0, instance).await;
            first.output(1, 0, printed).await;
            drop(first);
            let (mut second, open) = world.accept().await;
            assert_eq!(open, attach(printed.len() as u64, instance));
            second.fail(kind).await;
        };
        let (updates, ()) = tokio::join!(all(streaming), server);
        assert_eq!(updates.1.as_deref(), Some("unknown_outcome"));
    }
}

#[tokio::test]
async fn an_error_is_told_as_it_is() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let server = async { world.accept().await.0.fail("busy").await };
    let (updates, ()) = tokio::join!(all(streaming), server);
    assert_eq!(updates, (Vec::new(), Some("busy".into())));
}

#[tokio::test]
async fn input_that_was_not_taken_is_sent_again() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let control = streaming.control();
    assert!(control.stdin("hello ").await);
    assert!(control.stdin("world").await);
    control.eof();
    control.kill(Some(0.0));
    let server = async {
        let (mut first, _) = world.accept().await;
        assert_eq!(first.message().await, ClientMessage::Kill { grace: Some(0.0) });
        first.opened(0, None).await;
        assert_eq!(first.input().await, (0, "hello ".into()));
        first.send(&ServerMessage::Stdin { taken: 6 }).await;
        drop(first);
        let (mut second, _) = world.accept().await;
        second.opened(8, None).await;
        // Nobody knows whether the kill was heard, and a second one does no harm.
        assert_eq!(second.message().await, ClientMessage::Kill { grace: Some(0.0) });
        assert_eq!(second.input().await, (8, "rld".into()));
        assert_eq!(second.message().await, ClientMessage::Eof { offset: 11 });
        second.ended().await;
    };
    let (updates, ()) = tokio::join!(all(streaming), server);
    assert_eq!(updates.1, None);
}

#[tokio::test]
async fn a_process_that_takes_no_input_ends_the_feeding() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let control = streaming.control();
    let server = async {
        let (mut peer, _) = world.accept().await;
        peer.opened(0, None).await;
        peer.input().await;
        peer.send(&ServerMessage::Refused { request: "stdin".into(), error: failure("invalid") }).await;
        peer
    };
    let feed = async { while control.stdin(vec![0; 50_000]).await {} };
    let ((), mut peer) = tokio::join!(feed, server);
    let end = async { peer.ended().await };
    let (updates, ()) = tokio::join!(all(streaming), end);
    assert_eq!(updates.1, None);
}

#[tokio::test(start_paused = true)]
async fn no_server_any_more_is_an_unknown_outcome() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let (mut first, _) = world.accept().await;
    first.opened(0, Some("i")).await;
    let World { home, listener } = world;
    drop((listener, first));
    let (_, kind) = all(streaming).await;
    assert_eq!(kind.as_deref(), Some("unknown_outcome"));
    drop(home);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_told() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let (updates, kind) = all(streaming).await;
    assert_eq!((updates, kind.as_deref()), (Vec::new(), Some("timed_out")));
    let error = client.status().await.unwrap_err();
    assert_eq!(error.kind, "timed_out", "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_told() {
    let world = World::new();
    let client = world.client().await;
    let streaming = Streaming::start(&client, request());
    let (mut peer, _) = world.accept().await;
    peer.opened(0, None).await;
    // Asked for a sign of life on another connection, it gives none.
    let (updates, kind) = all(streaming).await;
    assert_eq!((updates.len(), kind.as_deref()), (1, Some("timed_out")));
}

#[tokio::test]
async fn another_version_is_told_with_its_name() {
    let world = World::new();
    let client = world.client().await;
    let server = async {
        loop {
            let (mut stream, _) = world.listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let n = stream.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..n]).into_owned();
            let body = if request.starts_with("GET /v1/server ") {
                r#"{"pid":4711,"version":"9.9.9","new":{}}"#
            } else {
                r#"{"error":{"what":"is this"}}"#
            };
            let status = if request.starts_with("GET /v1/server ") { "200 OK" } else { "409 Conflict" };
            let answer = format!(
                "HTTP/1.1 {status}\r\nfarshell-api-version: 99\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    let asking = async {
        let expected = "the server (pid 4711, version 9.9.9) speaks API 99, this client 1";
        let error = client.status().await.unwrap_err();
        assert_eq!((error.kind.as_str(), error.message.as_str()), ("protocol", expected));
        let mut streaming = Streaming::start(&client, request());
        let error = streaming.next().await.unwrap_err();
        assert_eq!((error.kind.as_str(), error.message.as_str()), ("protocol", expected));
        assert!(error.hint.unwrap().contains("farshell server stop"));
        // What any server can be asked.
        assert_eq!(client.any_status().await.unwrap()["pid"], 4711);
    };
    tokio::select! {
        () = asking => {}
        () = server => {}
    }
}

#[tokio::test]
async fn without_a_server_and_without_a_starter_it_is_said() {
    let home = tempfile::tempdir().unwrap();
    let error = Client::connect(home.path()).await.unwrap_err();
    assert_eq!(error.kind, "not_found");
    let said = |program: &str, args: &[&str]| {
        let starter =
            Starter { program: program.into(), args: args.iter().map(|word| (*word).into()).collect() };
        let home: &Path = home.path();
        async move { Client::connect_or_start(home, starter).await.unwrap_err() }
    };
    let error = said(
        "/bin/sh",
        &["-c", "echo 'farshell: opening the state: no room' >&2; echo 'hint: make room' >&2; exit 125"],
    )
    .await;
    assert_eq!(
        (error.kind.as_str(), error.message.as_str(), error.hint.as_deref()),
        ("unavailable", "opening the state: no room", Some("make room"))
    );
    let files = Files::of(home.path());
    std::fs::create_dir_all(&files.dir).unwrap();
    std::fs::write(files.log(), "first\nlast words\n").unwrap();
    let error = said("/bin/sh", &["-c", "exit 3"]).await;
    assert_eq!(error.message, "it ended at once (exit status: 3)\n  first\n  last words");
    let error = said("/no/such/program", &[]).await;
    assert_eq!(error.kind, "system");
    // It says that it is ready, and nobody answers.
    let error = said("/bin/true", &[]).await;
    assert_eq!(error.kind, "timed_out");
}
