//! The old file or the new one, whatever is killed and whenever.

use crate::rig::{Rig, kill};
use farshell_tools::Nobody;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Each content is one letter, so that any mixture shows.
fn content(n: usize) -> String {
    let letter = char::from(b'a' + u8::try_from(n % 26).unwrap());
    format!("{}\n", letter.to_string().repeat(63)).repeat(20_000)
}

/// An outpost is there. Whether the one before it was killed may not be known yet, and then what is asked of it is lost.
async fn revive(rig: &Rig) {
    for _ in 0..20 {
        let answer = rig.call("terminal", json!({"command": "true"})).await;
        if !answer.failed {
            return;
        }
        assert_eq!(answer.result["error_kind"], "unknown_outcome");
    }
    panic!("it does not come back");
}

/// Calls a tool and kills the outpost at some moment of it.
async fn cut(rig: &Rig, tool: &str, arguments: Value, after: Duration) -> bool {
    let call = rig.circumstances("default", &Nobody);
    let victims = rig.outposts();
    let killing = async {
        tokio::time::sleep(after).await;
        victims.into_iter().for_each(kill);
    };
    let (answer, ()) = tokio::join!(rig.tools.call(tool, arguments, call), killing);
    answer.failed
}

/// After how long to kill in a round of a call that takes this long when nobody disturbs it: in the first ones from
/// before the first byte to after the last one, and in later ones further, should the machine have become slower.
fn moment(whole: Duration, round: usize) -> Duration {
    let round = u32::try_from(round).unwrap();
    whole * (round / (ROUNDS + 1) + 1) * (round % (ROUNDS + 1)) / 25
}

/// How many rounds there are in any case. More follow until both ends of a call were seen.
const ROUNDS: u32 = 30;
const MOST_ROUNDS: usize = 150;

/// No temporary file is taken for a file of the user's.
fn names(rig: &Rig) -> Vec<String> {
    let entries = std::fs::read_dir(rig.at("")).unwrap().flatten();
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_outpost_leaves_the_old_file_or_the_new_one() {
    let rig = Rig::new().await;
    rig.put("f", content(0));
    revive(&rig).await;
    let begun = Instant::now();
    rig.done("write_file", json!({"path": "f", "content": content(25)})).await;
    let whole = begun.elapsed();
    let (mut failed, mut done) = (0, 0);
    for round in 1..=MOST_ROUNDS {
        if round > ROUNDS as usize && failed > 0 && done > 0 {
            break;
        }
        revive(&rig).await;
        let old = rig.text("f");
        let new = content(round);
        let after = moment(whole, round);
        let (tool, arguments) = match round % 2 {
            0 => ("write_file", json!({"path": "f", "content": new})),
            _ => {
                let letter = &old[..1];
                let line = format!("{}\n", letter.repeat(63));
                let to = format!("{}\n", new[..1].repeat(63));
                ("patch", json!({"path": "f", "old_string": line, "new_string": to, "replace_all": true}))
            }
        };
        match cut(&rig, tool, arguments, after).await {
            true => failed += 1,
            false => done += 1,
        }
        let now = rig.text("f");
        assert!(
            now == old || now == new,
            "round {round}: {} bytes, neither the old file nor the new one",
            now.len()
        );
        assert_eq!(names(&rig), ["f"], "round {round}");
    }
    // Both were seen, or the test has tested nothing.
    assert!(failed > 0 && done > 0, "{failed} failed, {done} done");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_leaves_the_old_file_or_the_new_one() {
    let rig = Rig::new().await;
    rig.put("f", content(0));
    rig.run("true").await;
    for round in 1..=30 {
        let old = rig.text("f");
        let new = content(round);
        let call = rig.circumstances("default", &Nobody);
        let writing = rig.tools.call("write_file", json!({"path": "f", "content": new}), call);
        let after = Duration::from_micros(u64::try_from(round).unwrap() * 700);
        let _ = tokio::time::timeout(after, writing).await;
        // A write whose last byte was sent may be done a moment later; a reader never sees a part of it.
        for _ in 0..20 {
            let now = rig.text("f");
            assert!(now == old || now == new, "round {round}: {} bytes", now.len());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    rig.end().await;
}

/// A file that begins with a line of its own.
fn numbered(n: usize) -> String {
    format!("version {n}\n{}", content(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_of_many_files_leaves_each_old_or_new() {
    const FILES: [&str; 4] = ["a", "b", "c", "d"];
    let rig = Rig::new().await;
    FILES.iter().for_each(|name| drop(rig.put(name, numbered(0))));
    let (mut failed, mut done, mut mixed) = (0, 0, 0);
    let update = |round: usize, old: &[String]| {
        let section = |(name, old): (&&str, &String)| {
            let line = old.lines().next().unwrap();
            format!("*** Update File: {name}\n-{line}\n+version {round}\n")
        };
        let sections: String = FILES.iter().zip(old).map(section).collect();
        json!({"mode": "patch", "patch": format!("*** Begin Patch\n{sections}*** End Patch\n")})
    };
    let texts = || -> Vec<String> { FILES.iter().map(|name| rig.text(name)).collect() };
    revive(&rig).await;
    let begun = Instant::now();
    let call = rig.circumstances("default", &Nobody);
    assert!(!rig.tools.call("patch", update(1000, &texts()), call).await.failed);
    let whole = begun.elapsed();
    for round in 1..=MOST_ROUNDS {
        if round > ROUNDS as usize && failed > 0 && done > 0 {
            break;
        }
        revive(&rig).await;
        let old = texts();
        let ok = !cut(&rig, "patch", update(round, &old), moment(whole, round)).await;
        let new = numbered(round);
        let now = texts();
        for ((name, old), now) in FILES.iter().zip(&old).zip(&now) {
            assert!(now == old || *now == new, "round {round}: {name} has {} bytes", now.len());
        }
        let changed = now.iter().filter(|now| **now == new).count();
        assert!(
            !ok || changed == FILES.len(),
            "round {round}: {changed} of them, and it said that it was done"
        );
        mixed += usize::from(changed > 0 && changed < FILES.len());
        if ok {
            done += 1;
        } else {
            failed += 1;
        }
        let mut names = names(&rig);
        names.sort();
        assert_eq!(names, FILES, "round {round}");
    }
    assert!(failed > 0 && done > 0, "{failed} failed ({mixed} in the middle), {done} done");
    rig.end().await;
}
