//! What a command costs when Daytona is far away.

use crate::rig::Rig;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// How long everything takes in each direction.
const DISTANCE: Duration = Duration::from_millis(20);
const SAMPLES: usize = 25;

/// Passes on what comes, as it came, a while later.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let (sent, mut under_way) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let arriving = async move {
        while let Some((at, bytes)) = under_way.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::spawn(arriving);
    let mut buf = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut buf).await {
        if n == 0 || sent.send((Instant::now() + DISTANCE, buf[..n].to_vec())).is_err() {
            break;
        }
    }
}

async fn distance(listener: TcpListener, to: String) {
    while let Ok((near, _)) = listener.accept().await {
        let Ok(far) = TcpStream::connect(&to).await else { continue };
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
        tokio::spawn(carry(near_read, far_write));
        tokio::spawn(carry(far_read, near_write));
    }
}

/// How often it is measured again on a machine that is busy with other things.
const BATCHES: usize = 5;

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_command_costs_one_round_trip() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let Some(rig) = Rig::with(&["--origin", &origin]) else { return };
    tokio::spawn(distance(listener, rig.address()));
    let mut rig = rig;
    rig.url = format!("{origin}/api");
    let rig =
        rig.set(|config| drop(config.environment.insert("DAYTONA_API_URL".into(), format!("{origin}/api"))));
    let env = rig.open().await;
    let client = rig.client();
    // Warm: the session is open, and so is a connection for questions.
    assert_eq!(env.out("echo warm").await, "warm");
    client.get("hermes-default").await.unwrap();
    for batch in 1..=BATCHES {
        let (mut commands, mut trips) = (Vec::new(), Vec::new());
        for n in 0..SAMPLES {
            let begun = Instant::now();
            client.get("hermes-default").await.unwrap();
            trips.push(begun.elapsed());
            let begun = Instant::now();
            assert_eq!(env.out(&format!("echo {n}")).await, n.to_string());
            commands.push(begun.elapsed());
        }
        let (command, trip) = (median(commands), median(trips));
        let ratio = command.as_secs_f64() / trip.as_secs_f64();
        eprintln!("a warm command: {command:?}; a round trip: {trip:?}; ratio {ratio:.2}");
        assert!(trip >= DISTANCE * 2, "the distance is there: {trip:?}");
        if ratio <= 1.2 {
            return;
        }
        // A second round trip would show however often one looks.
        assert!(batch < BATCHES, "a warm command takes {command:?}, a round trip {trip:?}");
    }
}
