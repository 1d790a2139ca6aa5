//! An image that has to be fetched first, and what a person sees of it.

use crate::rig::finish;
use crate::world::{Docker, needed};
use std::process::{Command, Stdio};

#[test]
fn who_waits_for_an_image_sees_how_far_it_is() {
    let Some(registry) = needed("FARSHELL_TEST_REGISTRY") else { return };
    let Some(host) = needed("FARSHELL_TEST_DOCKER") else { return };
    let image = format!("{registry}/farshell-test/pull-3:1");
    let docker = Docker::on(&host, &image);
    // At a terminal, which util-linux's script plays.
    let rig = docker.world().command(&["run", "echo ran"]);
    let line = format!("{} run 'echo ran'", env!("CARGO_BIN_EXE_farshell"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env_clear().current_dir(docker.world().work());
    command.envs(rig.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = finish(command.spawn().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.ends_with("ran\r\n"), "{said:?}");
    let drawn: Vec<_> = said.stdout.split('\r').filter(|line| line.contains("░ ")).collect();
    assert!(
        drawn.len() > 3 && drawn.iter().all(|line| line.contains(" of ") && line.contains(" MB ")),
        "{said:?}"
    );
    assert!(said.stdout.contains("pulling image"), "{said:?}");
    assert_eq!(docker.world().call(&["env", "rm"]).code, 0);
    docker.docker(&["rmi", &image]);
    // Without one there is a line now and then, also for what starts in the background.
    let background = docker.world().call(&["run", "--background", "echo ran"]);
    assert_eq!(background.code, 0, "{background:?}");
    let expected = format!("farshell: pulling image {image} (0 of 1 layers): ");
    assert!(
        background.stderr.starts_with(&expected) && background.stderr.contains(" MB\n"),
        "{background:?}"
    );
    let id = background.stdout.trim();
    assert_eq!(docker.world().call(&["wait", id]).code, 0);
    assert_eq!(docker.world().call(&["logs", id]).stdout, "ran\n");
    assert_eq!(docker.world().call(&["env", "rm"]).code, 0);
    docker.docker(&["rmi", &image]);
}

#[test]
fn an_image_that_the_registry_has_not_is_told_in_its_words() {
    let Some(registry) = needed("FARSHELL_TEST_REGISTRY") else { return };
    let Some(host) = needed("FARSHELL_TEST_DOCKER") else { return };
    let image = format!("{registry}/farshell-test/none:1");
    let docker = Docker::on(&host, &image);
    for args in [&["run", "--json", "true"][..], &["run", "--background", "--json", "true"]] {
        let said = docker.world().call(args);
        assert_eq!(said.code, 125, "{said:?}");
        let error = &said.json()["error"];
        assert_eq!(error["kind"], "unavailable", "{error}");
        assert!(error["message"].as_str().unwrap().contains("manifest unknown"), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("docker_image"), "{error}");
    }
    assert_eq!(docker.containers(), Vec::<String>::new());
}
