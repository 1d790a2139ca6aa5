//! Everything that can go wrong, at any moment.

use crate::rig::Rig;
use farshell_engine::backend::Backend;
use farshell_engine::capture::Capture;
use farshell_engine::{Kind, RunOptions};
use farshell_protocol::SessionName;
use std::time::Duration;

const ROUNDS: u32 = 60;

/// The same numbers for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn fault(&mut self) -> String {
        let kinds = ["502", "503", "429", "500", "reset-before", "reset-after", "ws-refuse", "ws-close"];
        let paths = ["", "/api/sandbox", "/start", "/stop", "/process/execute", "/process/pty", "/connect"];
        let (kind, path) = (self.of(&kinds), self.of(&paths));
        let (skip, count, ms) = (self.below(5), 1 + self.below(3), self.below(300));
        format!(r#"{{"kind":"{kind}","path":"{path}","skip":{skip},"count":{count},"ms":{ms}}}"#)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_trouble_at_any_moment_makes_two_sandboxes_or_runs_a_command_twice() {
    let Some(rig) = Rig::new() else { return };
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let seed = std::env::var("FARSHELL_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(u64::from_le_bytes(random));
    eprintln!("FARSHELL_TEST_SEED={seed}");
    let mut chance = Chance(seed);
    let env = rig.open().await;
    env.out("true").await;
    let id = env.env.identity().id;
    let (mut well, mut failed) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let faults: Vec<String> = (0..=chance.below(2)).map(|_| chance.fault()).collect();
        let faults = format!("[{}]", faults.join(","));
        rig.faults(&faults);
        match chance.below(4) {
            0 => env.env.outpost().disconnect(),
            1 => drop(rig.backend().find(&rig.spec()).await.map(|place| place.map(|place| place.identity()))),
            2 => {
                if let Ok(place) = rig.backend().provision(&rig.spec(), &()).await {
                    assert_eq!(place.identity().id, id, "{round} {faults}");
                    let _ = place.suspend().await;
                }
            }
            _ => {}
        }
        let command = format!("echo {round} >> /workspace/ran; sleep 0.0{}; echo {round}", chance.below(10));
        let options = RunOptions::new(SessionName::new("main").unwrap(), command);
        let mut capture = Capture::unlimited();
        match env.env.run(&options, &mut capture).await {
            Ok(_) => {
                assert_eq!(capture.stdout.to_bytes(), format!("{round}\n").into_bytes(), "{faults}");
                well.push(round);
            }
            Err(error) => {
                eprintln!("round {round} {faults}: {error}");
                failed.push((round, error.kind));
            }
        }
        rig.faults("[]");
        let all: Vec<String> = rig.sandboxes().await.into_iter().map(|sandbox| sandbox.id).collect();
        assert_eq!(all, [id.as_str()], "round {round} {faults}");
    }
    let ran = env.out("cat /workspace/ran").await;
    let times = |round: u32| ran.lines().filter(|line| *line == round.to_string()).count();
    for round in well {
        assert_eq!(times(round), 1, "round {round}");
    }
    for (round, kind) in failed {
        assert!(
            times(round) <= usize::from(kind != Kind::NotStarted),
            "round {round}, {kind:?}: {}",
            times(round)
        );
    }
}

/// Whoever makes, uses and puts a sandbox away is killed after each of its requests in turn.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_at_any_step_leaves_one_sandbox() {
    let Some(rig) = Rig::new() else { return };
    for fresh in [true, false] {
        let mut step = 1;
        loop {
            if fresh && let Some(place) = rig.backend().find(&rig.spec()).await.unwrap() {
                place.destroy().await.unwrap();
            }
            let before = rig.requests();
            let (backend, spec) = (rig.backend(), rig.spec());
            let doomed = tokio::spawn(async move {
                let place = backend.provision(&spec, &()).await.unwrap();
                drop(place.connect().await.unwrap());
                place.suspend().await.unwrap();
            });
            while rig.requests() < before + step && !doomed.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let lived = doomed.is_finished();
            doomed.abort();
            let _ = doomed.await;
            let place = rig.place().await;
            let all: Vec<String> = rig.sandboxes().await.into_iter().map(|sandbox| sandbox.id).collect();
            assert_eq!(all, [place.identity().id], "step {step}, fresh: {fresh}");
            place.connect().await.unwrap();
            if lived {
                break;
            }
            step += 1;
        }
        assert!(step > 5, "{step}");
    }
}
