//! Everything that can go wrong, at any moment.

use crate::rig::Rig;
use farshell_engine::backend::Backend;
use farshell_engine::capture::Capture;
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Environment, Kind, RunOptions};
use farshell_protocol::SessionName;
use farshell_protocol::session::Mode;
use std::time::Duration;

const ROUNDS: u32 = 50;

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
        let kinds = [
            "unavailable-before",
            "unavailable-after",
            "reset-before",
            "reset-after",
            "throttle",
            "cut",
            "cut-connection",
            "expired-jwt",
            "refused-token",
            "slow",
            "slow-start",
            "slow-exit-snapshot",
        ];
        let rpcs =
            ["", "Sandbox", "TaskExec", "TaskExecStdioRead", "TaskExecStdinWrite", "TaskSnapshot", "Image"];
        let (kind, rpc) = (self.of(&kinds), self.of(&rpcs));
        let (skip, count, ms, bytes) = (self.below(5), 1 + self.below(3), self.below(200), self.below(2000));
        format!(
            r#"{{"kind":"{kind}","rpc":"{rpc}","skip":{skip},"count":{count},"ms":{ms},"bytes":{bytes}}}"#
        )
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
    let mut env = rig.open().await;
    env.out("true").await;
    let (mut well, mut failed) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let faults: Vec<String> = (0..=chance.below(2)).map(|_| chance.fault()).collect();
        let faults = format!("[{}]", faults.join(","));
        rig.faults(&faults);
        match chance.below(5) {
            0 => env.0.outpost().disconnect(),
            1 => drop(rig.backend().find(&rig.spec()).await.map(|place| place.map(|place| place.identity()))),
            2 => {
                if let Ok(place) = rig.backend().provision(&rig.spec(), &()).await {
                    let _ = place.suspend().await;
                }
            }
            3 => rig.post("/emulator/move-router", ""),
            _ => {}
        }
        // As a keeper does: what is gone is provisioned anew, before anything is sent to it.
        if env.0.outpost().identity().await.is_err_and(|error| error.kind == Kind::Unavailable) {
            let defaults = SessionDefaults::plain(Mode::Live);
            if let Ok(next) = Environment::open(&rig.backend(), &rig.spec(), defaults).await {
                env.0 = next;
            }
        }
        let command = format!("echo {round} >> ~/ran; sleep 0.0{}; echo {round}", chance.below(10));
        let options = RunOptions::new(SessionName::new("main").unwrap(), command);
        let mut capture = Capture::unlimited();
        match env.0.run(&options, &mut capture).await {
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
        let all: Vec<String> = rig.running().await.into_iter().map(|one| one.id).collect();
        assert!(all.len() <= 1, "round {round} {faults}: {all:?}");
    }
    let ran = rig.open().await.out("cat ~/ran").await;
    let times = |round: u32| ran.lines().filter(|line| *line == round.to_string()).count();
    for round in well {
        assert_eq!(times(round), 1, "round {round}");
    }
    for (round, kind) in failed {
        let most = usize::from(!matches!(kind, Kind::NotStarted | Kind::Unavailable));
        assert!(times(round) <= most, "round {round}, {kind:?}: {}", times(round));
    }
}

/// Whoever makes, uses and puts a sandbox away is killed after each of its calls in turn.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_at_any_step_leaves_one_sandbox_and_every_file() {
    let Some(rig) = Rig::new() else { return };
    for fresh in [true, false] {
        let mut step = 1;
        loop {
            if fresh && let Some(place) = rig.backend().find(&rig.spec()).await.unwrap() {
                place.destroy().await.unwrap();
            }
            let before = rig.calls();
            let (backend, spec) = (rig.backend(), rig.spec());
            let doomed = tokio::spawn(async move {
                let place = backend.provision(&spec, &()).await.unwrap();
                drop(place.connect().await.unwrap());
                place.suspend().await.unwrap();
            });
            while rig.calls() < before + step && !doomed.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let lived = doomed.is_finished();
            doomed.abort();
            let _ = doomed.await;
            let env = rig.open().await;
            let all: Vec<String> = rig.running().await.into_iter().map(|one| one.id).collect();
            assert_eq!(all, [env.id()], "step {step}, fresh: {fresh}");
            let said = env.out("cat ~/steps 2>/dev/null | wc -l; echo step >> ~/steps").await;
            if !fresh {
                assert_eq!(said, (step - 1).to_string(), "step {step}: nothing is lost");
            }
            rig.place().await.suspend().await.unwrap();
            if lived {
                break;
            }
            step += 1;
        }
        assert!(step > 5, "{step}");
        rig.backend().find(&rig.spec()).await.unwrap().unwrap().destroy().await.unwrap();
        let none: [&str; 0] = [];
        assert_eq!(rig.images(), none, "no snapshot is left that nobody knows of, fresh: {fresh}");
    }
}
