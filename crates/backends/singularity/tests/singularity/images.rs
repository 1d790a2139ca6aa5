//! Images that are built: once, by one, and whole.

use crate::rig::{Rig, eventually, var};
use farshell_engine::Kind;
use farshell_engine::backend::{Backend, News, Progress};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Progress for Heard {
    fn say(&self, news: &News) {
        self.0.lock().unwrap().push(news.message.clone());
    }
}

/// An archive as `docker save` writes it, made of the files of busybox. Apptainer builds from it as it does from a
/// registry.
fn archive(dir: &Path) -> Option<PathBuf> {
    let root = var("FARSHELL_TEST_SANDBOX")?;
    let script = r#"
set -e
cd "$1"
mkdir layer && tar -C "$2" --exclude=./.singularity.d -cf layer/layer.tar .
sum=$(sha256sum layer/layer.tar | cut -d' ' -f1)
printf '{"architecture":"amd64","os":"linux","config":{"Env":["FROM_IMAGE=yes"],"Cmd":["sh"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$sum" >config.json
printf '[{"Config":"config.json","RepoTags":["busybox:1"],"Layers":["layer/layer.tar"]}]' >manifest.json
tar -cf image.tar manifest.json config.json layer
rm -r layer
"#;
    let status = std::process::Command::new("bash").args(["-c", script, "sh"]).arg(dir).arg(root).status();
    assert!(status.unwrap().success());
    Some(dir.join("image.tar"))
}

/// What lies in the cache, without directories that only Apptainer uses.
fn cached(rig: &Rig) -> Vec<String> {
    let entries = std::fs::read_dir(rig.home.path().join("s/images")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_built_once_and_whole_also_by_many_at_once() {
    let Some(rig) = Rig::busybox() else { return };
    let Some(tar) = archive(rig.home.path()) else { return };
    let mut rig = rig.with(|s| s.image = format!("docker-archive:{}", tar.display()));
    let own = rig.home.path().join("own").display().to_string();
    rig.config.environment.insert("HOME".into(), own);
    let heard = Heard::default();
    let made = {
        let (backend, other) = (rig.backend(), rig.backend());
        let (a, b) = (rig.spec("a"), rig.spec("b"));
        let (first, second) = tokio::join!(backend.provision(&a, &heard), other.provision(&b, &()));
        [first.unwrap(), second.unwrap()]
    };
    assert!(
        heard.0.lock().unwrap().iter().any(|text| text.contains("docker-archive")),
        "{heard:?}",
        heard = heard.0
    );
    let all = cached(&rig);
    assert!(all.len() == 1 && all[0].ends_with(".sif"), "{all:?}");
    let file = rig.home.path().join("s/images").join(&all[0]);
    let when = std::fs::metadata(&file).unwrap().modified().unwrap();
    for place in made {
        place.destroy().await.unwrap();
    }
    // It is not looked for where it came from.
    std::fs::remove_file(&tar).unwrap();
    assert_eq!(rig.open().await.out("echo $FROM_IMAGE").await, "yes");
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), when);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_fails_or_is_interrupted_leaves_nothing() {
    let Some(rig) = Rig::busybox() else { return };
    let broken = rig.home.path().join("broken.tar");
    std::fs::write(&broken, "no archive").unwrap();
    let rig = rig.with(|s| s.image = format!("docker-archive:{}", broken.display()));
    let error = rig.refusal().await;
    assert!(error.operation.starts_with("building docker-archive:") && error.hint.is_some(), "{error}");
    assert!(cached(&rig).is_empty(), "{:?}", cached(&rig));

    let tar = archive(rig.home.path()).unwrap();
    let rig = rig.with(|s| s.image = format!("docker-archive:{}", tar.display()));
    let (backend, spec) = (rig.backend(), rig.spec("default"));
    let building = tokio::spawn(async move { backend.provision(&spec, &()).await.map(|_| ()) });
    eventually("it has begun", || cached(&rig).iter().any(|name| name.ends_with(".tmp"))).await;
    building.abort();
    eventually("nothing is left", || cached(&rig).is_empty()).await;
    assert_eq!(rig.open().await.out("echo built").await, "built");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_can_not_be_reached_is_told_in_apptainers_words() {
    let Some(rig) = Rig::busybox() else { return };
    let rig = rig.with(|s| s.image = "docker://127.0.0.1:9/nobody/nothing:1".into());
    let error = rig.refusal().await;
    assert_eq!(error.operation, "building docker://127.0.0.1:9/nobody/nothing:1");
    assert!(error.message.contains("127.0.0.1:9") && error.hint.is_some(), "{error}");
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(cached(&rig).is_empty() && rig.noted().is_empty());
}
