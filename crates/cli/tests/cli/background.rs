//! Background processes: started, listed, read, waited for, fed, killed.

use crate::rig::{World, fine, finish, is_running, said, unique_sleep, wait_until};
use serde_json::{Value, json};
use std::io::Read;

/// The states in which a world's processes are, by id.
fn states(world: &World, args: &[&str]) -> Vec<(String, String)> {
    let list = world.json(&[&["ps", "--json"], args].concat());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let processes = list["processes"].as_array().unwrap();
    processes.iter().map(|p| (text(&p["id"]), text(&p["state"]))).collect()
}

#[test]
fn it_returns_at_once_and_is_followed_later() {
    let world = World::new();
    let go = world.work().join("go");
    let command = "echo begun; while ! [ -e go ]; do sleep 0.05; done; echo err >&2; echo done; exit 3";
    let id = world.background(&[], command);
    assert!(id.starts_with("proc_") && id.len() == 21, "{id}");
    assert_eq!(states(&world, &[]), [(id.clone(), "running".into())]);
    assert_eq!(world.call(&["wait", "--timeout", "0.2", &id]).code, 124);
    wait_until("its output", || world.call(&["logs", &id]).stdout == "begun\n");
    std::fs::write(go, "").unwrap();
    assert_eq!(world.call(&["wait", &id]), said("", "", 3));
    assert_eq!(states(&world, &[]), []);
    assert_eq!(states(&world, &["--all"]), [(id.clone(), "ended".into())]);
    assert_eq!(world.call(&["logs", "--stdout", &id]), fine("begun\ndone\n"));
    assert_eq!(world.call(&["logs", "--stderr", &id]), fine("err\n"));
    assert_eq!(world.call(&["logs", &id]).stdout.len(), "begun\ndone\nerr\n".len());
    let waited = world.call(&["wait", "--json", &id]);
    assert_eq!((waited.code, &waited.json()["exit_code"]), (3, &json!(3)));
}

#[test]
fn json_has_the_whole_process() {
    let world = World::new();
    let process = world.json(&["run", "--background", "--json", "--task", "t", "echo x"]);
    for (field, expected) in [
        ("task", json!("t")),
        ("background", json!(true)),
        ("command", json!("echo x")),
        ("backend", json!("local")),
        ("pty", json!(false)),
    ] {
        assert_eq!(process[field], expected, "{field} in {process}");
    }
    let id = process["id"].as_str().unwrap();
    assert_eq!(world.call(&["wait", id]).code, 0);
    assert_eq!(states(&world, &["--all", "--task", "other"]), []);
    assert_eq!(states(&world, &["--all", "--task", "t"]).len(), 1);
}

#[test]
fn it_starts_from_the_session_and_leaves_it_alone() {
    let world = World::new();
    world.run("cd /usr; export A=1");
    let id = world.background(&[], "pwd; echo $A; cd /tmp; export A=2");
    assert_eq!(world.call(&["wait", &id]).code, 0);
    assert_eq!(world.call(&["logs", &id]), fine("/usr\n1\n"));
    assert_eq!(world.run("echo $PWD $A"), fine("/usr 1\n"));
}

#[test]
fn ids_may_be_shortened() {
    let world = World::new();
    let one = world.background(&[], "echo one");
    let two = world.background(&[], "echo two");
    world.call(&["wait", &one]);
    // As far as it takes to tell them apart.
    let common = one.chars().zip(two.chars()).take_while(|(a, b)| a == b).count();
    let short = &one[..=common];
    assert_eq!(world.call(&["logs", short]), fine("one\n"));
    assert_eq!(world.call(&["logs", short.strip_prefix("proc_").unwrap()]), fine("one\n"));
    let unclear = world.call(&["logs", &one[..common]]);
    assert_eq!((unclear.code, unclear.stdout.as_str()), (125, ""));
    assert!(unclear.stderr.contains(&one) && unclear.stderr.contains(&two), "{unclear:?}");
    for unknown in ["proc_", "xyz", "proc_0000000000000000"] {
        let missing = world.call(&["logs", unknown]);
        assert_eq!(missing.code, 125, "{missing:?}");
    }
    let missing = world.call(&["wait", "--json", "nosuch"]);
    assert_eq!((missing.code, &missing.json()["error"]["kind"]), (125, &json!("not_found")));
}

#[test]
fn logs_by_offset_and_by_line() {
    let world = World::new();
    let id = world.background(&[], "seq 1 1000");
    world.call(&["wait", &id]);
    let whole: String = (1..=1000).map(|i| format!("{i}\n")).collect();
    assert_eq!(world.call(&["logs", &id]), fine(&whole));
    assert_eq!(world.call(&["logs", "--since", "3890", &id]), fine(&whole[3890..]));
    assert_eq!(world.call(&["logs", "--since", "-5", &id]), fine("1000\n"));
    assert_eq!(world.call(&["logs", "-n", "2", &id]), fine("999\n1000\n"));
    let piece = world.json(&["logs", "--json", "--since", "3888", &id]);
    assert_eq!(
        (&piece["offset"], &piece["next"], &piece["total"], &piece["eof"], &piece["text"]),
        (&json!(3888), &json!(3893), &json!(3893), &json!(true), &json!("1000\n"))
    );
}

#[test]
fn much_output_is_read_whole() {
    let world = World::new();
    let id = world.background(&[], "seq 1 500000");
    world.call(&["wait", &id]);
    let whole: String = (1..=500_000).map(|i| format!("{i}\n")).collect();
    for args in [&["logs", id.as_str()][..], &["logs", "-f", &id], &["logs", "-f", "--stdout", &id]] {
        let said = world.call(args);
        assert!(said.stdout == whole && said.code == 0, "{args:?}: {} bytes", said.stdout.len());
    }
}

#[test]
fn following_has_everything_once() {
    let world = World::new();
    let command = "for i in $(seq 1 150); do echo out $i; echo err $i >&2; sleep 0.01; done";
    let id = world.background(&[], command);
    let lines = |word: &str, from: u32| -> String { (from..=150).map(|i| format!("{word} {i}\n")).collect() };
    wait_until("some output", || world.call(&["logs", &id]).stdout.len() > 200);
    let follow = |args: &[&str]| {
        let all = [&["logs", "-f"], args, &[id.as_str()]].concat();
        world.command(&all).spawn().unwrap()
    };
    let (all, out, err) = (follow(&[]), follow(&["--stdout"]), follow(&["--stderr", "--since", "6"]));
    let json = follow(&["--stderr", "--json"]);
    assert_eq!(finish(out), fine(&lines("out", 1)));
    assert_eq!(finish(err), fine(&lines("err", 1)[6..]));
    let all = finish(all);
    let of = |word: &str| -> String {
        all.stdout.lines().filter(|line| line.starts_with(word)).map(|line| format!("{line}\n")).collect()
    };
    assert_eq!((of("out"), of("err"), all.code), (lines("out", 1), lines("err", 1), 0));
    let json = finish(json);
    let mut text = String::new();
    let mut ended = false;
    for line in json.stdout.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert!(!ended);
        ended = value["ended"].is_object();
        if !ended {
            assert_eq!((&value["stream"], &value["offset"]), (&json!("stderr"), &json!(text.len())));
            text.push_str(value["text"].as_str().unwrap());
        }
    }
    assert_eq!((text, ended), (lines("err", 1), true));
}

#[test]
fn following_ends_with_ctrl_c_and_leaves_the_process() {
    use rustix::process::{Pid, Signal, kill_process};
    let world = World::new();
    let seconds = unique_sleep();
    let id = world.background(&[], &format!("echo begun; sleep {seconds}"));
    let mut child = world.command(&["logs", "-f", &id]).spawn().unwrap();
    let mut line = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(finish(child).code, 130);
    assert!(is_running(&seconds));
    assert_eq!(world.call(&["kill", "--grace", "0", &id]).code, 0);
    assert!(!is_running(&seconds));
}

#[test]
fn input_is_sent() {
    let world = World::new();
    let id = world.background(&[], "while read -r l; do echo \"got $l\"; done; echo end");
    assert_eq!(world.call(&["send", &id, "one"]), fine(""));
    assert_eq!(world.call(&["send", "--no-enter", &id, "t"]), fine(""));
    assert_eq!(world.call(&["send", &id, "wo"]), fine(""));
    assert_eq!(world.call(&["send", &id]), fine(""));
    assert_eq!(world.call_with_input(&["send", "--stdin", "--json", &id], b"three\nfour\n").code, 0);
    assert_eq!(world.call(&["send", "--eof", &id]), fine(""));
    assert_eq!(world.call(&["wait", &id]).code, 0);
    assert_eq!(world.call(&["logs", &id]), fine("got one\ngot two\ngot \ngot three\ngot four\nend\n"));
    let late = world.call(&["send", "--json", &id, "late"]);
    assert_eq!(late.code, 125, "{late:?}");
    assert!(late.json()["error"]["kind"].is_string());
}

#[test]
fn signals_and_kills() {
    let world = World::new();
    let seconds = unique_sleep();
    let caught = world
        .background(&[], &format!("trap 'echo caught; exit 5' USR1; echo ready; sleep {seconds} & wait"));
    wait_until("the trap", || world.call(&["logs", &caught]).stdout == "ready\n");
    assert_eq!(world.call(&["signal", &caught, "USR1"]), fine(""));
    assert_eq!(world.call(&["wait", &caught]).code, 5);
    assert_eq!(world.call(&["signal", &caught, "NOSUCH"]).code, 125);
    let stubborn = unique_sleep();
    let one = world.background(&[], &format!("trap '' TERM; sleep {stubborn}; sleep {stubborn}"));
    let two = world.background(&[], &format!("sleep {stubborn}"));
    wait_until("both", || is_running(&stubborn));
    // One that is not known kills none.
    assert_eq!(world.call(&["kill", &one, "nosuch"]).code, 125);
    assert_eq!(states(&world, &[]).len(), 2);
    let killed = world.json(&["kill", "--json", "--grace", "0.1", &one, &two]);
    for process in killed["processes"].as_array().unwrap() {
        assert_eq!(process["survivors"], json!(0), "{killed}");
        assert!(process["killed"].as_u64().unwrap() >= 1, "{killed}");
    }
    assert!(!is_running(&stubborn));
    assert_eq!(world.call(&["wait", &one]).code, 137);
    assert_eq!(world.call(&["wait", &two]).code, 143);
}

#[test]
fn a_timeout_can_go_to_the_background() {
    let world = World::new();
    world.run("true");
    let command = "echo begun; while ! [ -e go ]; do sleep 0.05; done; echo done; exit 4";
    let args = ["run", "--timeout", "3", "--on-timeout", "background", command];
    let promoted = world.call(&args);
    assert_eq!((promoted.code, promoted.stdout.as_str()), (124, "begun\n"), "{promoted:?}");
    let list = states(&world, &[]);
    let (id, state) = &list[0];
    assert_eq!((list.len(), state.as_str()), (1, "running"));
    assert!(promoted.stderr.contains(&format!("farshell logs -f {id}")), "{promoted:?}");
    let other = ["run", "--session", "s", "--json", "--timeout", "0.3", "--on-timeout", "background"];
    let object = world.call(&[&other[..], &["while ! [ -e go ]; do sleep 0.05; done"]].concat()).json();
    assert_eq!(
        (&object["backgrounded"], &object["timed_out"], &object["exit_code"]),
        (&json!(true), &json!(true), &json!(124))
    );
    std::fs::write(world.work().join("go"), "").unwrap();
    assert_eq!(world.call(&["wait", id]).code, 4);
    assert_eq!(world.call(&["logs", id]), fine("begun\ndone\n"));
    assert_eq!(world.call(&["wait", object["process_id"].as_str().unwrap()]).code, 0);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let world = World::new();
    for args in [
        &["run", "--background", "--stdin", "-", "cat"][..],
        &["run", "--background", "--on-timeout", "background", "cat"],
        &["run", "--watch", "x", "cat"],
        &["run", "--background", "--timeout", "0", "cat"],
        &["run", "--background", "--watch", "", "cat"],
    ] {
        let refused = world.call(args);
        assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    }
    assert_eq!(world.call(&["logs", "--stdout", "--stderr", "x"]).code, 2);
}

#[test]
fn events_tell_what_happened_once() {
    let world = World::new();
    let id = world.background(&["--notify", "--watch", "ready"], "echo starting; echo server ready; exit 6");
    assert_eq!(world.call(&["wait", &id]).code, 6);
    let of = |events: &Value, kind: &str| -> Vec<Value> {
        let all = events["events"].as_array().unwrap();
        all.iter().filter(|e| e["kind"] == kind && e["process_id"] == json!(id)).cloned().collect()
    };
    wait_until("the event", || !of(&world.json(&["events", "--json"]), "process_completed").is_empty());
    let events = world.json(&["events", "--json"]);
    let completed = of(&events, "process_completed");
    assert_eq!(completed.len(), 1, "{events}");
    assert_eq!(
        (&completed[0]["data"]["exit_code"], &completed[0]["data"]["notify_on_complete"]),
        (&json!(6), &json!(true))
    );
    let matched = of(&events, "watch_matched");
    assert_eq!(matched.len(), 1, "{events}");
    assert_eq!(matched[0]["data"]["line"], json!("server ready"));
    // For people: one line each.
    let shown = world.call(&["events"]);
    assert_eq!(shown.code, 0);
    let line = shown.stdout.lines().find(|line| line.contains("process completed")).unwrap().to_owned();
    assert!(line.contains(&id) && line.contains("exit 6"), "{line}");
    // A consumer sees each once, and others are not concerned.
    let seen = world.json(&["events", "--json", "--consumer", "a", "--ack"]);
    assert_eq!(of(&seen, "process_completed").len(), 1);
    let again = world.json(&["events", "--json", "--consumer", "a", "--ack"]);
    assert_eq!(of(&again, "process_completed").len(), 0, "{again}");
    let other = world.json(&["events", "--json", "--consumer", "b"]);
    assert_eq!(of(&other, "process_completed").len(), 1);
    let after = completed[0]["seq"].as_u64().unwrap();
    let later = world.json(&["events", "--json", "--after", &after.to_string()]);
    assert!(later["events"].as_array().unwrap().iter().all(|e| e["seq"].as_u64().unwrap() > after));
    assert_eq!(world.call(&["events", "--ack"]).code, 2);
}

#[test]
fn events_are_followed() {
    use std::io::{BufRead, BufReader};
    let world = World::new();
    let last = world.json(&["events", "--json"])["last"].as_u64().unwrap();
    let args = ["events", "-f", "--json", "--after", &last.to_string()];
    let mut child = world.command(&args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ids = Vec::new();
    for i in 0..3 {
        ids.push(world.background(&[], &format!("exit {i}")));
        loop {
            let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if event["kind"] == "process_completed" {
                assert_eq!((&event["process_id"], &event["data"]["exit_code"]), (&json!(ids[i]), &json!(i)));
                break;
            }
        }
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn garbage_is_shown_and_removed_only_when_that_is_wanted() {
    let world = World::new();
    assert_eq!(world.json(&["gc", "--json"])["found"], json!([]));
    // An outpost that no record knows: its server and its state are gone.
    let seconds = unique_sleep();
    world.background(&[], &format!("sleep {seconds}"));
    wait_until("the process", || is_running(&seconds));
    world.kill_server();
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(world.hermes().join("farshell").join(name));
    }
    let found = world.json(&["gc", "--json"]);
    assert_eq!((found["found"].as_array().unwrap().len(), &found["removed"]), (1, &json!(false)), "{found}");
    assert_eq!(found["found"][0]["backend"], json!("local"));
    let asked = world.call(&["gc"]);
    assert_eq!((asked.code, asked.stderr.as_str()), (0, "farshell: nothing was removed; --yes removes it\n"));
    assert!(asked.stdout.starts_with("BACKEND") && is_running(&seconds), "{asked:?}");
    assert_eq!(world.call(&["gc", "--yes"]).code, 0);
    assert!(!is_running(&seconds));
    assert_eq!(world.json(&["gc", "--json"])["found"], json!([]));
}

#[test]
fn environments_are_listed_shown_and_removed() {
    let world = World::new().with("TERMINAL_ISOLATION", "task");
    world.run("true");
    let seconds = unique_sleep();
    let id = world.background(&["--task", "two"], &format!("sleep {seconds}"));
    let list = world.json(&["env", "list", "--json"]);
    let keys = |list: &Value| -> Vec<String> {
        let mut keys: Vec<String> = list["environments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["key"].as_str().unwrap().to_owned())
            .collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&list), ["local/default", "local/two"]);
    let shown = world.json(&["env", "show", "two", "--json"]);
    assert_eq!(
        (&shown["key"], &shown["state"], &shown["background"]),
        (&json!("local/two"), &json!("ready"), &json!(1))
    );
    let text = world.call(&["env", "show", "local/two"]);
    assert!(text.stdout.starts_with("local/two\n") && text.stdout.contains("1 bg"), "{text:?}");
    let table = world.call(&["env", "list"]).stdout;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect())
        .collect();
    let head = ["ENVIRONMENT", "STATE", "SINCE", "RUNS", "USED", "ENDS IN", "PLACE", "TASKS"];
    assert_eq!((rows.len(), &rows[0][..]), (3, &head[..]), "{table}");
    assert!(rows[1][0] == "local/default" && rows[1][5].ends_with(['s', 'm']), "it has a lease: {table}");
    assert!(rows[2][0] == "local/two" && rows[2][5] == "-", "something runs: {table}");
    // What runs in it stands in the way of putting it away, not of removing it.
    let busy = world.call(&["env", "stop", "two"]);
    assert_eq!(busy.code, 125, "{busy:?}");
    assert!(is_running(&seconds));
    assert_eq!(world.call(&["env", "rm", "two"]), fine(""));
    assert!(!is_running(&seconds));
    let state = world.json(&["ps", "--json", "--all"])["processes"][0]["state"].clone();
    assert!(state == json!("ended") || state == json!("lost"), "{state}");
    assert_eq!(world.call(&["wait", &id]).code, if state == json!("lost") { 125 } else { 143 });
    assert_eq!(keys(&world.json(&["env", "list", "--json"])), ["local/default"]);
    assert_eq!(world.json(&["env", "rm", "--all", "--json"])["removed"], json!(["local/default"]));
    assert_eq!(keys(&world.json(&["env", "list", "--json"])), Vec::<String>::new());
    assert_eq!(world.call(&["env", "show", "two"]).code, 125);
}

#[test]
fn what_others_use_is_not_ended_for_one_task() {
    let world = World::new();
    world.run("export A=1");
    world.call(&["run", "--task", "two", "true"]);
    let refused = world.call(&["env", "rm", "two"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    assert!(refused.stderr.contains("also used by default"), "{refused:?}");
    assert_eq!(world.run("echo $A"), fine("1\n"));
    assert_eq!(world.call(&["env", "rm", "--force", "two"]), fine(""));
    assert_eq!(world.run("echo \"<$A>\""), fine("<>\n"));
}

#[test]
fn the_table_is_for_people() {
    let world = World::new();
    let id = world.background(&[], "exit 3");
    world.call(&["wait", &id]);
    assert_eq!(world.call(&["ps"]), fine(""));
    let table = world.call(&["ps", "--all"]);
    let rows: Vec<Vec<&str>> = table
        .stdout
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect())
        .collect();
    assert_eq!(rows[0], ["ID", "TASK", "STATE", "TIME", "COMMAND"], "{table:?}");
    assert_eq!(rows[1].first().copied(), Some(id.as_str()));
    assert_eq!((rows[1][1], rows[1][2], rows[1][4]), ("default", "exit 3", "exit 3"), "{table:?}");
    assert!(!table.stdout.contains('\x1b'));
}
