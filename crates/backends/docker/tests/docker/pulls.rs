//! Images that come from a registry, which is slow enough to be watched.

use crate::rig::{Env, Rig, var};
use farshell_engine::Kind;
use farshell_engine::backend::{Backend, News, Progress};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// An image of the registry's that the engine has not, and has no more afterwards.
struct Pulled {
    host: String,
    image: String,
}

impl Pulled {
    fn new(registry: &str, number: u32) -> Option<Self> {
        let image = format!("{}/farshell-test/pull-{number}:1", var(registry)?);
        Some(Self { host: var("FARSHELL_TEST_DOCKER")?, image })
    }

    fn rig(&self) -> Rig {
        Rig::on(&self.host, &self.image).unwrap()
    }
}

impl Drop for Pulled {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["-H", &self.host, "rmi", "-f", &self.image]).output();
    }
}

/// All that was said.
#[derive(Default)]
struct Said(Mutex<Vec<News>>);

impl Progress for Said {
    fn say(&self, news: &News) {
        self.0.lock().unwrap().push(news.clone());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_use_pulls_and_tells_how_far_it_is() {
    let Some(pulled) = Pulled::new("FARSHELL_TEST_REGISTRY", 1) else { return };
    let rig = pulled.rig();
    let said = Said::default();
    let (backend, spec) = (rig.backend(), rig.spec("default"));
    backend.provision(&spec, &said).await.unwrap();
    let said = said.0.into_inner().unwrap();
    let what = format!("pulling image {}", pulled.image);
    assert_eq!(said[0], News { message: what.clone(), part: None });
    let layers = |done| format!("{what} ({done} of 1 layers)");
    let parts: Vec<_> = said.iter().filter(|n| n.message == layers(0)).filter_map(|n| n.part).collect();
    // Some on the way, each further than the one before, and all at the end.
    assert!(parts.len() > 3 && parts.is_sorted() && parts[0].0 < parts[0].1, "{said:?}");
    let (done, all) = parts[parts.len() - 1];
    assert!(done == all && all > 12 << 20, "{said:?}");
    assert!(said.iter().any(|n| n.message == layers(1)), "{said:?}");
    assert_eq!(said[said.len() - 1].message, format!("making a container from {}", pulled.image));
    // It is there now, and never pulled again.
    let env = Env::open(&backend, &spec).await;
    assert_eq!(env.out("stat -c %s /noise/noise").await, (12 << 20).to_string());
    env.env.destroy().await.unwrap();
    let said = Said::default();
    backend.provision(&spec, &said).await.unwrap();
    let said = said.0.into_inner().unwrap();
    assert!(!said.iter().any(|news| news.message.contains("pulling")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_told_in_the_registrys_words() {
    let (Some(registry), Some(engine)) = (var("FARSHELL_TEST_REGISTRY"), var("FARSHELL_TEST_DOCKER")) else {
        return;
    };
    for (image, words) in [
        (format!("{registry}/farshell-test/none:1"), "manifest unknown"),
        (format!("{registry}/farshell-test/pull-1:9"), "manifest unknown"),
        ("127.0.0.1:9/farshell-test/pull-1:1".to_owned(), "connection refused"),
    ] {
        let rig = Rig::on(&engine, &image).unwrap();
        let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
        assert_eq!(
            (error.kind, error.operation.as_str()),
            (Kind::Unavailable, &*format!("pulling image {image}"))
        );
        assert!(error.message.contains(words) && error.hint.is_some(), "{error}");
        assert_eq!(rig.backend().survey().await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_registry_is_entered_with_what_docker_login_left() {
    let Some(pulled) = Pulled::new("FARSHELL_TEST_REGISTRY_PRIVATE", 2) else { return };
    let Some(registry) = var("FARSHELL_TEST_REGISTRY_PRIVATE") else { return };
    let mut rig = pulled.rig();
    let login = |rig: &mut Rig, text: &str| {
        let dir = rig.home.path().join("login");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("config.json"), text).unwrap();
        rig.config.environment.insert("DOCKER_CONFIG".into(), dir.display().to_string());
    };
    login(&mut rig, "{}");
    let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
    assert!(error.message.contains("no basic auth credentials"), "{error}");
    assert!(error.hint.as_deref().unwrap().contains("docker login"), "{error}");
    let auth = |password: &str| {
        let pair =
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("tester:{password}"));
        format!(r#"{{"auths":{{"{registry}":{{"auth":"{pair}"}}}}}}"#)
    };
    login(&mut rig, &auth("another"));
    let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
    assert!(error.message.contains("unauthorized") || error.message.contains("no basic auth"), "{error}");
    assert!(!error.to_string().contains("another"), "{error}");
    // A program that keeps the password, as desktops have it.
    let helper = rig.home.path().join("bin/docker-credential-test");
    program(&helper, r#"read registry; echo "{\"Username\":\"tester\",\"Secret\":\"test-password\"}""#);
    let path = format!("{}:{}", helper.parent().unwrap().display(), rig.config.environment["PATH"]);
    rig.config.environment.insert("PATH".into(), path);
    login(&mut rig, r#"{"credsStore":"test"}"#);
    let env = rig.open().await;
    env.env.destroy().await.unwrap();
    rig.docker(&["rmi", &pulled.image]);
    login(&mut rig, &auth("test-password"));
    assert_eq!(rig.open().await.out("ls /noise").await, "noise");
}

fn program(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
