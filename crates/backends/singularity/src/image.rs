//! Images: a file or directory of this machine, or a registry's, which is built into a file once and kept.
//!
//! While it is built, the file has another name, and whoever builds it holds a lock that its builder inherits: a build
//! whose owner was killed is waited for, and what it left is removed before the next begins.

use crate::config::Config;
use crate::error::{explain, plain};
use crate::layout::{images, make_private, remove, speakable};
use crate::program::Program;
use farshell_engine::backend::{News, Progress};
use farshell_engine::lock::Lock;
use farshell_engine::{Error, Kind, Result};
use rustix::process::{Pid, Signal};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};

const WHAT: &str = "looking for the image";
/// How long a build may take. Large images on slow networks take many minutes.
const BUILD: Duration = Duration::from_secs(2 * 3600);
/// How much of what a builder said is kept for the error.
const LOG: usize = 16 << 10;

/// Where Apptainer gets images from, other than files.
const SCHEMES: [&str; 9] =
    ["docker", "oras", "library", "shub", "http", "https", "docker-archive", "docker-daemon", "oci-archive"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file or directory that is there.
    Here(PathBuf),
    /// It has to be built; this is where it is then.
    Built(PathBuf),
}

/// What `singularity_image` means.
pub(crate) fn source(config: &Config) -> Result<Source> {
    let image = config.settings.image.as_str();
    let refuse = |kind, message: String, hint: &str| Err(Error::new(kind, WHAT, message).with_hint(hint));
    if image.contains(char::is_control) || image.starts_with('-') || image.is_empty() {
        return refuse(
            Kind::Invalid,
            format!("singularity_image is {image:?}"),
            "set it to a file or an address",
        );
    }
    if let Some((scheme, rest)) = image.split_once(':').filter(|(scheme, _)| SCHEMES.contains(scheme)) {
        if rest.trim_start_matches('/').is_empty() {
            return refuse(Kind::Invalid, format!("singularity_image is {image:?}"), "it names no image");
        }
        let _ = scheme;
        return Ok(Source::Built(images(config).join(file_name(image))));
    }
    let path = Path::new(image);
    if !path.is_absolute() {
        let message =
            format!("singularity_image is {image:?}, which is neither an absolute path nor an address");
        return refuse(Kind::Invalid, message, &format!("for an image of a registry: docker://{image}"));
    }
    match std::fs::metadata(path) {
        Ok(_) => Ok(Source::Here(path.to_owned())),
        Err(error) => Err(Error::io(format!("{WHAT} {image}"), error).with_hint(
            "set singularity_image to a .sif file, a sandbox directory, or an address such as docker://…",
        )),
    }
}

/// The file that an image is built into: readable, and another one for each address.
fn file_name(image: &str) -> String {
    let readable: String =
        image.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).take(80).collect();
    let digest = Sha256::digest(image);
    let mark: String = digest[..4].iter().map(|b| format!("{b:02x}")).collect();
    format!("{readable}-{mark}.sif")
}

/// The directory that an image is unpacked in. Others may share what that is in, and build the same image for themselves:
/// other users, and other homes of this one.
fn unpacking(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let digest = Sha256::digest(format!("{}\n{}", rustix::process::getuid().as_raw(), target.display()));
    let mark: String = digest[..4].iter().map(|b| format!("{b:02x}")).collect();
    format!("{name}-{mark}.tmp")
}

/// The image as a file or directory of this machine. It is built if it is not there.
pub(crate) async fn ensure(config: &Config, progress: &dyn Progress) -> Result<PathBuf> {
    let target = match source(config)? {
        Source::Here(path) => {
            speakable(&path)?;
            return Ok(path);
        }
        Source::Built(target) => target,
    };
    if target.is_file() {
        return Ok(target);
    }
    let (Some(dir), Some(name)) = (target.parent(), target.file_name()) else { return Ok(target) };
    make_private(dir)?;
    speakable(dir)?;
    let name = name.to_string_lossy();
    let image = &config.settings.image;
    let waiting =
        || progress.say(&News { message: format!("waiting until {image} is built by another"), part: None });
    let lock = Lock::take(&dir.join(format!("{name}.lock")), BUILD, waiting).await?;
    if target.is_file() {
        lock.remove();
        return Ok(target);
    }
    let tmp = ["APPTAINER_TMPDIR", "SINGULARITY_TMPDIR"].into_iter().find_map(|name| config.variable(name));
    let build = Build {
        part: dir.join(format!("{name}.part")),
        tmp: tmp.map_or(dir, Path::new).join(unpacking(&target)),
        lock: Some(lock),
        group: None,
    };
    build.run(config, &target, progress).await?;
    Ok(target)
}

/// A build. What it has made is removed when this is dropped, and its processes are ended before.
struct Build {
    part: PathBuf,
    /// Where the builder unpacks.
    tmp: PathBuf,
    lock: Option<Lock>,
    /// The builder's process group.
    group: Option<Pid>,
}

impl Build {
    async fn run(mut self, config: &Config, target: &Path, progress: &dyn Progress) -> Result<()> {
        let image = &config.settings.image;
        let what = format!("building {image}");
        let program = Program::find(config).await?;
        remove(&self.part)?;
        remove(&self.tmp)?;
        make_private(&self.tmp)?;
        progress.say(&News { message: what.clone(), part: None });
        let mut command = program.for_registry(config);
        command.arg("build").arg(&self.part).arg(image);
        command.envs(["APPTAINER_TMPDIR", "SINGULARITY_TMPDIR"].map(|name| (name, &self.tmp)));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        if let Some(lock) = &self.lock {
            command.stdin(lock.share()?);
        }
        let mut child = command.spawn().map_err(|e| Error::io(&what, e))?;
        self.group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let mut log = String::new();
        let follow = async {
            if let Some(stderr) = child.stderr.take() {
                let mut lines = BufReader::new(stderr).split(b'\n');
                while let Ok(Some(line)) = lines.next_segment().await {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    let news = plain(&line).replace("INFO:", "");
                    let message =
                        format!("{what}: {}", news.split_whitespace().collect::<Vec<_>>().join(" "));
                    progress.say(&News { message, part: None });
                    if log.len() + line.len() > LOG {
                        log.clear();
                    }
                    log.push_str(&line);
                    log.push('\n');
                }
            }
            child.wait().await
        };
        let status = match tokio::time::timeout(BUILD, follow).await {
            Ok(status) => status.map_err(|e| Error::io(&what, e))?,
            Err(_) => return Err(Error::new(Kind::TimedOut, what, "it takes too long")),
        };
        if !status.success() {
            return Err(explain(what, &log, &format!("the builder ended with {status}")));
        }
        std::fs::rename(&self.part, target).map_err(|e| Error::io(&what, e))
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        let (part, tmp, lock, group) =
            (std::mem::take(&mut self.part), std::mem::take(&mut self.tmp), self.lock.take(), self.group);
        let gone = || group.is_none_or(|group| rustix::process::test_kill_process_group(group).is_err());
        let finish = move || {
            let _ = remove(&part);
            let _ = remove(&tmp);
            if let Some(lock) = lock {
                lock.remove();
            }
        };
        if gone() {
            return finish();
        }
        // It was interrupted. Nobody builds it again before all of it is gone.
        std::thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(10);
            while let Some(group) = group
                && rustix::process::kill_process_group(group, Signal::KILL).is_ok()
                && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            finish();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;

    fn of(image: &str) -> Result<Source> {
        let mut config = sample();
        config.settings.scratch_dir = Some("/big".into());
        config.settings.image = image.into();
        source(&config)
    }

    #[test]
    fn addresses_have_a_file_each() {
        let name = |image: &str| match of(image).unwrap() {
            Source::Built(path) => path.to_string_lossy().into_owned(),
            other => panic!("{other:?}"),
        };
        assert!(name("docker://debian:12").starts_with("/big/images/docker___debian_12-"));
        assert_ne!(name("docker://a/b"), name("docker://a_b"));
        assert!(!name("docker://../../etc/passwd").contains("/.."), "{}", name("docker://../../etc/passwd"));
        assert!(name(&format!("oras://{}", "x".repeat(5000))).len() < 200);
    }

    #[test]
    fn two_builds_of_one_image_for_two_homes_never_meet() {
        let one = unpacking(Path::new("/home/a/images/x.sif"));
        assert!(one.starts_with("x.sif-") && one.ends_with(".tmp"), "{one}");
        assert_eq!(unpacking(Path::new("/home/a/images/x.sif")), one);
        assert_ne!(unpacking(Path::new("/home/b/images/x.sif")), one);
    }

    #[test]
    fn what_is_no_image_is_said_with_what_was_meant() {
        for (image, kind) in [
            ("", Kind::Invalid),
            ("--help", Kind::Invalid),
            ("docker://", Kind::Invalid),
            ("python:3.11", Kind::Invalid),
            ("/nowhere/x.sif", Kind::NotFound),
            ("docker://a\nb", Kind::Invalid),
        ] {
            assert_eq!(of(image).unwrap_err().kind, kind, "{image}");
        }
        assert!(of("python:3.11").unwrap_err().hint.unwrap().contains("docker://python:3.11"));
        assert_eq!(of("/").unwrap(), Source::Here("/".into()));
    }
}
