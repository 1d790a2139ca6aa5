//! One container a task: made once, found again, put away, brought back, removed.

use crate::rig::{Said, wait_until};
use crate::world::Docker;

#[test]
fn state_and_files_carry_over_calls_and_servers() {
    let Some(docker) = Docker::new() else { return };
    assert_eq!(docker.says("pwd; cd /workspace; export A=1; f() { echo f; }; echo kept > file"), "/root\n");
    let container = docker.container();
    assert_eq!(
        docker.says("f; echo $A $PWD; cat file; hostname"),
        format!("f\n1 /workspace\nkept\n{}\n", &container[..12])
    );
    let result = docker.json("true");
    assert_eq!(
        (result["backend"].as_str(), result["place"]["id"].as_str()),
        (Some("docker"), Some(container.as_str()))
    );
    let sleeper = docker.world().background(&[], "echo begun; sleep 1; echo ended; exit 3");
    docker.world().kill_server();
    assert_eq!(docker.says("f; echo $A"), "f\n1\n", "the shell is still the same");
    docker.stop_server();
    let waited = docker.world().call(&["wait", &sleeper]);
    assert_eq!(waited.code, 3, "{waited:?}");
    assert_eq!(docker.world().call(&["logs", &sleeper]).stdout, "begun\nended\n");
    assert_eq!(docker.says("f; echo $A"), "f\n1\n");
    assert_eq!(docker.container(), container);
}

#[test]
fn what_is_put_away_keeps_files_and_packages_and_says_that_shells_began_anew() {
    let Some(docker) = Docker::new() else { return };
    docker.says("cd /workspace; echo a > file; echo b > /root/file; echo c > /opt/package; export A=1");
    let container = docker.container();
    assert_eq!(docker.world().call(&["env", "stop"]).code, 0);
    assert!(!docker.is_running(&container));
    let list = docker.world().json(&["env", "list", "--json"]);
    assert_eq!(list["environments"][0]["state"], "stopped");
    let back = docker.json("cat /workspace/file /root/file /opt/package; echo ${A-unset}");
    assert_eq!(back["stdout"], "a\nb\nc\n1\n");
    assert_eq!(
        back["note"],
        "the session began anew: its environment was put away; its directory and exported variables are as they were"
    );
    assert_eq!(docker.container(), container, "the container is still the same");
    assert_eq!(docker.json("true").get("note"), None, "told once");
    // Removed: its own files are gone, the persistent ones stay, and it is said where.
    let said = docker.world().call(&["env", "rm"]);
    let sandbox = docker.sandbox();
    assert_eq!(said.code, 0);
    assert!(said.stderr.contains(sandbox.to_str().unwrap()) && said.stderr.contains("--files"), "{said:?}");
    assert_eq!(docker.containers(), Vec::<String>::new());
    assert_eq!(docker.says("cat /workspace/file /root/file; ls /opt"), "a\nb\n");
    assert_eq!(
        docker.world().call(&["env", "rm", "--files"]),
        Said { stdout: String::new(), stderr: String::new(), code: 0 }
    );
    assert!(!sandbox.join("workspace/file").exists() && !sandbox.join("home/file").exists());
    assert_eq!(docker.says("ls -A /workspace"), "");
}

#[test]
fn nothing_is_kept_of_what_is_not_persistent() {
    let Some(docker) = Docker::new() else { return };
    docker.config("container_persistent: false\nlifetime_seconds: 1");
    assert_eq!(docker.says("echo a > /workspace/file; cat /workspace/file"), "a\n");
    let container = docker.container();
    wait_until("it is removed", || !docker.containers().contains(&container));
    assert_eq!(docker.says("ls -A /workspace"), "");
    assert!(!docker.sandbox().exists());
}

#[test]
fn changed_settings_make_another_container_with_the_same_files_or_are_refused() {
    let Some(docker) = Docker::new() else { return };
    docker.says("echo a > /workspace/file; export A=1");
    let first = docker.container();
    docker.config("container_memory: 300");
    let changed = docker.json("cat /workspace/file; echo ${A-unset}");
    assert_eq!(changed["stdout"], "a\nunset\n");
    assert!(changed["note"].as_str().unwrap().contains("container_memory: 5120 -> 300"), "{changed}");
    let second = docker.container();
    assert_ne!(first, second);
    docker.config("on_spec_change: refuse\ncontainer_cpu: 2");
    let said = docker.world().call(&["run", "--json", "true"]);
    let error = &said.json()["error"];
    assert_eq!((said.code, error["kind"].as_str()), (125, Some("spec_changed")));
    assert!(error["message"].as_str().unwrap().contains("container_cpu: 1 -> 2"), "{error}");
    assert_eq!(docker.container(), second);
    let limits = &docker.world().json(&["env", "show", "--json"])["limits"];
    assert_eq!(
        (&limits["memory"]["value"], &limits["memory"]["support"]),
        (&"300 MB".into(), &"enforced".into())
    );
    assert_eq!(limits["processes"]["value"], "256");
}

#[test]
fn the_start_directory_can_be_shared_and_host_directories_are_found_where_they_are_mounted() {
    let Some(docker) = Docker::new() else { return };
    let work = docker.world().work();
    std::fs::write(work.join("mine"), "m").unwrap();
    docker.config("docker_mount_cwd_to_workspace: true");
    assert_eq!(docker.says("pwd; cat mine; echo out > made"), "/workspace\nm");
    assert_eq!(std::fs::read_to_string(work.join("made")).unwrap(), "out\n");
    let data = docker.world().user_home().join("data");
    std::fs::create_dir_all(data.join("sub")).unwrap();
    let volumes = serde_json::to_string(&[format!("{}:/data:ro", data.display())]).unwrap();
    let said = docker
        .world()
        .command(&["run", "-s", "other", "pwd; touch file 2>&1"])
        .env("TERMINAL_DOCKER_VOLUMES", volumes)
        .env("TERMINAL_CWD", data.join("sub"))
        .env("TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE", "false")
        .spawn()
        .unwrap();
    let said = crate::rig::finish(said);
    assert!(said.stdout.starts_with("/data/sub\n") && said.stdout.contains("Read-only"), "{said:?}");
}

#[test]
fn a_container_that_no_record_knows_is_swept_when_it_has_ended() {
    let Some(docker) = Docker::new() else { return };
    docker.config("docker_persist_across_processes: true");
    docker.says("true");
    let container = docker.container();
    docker.stop_server();
    // All records are lost; the container is alive, so its lease counts.
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(docker.world().hermes().join("farshell").join(name));
    }
    let found = docker.world().json(&["gc", "--json"]);
    assert_eq!(found["found"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(docker.container(), container, "it is only listed");
    docker.stop_server();
    // Somebody else's container of the same kind is none of our business.
    let image = std::env::var("FARSHELL_TEST_BUSYBOX").unwrap();
    let other = docker.docker(&[
        "create",
        "--label",
        "farshell.owner=/somebody/else",
        "--label",
        "farshell.task=default",
        &image,
        "true",
    ]);
    docker.docker(&["kill", &container]);
    wait_until("it has ended", || !docker.is_running(&container));
    docker.world().call(&["env", "list"]);
    wait_until("it is swept", || docker.containers().is_empty());
    assert_eq!(docker.docker(&["rm", &other]), other);
}

#[test]
fn a_container_that_is_not_to_outlive_the_server_is_stopped_with_it() {
    let Some(docker) = Docker::new() else { return };
    docker.config("docker_persist_across_processes: false");
    docker.says("echo a > /workspace/file");
    let container = docker.container();
    docker.stop_server();
    assert!(!docker.is_running(&container));
    assert_eq!(docker.says("cat /workspace/file"), "a\n");
    assert_eq!(docker.container(), container);
}

#[test]
fn the_doctor_asks_the_engine() {
    let Some(docker) = Docker::new() else { return };
    let said = docker.world().call(&["doctor", "docker", "--json"]);
    let report = said.json();
    assert_eq!((said.code, &report["backends"][0]["usable"]), (0, &true.into()), "{report}");
    // Three kinds of trouble, each with what to do.
    let nobody = docker
        .world()
        .command(&["doctor", "docker"])
        .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
        .spawn()
        .unwrap();
    let said = crate::rig::finish(nobody);
    assert_eq!(said.code, 1);
    assert!(said.stdout.contains("problem") && said.stdout.contains("do:"), "{said:?}");
    let run = docker
        .world()
        .command(&["run", "--json", "true"])
        .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
        .spawn()
        .unwrap();
    let said = crate::rig::finish(run);
    assert_eq!((said.code, said.json()["error"]["kind"].as_str().unwrap()), (125, "unavailable"));
}

#[test]
fn an_image_that_can_not_be_had_is_an_error_in_the_registrys_words() {
    let Some(docker) = Docker::new() else { return };
    let image = "127.0.0.1:9/farshell-test/nothing:1";
    let run = docker
        .world()
        .command(&["run", "--json", "true"])
        .env("TERMINAL_DOCKER_IMAGE", image)
        .spawn()
        .unwrap();
    let said = crate::rig::finish(run);
    let error = said.json()["error"].clone();
    assert_eq!(said.code, 125, "{said:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("127.0.0.1:9"), "{error}");
}
