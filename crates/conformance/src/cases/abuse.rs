//! Clients that do not keep to the protocol harm nobody but themselves.

use crate::case::{Done, Failure, cases, check, check_eq};
use crate::env::Env;
use farshell_protocol::frame::{self, Decoder, MAX_PAYLOAD};
use farshell_protocol::message::to_bytes;
use farshell_protocol::process::{Attach, Start};
use farshell_protocol::{Hello, Kind, Request};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

cases! {
    Any:
        noise_is_cut_off needs Socket,
        frames_that_make_no_sense needs Socket,
        last_words_before_the_end needs Socket,
        silent_and_slow_clients_hold_nobody_up needs Socket,
        a_thousand_connections needs Socket,
        a_reader_who_never_reads needs Socket,
        a_flood_of_requests_without_reading needs Socket;
}

async fn connect(env: &Env) -> Result<UnixStream, Failure> {
    env.outpost().ping().await?;
    let path = env.subject.socket(&env.home, &env.task).ok_or_else(|| Failure::new("no socket"))?;
    Ok(UnixStream::connect(path).await?)
}

fn framed(kind: Kind, call: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode(&mut out, kind, call, payload);
    out
}

fn hello() -> Vec<u8> {
    framed(Kind::Hello, 0, &to_bytes(&Hello::engine()))
}

/// Reads until the outpost closes the connection.
async fn closed(stream: &mut UnixStream) -> Done {
    let mut rest = Vec::new();
    match tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await {
        // A reset is an end as well: it had not read all that was sent.
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::new("the connection was not closed within 20 s")),
    }
}

/// A command that runs all the while, and must not notice.
async fn meanwhile(env: &Env, abuse: impl Future<Output = Done>) -> Done {
    env.run("true").await?;
    let pid = env.outpost().info().await?.identity.pid;
    let options = env.command("for i in $(seq 20); do echo $i; sleep 0.05; done");
    let (ran, abused) = tokio::join!(env.run_with(&options), abuse);
    abused?;
    let expected: String = (1..=20).map(|i| format!("{i}\n")).collect();
    check_eq!(ran?.out(), expected, "the command of another client");
    check_eq!(env.outpost().info().await?.identity.pid, pid, "the outpost");
    env.says("echo next", "next\n").await
}

async fn noise_is_cut_off(env: &Env) -> Done {
    meanwhile(env, async {
        let noises: Vec<Vec<u8>> = vec![
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            b"\n".to_vec(),
            vec![0; 100],
            vec![0xff; 100_000],
            (0..=255).cycle().take(50_000).collect(),
            vec![frame::MARKER; 5000],
        ];
        for noise in noises {
            for greeting in [Vec::new(), hello()] {
                let mut stream = connect(env).await?;
                let _ = stream.write_all(&[greeting, noise.clone()].concat()).await;
                closed(&mut stream).await?;
            }
        }
        Ok(())
    })
    .await
}

/// Whoever says something and ends it at once is seen to have gone, though both are told together.
async fn last_words_before_the_end(env: &Env) -> Done {
    for size in [1, 100, 30_000] {
        for _ in 0..50 {
            let mut stream = connect(env).await?;
            stream.write_all(&hello()).await?;
            let mut greeting = [0];
            stream.read_exact(&mut greeting).await?;
            // A call that nobody knows: it costs no answer.
            let words = framed(Kind::Credit, 77, &1_u64.to_le_bytes()).repeat(size);
            stream.write_all(&words).await?;
            stream.shutdown().await?;
            closed(&mut stream).await?;
        }
    }
    Ok(())
}

async fn frames_that_make_no_sense(env: &Env) -> Done {
    meanwhile(env, async {
        let mut too_long = frame::header(Kind::Request, 1, 0).to_vec();
        too_long[8..12].copy_from_slice(&(u32::try_from(MAX_PAYLOAD)? + 1).to_le_bytes());
        let mut old = Hello::engine();
        (old.version, old.oldest) = (9999, 9999);
        let request = to_bytes(&Request::Ping);
        for (bytes, what) in [
            (framed(Kind::Request, 1, &request), "a request before the hello"),
            ([hello(), hello()].concat(), "two hellos"),
            ([hello(), too_long].concat(), "a frame that is too long"),
            ([hello(), framed(Kind::Response, 1, &request)].concat(), "a response of a client"),
            ([hello(), framed(Kind::Event, 1, &request)].concat(), "an event of a client"),
            (framed(Kind::Hello, 0, &to_bytes(&old)), "a version that nobody speaks"),
            (framed(Kind::Hello, 0, b"\xc1 nonsense"), "a hello that is none"),
        ] {
            let mut stream = connect(env).await?;
            let _ = stream.write_all(&bytes).await;
            closed(&mut stream).await.map_err(|failure| Failure::new(format!("{what}: {failure}")))?;
        }
        // These concern one call or none, and may end the connection or not: the outpost decides.
        for bytes in [
            framed(Kind::Request, 1, b"\xc1\xc1\xc1"),
            framed(Kind::Request, 1, &vec![0x91; 100_000]),
            framed(Kind::Cancel, 77, b""),
            framed(Kind::Credit, 77, b"123"),
            framed(Kind::Credit, 77, &u64::MAX.to_le_bytes()),
            framed(Kind::Data, 77, &vec![0; 100_000]),
            framed(Kind::End, 77, b""),
            framed(Kind::Goodbye, 0, b"x"),
        ] {
            let mut stream = connect(env).await?;
            let _ = stream.write_all(&[hello(), bytes, framed(Kind::Request, 2, &request)].concat()).await;
            let mut some = [0; 1000];
            let _ = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut some)).await;
        }
        Ok(())
    })
    .await
}

async fn silent_and_slow_clients_hold_nobody_up(env: &Env) -> Done {
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut stream = connect(env).await?;
        stream.write_all(&hello()[..7]).await?;
        silent.push(stream);
    }
    let slow = async {
        let mut stream = connect(env).await?;
        for byte in [hello(), framed(Kind::Request, 1, &to_bytes(&Request::Ping))].concat() {
            stream.write_all(&[byte]).await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut decoder = Decoder::new();
        loop {
            let n = stream.read(decoder.space(4096)).await?;
            check!(n > 0, "a client that sends byte by byte was cut off");
            decoder.filled(n);
            while let Some(frame) = decoder.next_frame()? {
                if frame.kind == Kind::Response {
                    return Ok(());
                }
            }
        }
    };
    meanwhile(env, slow).await
}

async fn a_thousand_connections(env: &Env) -> Done {
    meanwhile(env, async {
        for _ in 0..1000 {
            let mut stream = connect(env).await?;
            let _ = stream.write_all(&hello()).await;
        }
        Ok(())
    })
    .await?;
    // And many that stay.
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(env).await?;
        stream.write_all(&hello()).await?;
        held.push(stream);
    }
    env.says("echo fine", "fine\n").await
}

async fn a_reader_who_never_reads(env: &Env) -> Done {
    let mut stream = connect(env).await?;
    let start = Start { attach: Some(Attach::foreground()), ..env.shell("yes") };
    let id = start.id.clone();
    stream
        .write_all(&[hello(), framed(Kind::Request, 1, &to_bytes(&Request::Start(start)))].concat())
        .await?;
    meanwhile(env, async { Ok(()) }).await?;
    let status = env.outpost().status(id.clone()).await?;
    check!(
        status.output.stdout < 64 << 20,
        "{} bytes ahead of a reader who must get all",
        status.output.stdout
    );
    env.outpost().kill(vec![id], Duration::ZERO).await?;
    Ok(())
}

async fn a_flood_of_requests_without_reading(env: &Env) -> Done {
    let mut stream = connect(env).await?;
    stream.write_all(&hello()).await?;
    let flood = async {
        let mut requests = Vec::new();
        for call in 1..10_000 {
            requests.extend(framed(Kind::Request, call, &to_bytes(&Request::Processes)));
        }
        // It may well block: then the outpost has stopped reading, as it should.
        for _ in 0..20 {
            if tokio::time::timeout(Duration::from_millis(100), stream.write_all(&requests)).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    meanwhile(env, flood).await
}
