//! What a command costs when Modal is far away.

use crate::rig::Rig;
use std::time::Duration;
use tokio::time::Instant;

const SAMPLES: usize = 25;

/// How often it is measured again on a machine that is busy with other things.
const BATCHES: usize = 5;

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_command_costs_one_round_trip() {
    let Some(rig) = Rig::with(&["--latency-ms", "40"]) else { return };
    let rig = rig.set(|config| config.rest = Duration::from_secs(60));
    let env = rig.open().await;
    let client = rig.client();
    // Warm: the session is open, and so is a connection for questions.
    assert_eq!(env.out("echo warm").await, "warm");
    client.hello().await.unwrap();
    for batch in 1..=BATCHES {
        let (mut commands, mut trips) = (Vec::new(), Vec::new());
        for n in 0..SAMPLES {
            let begun = Instant::now();
            client.hello().await.unwrap();
            trips.push(begun.elapsed());
            let begun = Instant::now();
            assert_eq!(env.out(&format!("echo {n}")).await, n.to_string());
            commands.push(begun.elapsed());
        }
        let (command, trip) = (median(commands), median(trips));
        let ratio = command.as_secs_f64() / trip.as_secs_f64();
        eprintln!("a warm command: {command:?}; a round trip: {trip:?}; ratio {ratio:.2}");
        assert!(trip >= Duration::from_millis(40), "the distance is there: {trip:?}");
        if command <= trip.mul_f64(1.1) + Duration::from_millis(1) {
            return;
        }
        // A second round trip would show however often one looks.
        assert!(batch < BATCHES, "a warm command takes {command:?}, a round trip {trip:?}");
    }
}
