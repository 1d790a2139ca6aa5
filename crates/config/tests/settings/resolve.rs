//! What the layers come to: precedence, defaults, values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::world::World;
use farshell_config::choice::{HomeMode, HostKeyPolicy, Isolation, ModalMode, OnSpecChange, SingularityGpu};
use farshell_config::settings::{DockerSettings, SshSettings, StartDirectory};
use farshell_config::table::{DEFAULT_IMAGE, SETTINGS};
use farshell_config::volume::Volume;
use farshell_config::{Backend, BackendKind, Config, Context, Settings, Source};

pub(crate) fn settings(world: &World) -> Settings {
    world.resolve().unwrap_or_else(|error| panic!("{error}")).settings
}

pub(crate) fn docker(world: &World) -> DockerSettings {
    match settings(world).backend {
        Backend::Docker(docker) => *docker,
        other => panic!("{other:?}"),
    }
}

fn ssh(world: &World) -> SshSettings {
    match settings(world).backend {
        Backend::Ssh(ssh) => *ssh,
        other => panic!("{other:?}"),
    }
}

#[test]
fn defaults() {
    let settings = settings(&World::new());
    assert_eq!(settings.backend.kind(), BackendKind::Local);
    assert_eq!(settings.cwd, StartDirectory::BackendDefault);
    assert_eq!(settings.timeout, Duration::from_secs(180));
    assert_eq!(settings.max_foreground_timeout, Duration::from_secs(600));
    assert_eq!(settings.lifetime, Duration::from_secs(300));
    assert!(!settings.persistent_shell);
    assert_eq!(settings.isolation, Isolation::Shared);
    assert_eq!(settings.on_spec_change, OnSpecChange::Recreate);
    assert_eq!(settings.sudo_password, None);
    assert_eq!(settings.term_grace, Duration::from_secs(2));
    assert_eq!(settings.log_cap, 256 * 1024 * 1024);
    let Backend::Local(local) = settings.backend else { panic!() };
    assert_eq!(local.home_mode, HomeMode::Auto);
    assert!(local.auto_source_bashrc);
}

#[test]
fn docker_defaults() {
    let world = World::new().yaml("terminal:\n  backend: docker\n");
    let docker = docker(&world);
    assert_eq!(docker.image, DEFAULT_IMAGE);
    assert_eq!(docker.cap_add, ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]);
    assert_eq!(docker.pids_limit, Some(256));
    assert!(docker.network && docker.persist_across_processes && docker.orphan_reaper);
    assert!(!docker.read_only && !docker.run_as_host_user && !docker.mount_cwd_to_workspace);
    assert_eq!(docker.container.cpu, Some(1.0));
    assert_eq!(docker.container.memory_mb, Some(5120));
    assert_eq!(docker.container.disk_mb, Some(51200));
    assert!(docker.container.persistent);
    assert_eq!(docker.sandbox_dir, world.context.home.root().join("sandboxes"));
    assert!(settings(&world).persistent_shell);
}

#[test]
fn every_default_is_a_value_of_its_type() {
    for backend in BackendKind::ALL {
        let world = World::new()
            .given("backend", backend.as_str())
            .env("TERMINAL_SSH_HOST", "h")
            .env("TERMINAL_SSH_USER", "u");
        assert_eq!(settings(&world).backend.kind(), *backend);
        assert_eq!(world.warnings(), Vec::<String>::new());
        for entry in world.load().list() {
            assert!(entry.problem.is_none(), "{:?}", entry.problem);
        }
    }
    let mut keys: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
    let mut variables: Vec<_> = SETTINGS.iter().flat_map(|setting| setting.variables()).collect();
    let (many, more) = (keys.len(), variables.len());
    keys.sort_unstable();
    keys.dedup();
    variables.sort_unstable();
    variables.dedup();
    assert_eq!((keys.len(), variables.len()), (many, more), "a key or variable is there twice");
}

#[test]
fn precedence() {
    let all = || {
        World::new()
            .dotenv("TERMINAL_TIMEOUT=10\n")
            .yaml("terminal:\n  timeout: 20\n")
            .env("TERMINAL_TIMEOUT", "30")
            .given("timeout", "40")
    };
    let seconds = |world: &World| settings(world).timeout.as_secs();
    let mut world = all();
    assert_eq!(seconds(&world), 40);
    world.context.overrides.clear();
    assert_eq!(seconds(&world), 30);
    world.context.environment.clear();
    assert_eq!(seconds(&world), 20);
    let world = world.yaml("");
    assert_eq!(seconds(&world), 10);
    let world = world.dotenv("");
    assert_eq!(seconds(&world), 180);

    let world = all();
    let explanation = world.load().explain("timeout").unwrap();
    let steps: Vec<String> = explanation
        .steps
        .iter()
        .map(|step| world.plain(&format!("{} from {}", step.value, step.source)))
        .collect();
    assert_eq!(
        steps,
        [
            "40 from the command line",
            "30 from TERMINAL_TIMEOUT in the environment",
            "20 from ~/config.yaml line 2",
            "10 from TERMINAL_TIMEOUT in ~/.env line 1",
            "180 from default",
        ]
    );
}

#[test]
fn an_empty_value_says_nothing() {
    let world = World::new()
        .env("TERMINAL_TIMEOUT", "")
        .yaml("terminal:\n  timeout:\n  ssh_key: \"\"\n  backend: ssh\n  ssh_user: u\n  ssh_host: h\n")
        .dotenv("TERMINAL_TIMEOUT=44\nTERMINAL_SSH_KEY=~/.ssh/k\n");
    assert_eq!(settings(&world).timeout.as_secs(), 44);
    assert_eq!(ssh(&world).key, Some(PathBuf::from("/home/ada/.ssh/k")));
    // An empty password is a password.
    assert_eq!(settings(&world.env("SUDO_PASSWORD", "")).sudo_password.unwrap().reveal(), "");
}

#[test]
fn backend_and_its_older_name() {
    let kind = |yaml: &str| settings(&World::new().yaml(yaml)).backend.kind();
    assert_eq!(kind("terminal:\n  env_type: docker\n"), BackendKind::Docker);
    assert_eq!(kind("terminal:\n  env_type: docker\n  backend: modal\n"), BackendKind::Modal);
    assert_eq!(kind("terminal:\n  backend: DayTona\n"), BackendKind::Daytona);
}

#[test]
fn persistent_shell() {
    let on = |world: World| settings(&world).persistent_shell;
    let docker = || World::new().given("backend", "docker");
    assert!(!on(World::new()));
    assert!(on(World::new().env("TERMINAL_LOCAL_PERSISTENT", "true")));
    assert!(on(World::new().yaml("terminal:\n  persistent_shell: true\n")));
    assert!(on(World::new().env("TERMINAL_PERSISTENT_SHELL", "1")));
    assert!(!on(World::new().env("TERMINAL_PERSISTENT_SHELL", "1").env("TERMINAL_LOCAL_PERSISTENT", "no")));
    assert!(on(World::new()
        .env("TERMINAL_LOCAL_PERSISTENT", "on")
        .yaml("terminal:\n  persistent_shell: false\n")));
    assert!(on(docker()));
    assert!(on(docker().env("TERMINAL_LOCAL_PERSISTENT", "false")));
    assert!(!on(docker().env("TERMINAL_PERSISTENT_SHELL", "off")));
    let ssh = World::new().yaml("terminal: {backend: ssh, ssh_host: h, ssh_user: u}\n");
    assert!(!on(ssh.env("TERMINAL_SSH_PERSISTENT", "0").env("TERMINAL_PERSISTENT_SHELL", "1")));
}

#[test]
fn a_hermes_file_works_unchanged() {
    let world = World::new().yaml(
        "model: gpt\nterminal:\n  backend: local\n  cwd: .\n  temp_dir: /tmp\ntool_output:\n  max_bytes: 5\napprovals: {mode: smart}\ncommand_allowlist: []\nsecurity:\n  redact_secrets: no\nmcp_servers: []\n",
    );
    assert_eq!(
        world.warnings(),
        [
            "terminal.temp_dir (~/config.yaml line 5) is not used: Farshell keeps its files in the place's own temporary directory"
        ]
    );
}

#[test]
fn forward_env_rules() {
    let world = World::new()
        .yaml("terminal:\n  backend: docker\n  docker_forward_env: [\" GITHUB_TOKEN \", 1BAD, A-B, '', NPM_TOKEN, GITHUB_TOKEN, [x], EMPTY]\n")
        .env("GITHUB_TOKEN", "shell")
        .env("EMPTY", "")
        .dotenv("GITHUB_TOKEN=file\nEMPTY=file\nNPM_TOKEN=npm\n");
    let names = docker(&world).forward_env;
    assert_eq!(names, ["GITHUB_TOKEN", "NPM_TOKEN", "EMPTY"]);
    let warnings: Vec<String> =
        world.warnings().into_iter().filter(|text| text.contains("docker_forward_env")).collect();
    assert_eq!(
        warnings,
        [
            r#"terminal.docker_forward_env (~/config.yaml line 3): "1BAD" can't be the name of a variable and is left out"#,
            r#"terminal.docker_forward_env (~/config.yaml line 3): "A-B" can't be the name of a variable and is left out"#,
            r#"terminal.docker_forward_env (~/config.yaml line 3): ["x"] can't be the name of a variable and is left out"#,
        ]
    );
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        world.load().forwarded(&names),
        [pair("GITHUB_TOKEN", "shell"), pair("NPM_TOKEN", "npm"), pair("EMPTY", "")]
    );
    assert_eq!(world.load().forwarded(&["NOBODY".to_owned()]), []);
    let from_text = World::new().given("backend", "docker").env("TERMINAL_DOCKER_FORWARD_ENV", "A, B,A");
    assert_eq!(docker(&from_text).forward_env, ["A", "B"]);
}

#[test]
fn volumes() {
    let parse = |text: &str| {
        docker(&World::new().given("backend", "docker").env("TERMINAL_DOCKER_VOLUMES", text)).volumes
    };
    let volume = |source: &str, target: &str, options: &[&str]| Volume {
        source: source.into(),
        target: target.into(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    };
    assert_eq!(
        parse(r#"["/a:/b", "~/c:/d:ro,z"]"#),
        [volume("/a", "/b", &[]), volume("/home/ada/c", "/d", &["ro", "z"])]
    );
    assert_eq!(
        parse("/a:/b,/c:/d:ro,z, name:/e"),
        [volume("/a", "/b", &[]), volume("/c", "/d", &["ro", "z"]), volume("name", "/e", &[])]
    );
    assert_eq!(parse("[]"), []);
    for bad in [r#"["/a"]"#, "/a", "/a:b", "/a:/b,z", "[\"/a:/b\"", r#"[{"a": 1}]"#, ":/b", "/a:/b:ro:x"] {
        let world = World::new().given("backend", "docker").env("TERMINAL_DOCKER_VOLUMES", bad);
        assert!(
            world.error().contains("is not a list of source:/target[:options]"),
            "{bad}: {}",
            world.error()
        );
    }
    // Written by programs that store the text of a list.
    let world = World::new().yaml("terminal:\n  backend: docker\n  docker_volumes: '[\"/a:/b\"]'\n");
    assert_eq!(docker(&world).volumes, [volume("/a", "/b", &[])]);
}

#[test]
fn docker_lists_and_maps() {
    let world = World::new().yaml(
        "terminal:\n  backend: docker\n  docker_env: {LANG: C, N: 3.10, T: true, 'a-b': x, L: [1]}\n  docker_cap_add: [package-install, cap_net_admin, chown]\n  docker_extra_args: ['--gpus', all]\n",
    );
    let docker_settings = docker(&world);
    let env: Vec<(&str, &str)> =
        docker_settings.env.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
    assert_eq!(env, [("LANG", "C"), ("N", "3.10"), ("T", "true")]);
    assert_eq!(docker_settings.cap_add, ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID", "NET_ADMIN"]);
    assert_eq!(docker_settings.extra_args, ["--gpus", "all"]);
    assert_eq!(world.warnings().len(), 2);
    let with = |variable: &str, text: &str| World::new().given("backend", "docker").env(variable, text);
    assert_eq!(docker(&with("TERMINAL_DOCKER_CAP_ADD", "strict")).cap_add, Vec::<String>::new());
    assert_eq!(
        with("TERMINAL_DOCKER_CAP_ADD", "NET_ADMN").error(),
        r#"terminal.docker_cap_add: "NET_ADMN" is not a list of Linux capabilities or of the sets package-install and strict (TERMINAL_DOCKER_CAP_ADD in the environment); did you mean NET_ADMIN?"#
    );
    let json = docker(&with("TERMINAL_DOCKER_ENV", r#"{"A": "x,y"}"#)).env;
    assert_eq!(json[0].1.reveal(), "x,y");
    assert_eq!(docker(&with("TERMINAL_DOCKER_ENV", "A=1,B=2")).env.len(), 2);
    // The text of an error must not show what the map holds.
    assert!(!with("TERMINAL_DOCKER_ENV", r#"{"TOKEN": "hunter2""#).error().contains("hunter2"));
}

#[test]
fn the_other_backends() {
    let world = World::new().yaml(
        "terminal:\n  backend: ssh\n  ssh_host: a.b\n  ssh_user: 1000\n  ssh_key: ~/.ssh/id\n  ssh_options: [Compression=yes]\n  ssh_jump: u@j:22\n  ssh_host_key_policy: strict\n  ssh_outpost_dir: ~/.far\n",
    );
    let ssh = ssh(&world);
    assert_eq!((ssh.host.as_str(), ssh.user.as_str(), ssh.port), ("a.b", "1000", 22));
    assert_eq!(ssh.key.as_deref(), Some(Path::new("/home/ada/.ssh/id")));
    assert_eq!(ssh.host_key_policy, HostKeyPolicy::Strict);
    assert_eq!(ssh.outpost_dir.as_deref(), Some("~/.far"));

    let world = World::new().yaml(
        "terminal:\n  backend: apptainer\n  singularity_image: ~/x.sif\n  singularity_gpu: nv\n  singularity_bind: [/data, '/a:/b:ro']\n  singularity_slurm:\n    partition: gpu\n    time: 01:30:00\n    cpus: 4\n    extra: [--exclusive]\n",
    );
    let Backend::Singularity(singularity) = settings(&world).backend else { panic!() };
    assert_eq!(singularity.image, "/home/ada/x.sif");
    assert_eq!(singularity.gpu, SingularityGpu::Nv);
    assert_eq!(singularity.bind[0].target, "/data");
    let slurm = singularity.slurm.unwrap();
    assert_eq!(
        (slurm.partition.as_deref(), slurm.time.as_deref(), slurm.cpus),
        (Some("gpu"), Some("01:30:00"), Some(4))
    );
    assert_eq!(slurm.extra, ["--exclusive"]);
    let world =
        World::new().yaml("terminal:\n  backend: singularity\n  singularity_slurm: {patition: gpu}\n");
    assert_eq!(
        world.error(),
        r#"terminal.singularity_slurm: "patition" is not a map with the keys partition, time, cpus, memory, gpus, account, extra (~/config.yaml line 3); did you mean partition?"#
    );

    let Backend::Modal(modal) =
        settings(&World::new().given("backend", "modal").given("modal_gpu", "H100:2")).backend
    else {
        panic!()
    };
    assert_eq!((modal.mode, modal.gpu.as_deref()), (ModalMode::Auto, Some("H100:2")));
    assert_eq!(modal.managed_connect_timeout, Duration::from_secs(1));
    let Backend::Daytona(daytona) = settings(&World::new().given("backend", "daytona")).backend else {
        panic!()
    };
    assert_eq!(daytona.image, DEFAULT_IMAGE);
}

#[test]
fn start_directories() {
    for placeholder in [".", "auto", "cwd"] {
        let settings = settings(&World::new().env("TERMINAL_CWD", placeholder));
        assert_eq!(settings.cwd.resolve(BackendKind::Local, Path::new("/here")), "/here");
        assert_eq!(settings.cwd.resolve(BackendKind::Ssh, Path::new("/here")), "~");
        assert_eq!(settings.cwd.resolve(BackendKind::Docker, Path::new("/here")), "/root");
    }
    assert_eq!(
        settings(&World::new().env("TERMINAL_CWD", "~/src")).cwd,
        StartDirectory::Path("/home/ada/src".into())
    );
    let ssh = World::new().yaml("terminal: {backend: ssh, ssh_host: h, ssh_user: u, cwd: ~/src}");
    assert_eq!(settings(&ssh).cwd, StartDirectory::Path("~/src".into()));
}

#[test]
fn credential_files_stay_in_the_home() {
    let with = |list: &str| {
        World::new().yaml(&format!("terminal:\n  backend: docker\n  credential_files: {list}\n"))
    };
    assert_eq!(settings(&with("[a/b.json]")).credential_files, [Path::new("a/b.json")]);
    assert_eq!(
        with("[a.json, ../x]").error(),
        r#"terminal.credential_files: "../x" is not a list of relative paths that stay inside the Hermes home (~/config.yaml line 3)"#
    );
    assert!(with("[/etc/shadow]").resolve().is_err());
}

#[test]
fn variables_in_the_file() {
    let world = World::new()
        .yaml("terminal:\n  backend: ssh\n  ssh_host: ${HOST_A}.${ZONE}\n  ssh_user: '${NOBODY_X}'\n  timeout: ${T}\n")
        .env("HOST_A", "build")
        .dotenv("ZONE=lan\nHOST_A=other\nT=33\n");
    assert_eq!(ssh(&world).host, "build.lan");
    assert_eq!(ssh(&world).user, "${NOBODY_X}");
    assert_eq!(settings(&world).timeout.as_secs(), 33);
}

#[test]
fn merged_maps_count_and_name_their_line() {
    let world = World::new().yaml("base: &b\n  timeout: 60\n  container_cpu: 2\nterminal:\n  <<: *b\n  container_cpu: 3\n  backend: docker\n");
    assert_eq!(settings(&world).timeout.as_secs(), 60);
    assert_eq!(docker(&world).container.cpu, Some(3.0));
    let steps = world.load().explain("timeout").unwrap().steps;
    assert!(matches!(steps[0].source, Source::File { line: 5, .. }), "{:?}", steps[0].source);
}

#[test]
fn secrets_are_never_shown() {
    let world = World::new()
        .yaml("terminal:\n  backend: docker\n  sudo_password: hunter2\n  docker_env: {API_TOKEN: hunter2, LANG: C}\nvendor: {api_key: hunter2, list: [{password: hunter2}]}\n")
        .env("SUDO_PASSWORD", "hunter2")
        .dotenv("SUDO_PASSWORD=hunter2\nDAYTONA_API_KEY=hunter2\n");
    let config = world.load();
    let resolved = config.resolve().unwrap();
    let mut shown = format!("{:?} {:?} {:?}", resolved.settings, resolved.warnings, config.list());
    for key in ["sudo_password", "docker_env", "SUDO_PASSWORD"] {
        shown.push_str(&format!("{:?}", config.explain(key).unwrap()));
    }
    for key in [
        "sudo_password",
        "docker_env",
        "docker_env.API_TOKEN",
        "DAYTONA_API_KEY",
        "vendor",
        "vendor.api_key",
        "vendor.list",
    ] {
        shown.push_str(&format!("{:?}", config.get(key).unwrap()));
    }
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(resolved.settings.sudo_password.unwrap().reveal(), "hunter2");
    assert_eq!(config.variable("DAYTONA_API_KEY").as_deref(), Some("hunter2"));
    let error = World::new().yaml("terminal:\n  sudo_password: [hunter2]\n").error();
    assert_eq!(error, "terminal.sudo_password: ******** is not text (~/config.yaml line 2)");
    let broken = World::new().yaml("terminal:\n  sudo_password: \"hunter2\n");
    assert!(!Config::load(broken.context).unwrap_err().to_string().contains("hunter2"));
}

#[test]
fn where_the_home_is() {
    let home = |pairs: &[(&str, &str)]| {
        let environment =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Context::from_environment(environment).map(|context| context.home.root().to_owned())
    };
    assert_eq!(home(&[("HOME", "/h")]).unwrap(), Path::new("/h/.hermes"));
    assert_eq!(home(&[("HOME", "/h"), ("HERMES_HOME", "")]).unwrap(), Path::new("/h/.hermes"));
    assert_eq!(home(&[("HOME", "/h"), ("HERMES_HOME", "~/x")]).unwrap(), Path::new("/h/x"));
    assert_eq!(home(&[("HERMES_HOME", "/y")]).unwrap(), Path::new("/y"));
    assert_eq!(
        home(&[]).unwrap_err().to_string(),
        "can't read HERMES_HOME: neither HERMES_HOME nor HOME is set"
    );
}
