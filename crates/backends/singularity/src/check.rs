//! Can this machine serve here and now?

use crate::config::Config;
use crate::image::{self, Source};
use crate::install::{PROGRAM, install, outpost};
use crate::layout::{ROOT, scratch};
use crate::limits;
use crate::program::Program;
use crate::slurm;
use farshell_engine::Error;
use farshell_engine::backend::Finding;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a first instance may take.
const TRY: Duration = Duration::from_secs(120);
/// So many files of scratch space are counted, and no more.
const COUNTED: usize = 200_000;

pub(crate) fn problem(error: &Error) -> Finding {
    let hint = error.hint.clone().unwrap_or_else(|| "see docs/backends/singularity.md".into());
    Finding::problem(error.message.clone(), hint)
}

pub(crate) async fn findings(config: &Config) -> Vec<Finding> {
    let program = match Program::find(config).await {
        Ok(program) => program,
        Err(error) => return vec![problem(&error)],
    };
    let mut findings =
        vec![Finding::good(format!("{} {} at {}", program.product, program.version, program.path.display()))];
    if program.is_old() {
        findings.push(Finding::warning(
            format!("{} {} is no longer maintained", program.product, program.version),
            "ask the administrator of this machine for Apptainer, which needs no setuid program",
        ));
    }
    if let Err(error) = crate::extra::check(&config.settings.extra_args) {
        findings.push(problem(&error));
    }
    match slurm::Options::of(config) {
        // What its nodes can do is not to be seen from here.
        Ok(Some(options)) => {
            findings.extend(slurm::findings(config, &options).await);
            findings.extend(image::source(config).err().map(|error| problem(&error)));
            findings.extend(space(config));
            return findings;
        }
        Ok(None) => {}
        Err(error) => findings.push(problem(&error)),
    }
    findings.extend(Host::this().findings(suid(&program).as_deref()));
    if config.settings.container.cpu.is_some() && limits::no_control_groups().is_none() && !limits::has_cpu()
    {
        findings.push(Finding::warning(
            format!("container_cpu is not enforced: {}", limits::NO_CPU),
            "ask the administrator of this machine: \"please set Delegate=cpu memory pids in \
             /etc/systemd/system/user@.service.d/delegate.conf\", or set container_cpu to 0",
        ));
    }
    if !limits::arguments(config).is_empty()
        && let Some(why) = limits::no_control_groups()
    {
        findings.push(Finding::warning(
            format!(
                "container_cpu is not enforced, and container_memory is for each process by itself: {why}"
            ),
            "it takes systemd and cgroup v2; otherwise leave limits to the batch system, or set them to 0",
        ));
    }
    let installed = outpost().and_then(|outpost| install(&config.home, outpost));
    match (&installed, &image::source(config)) {
        (Err(error), _) | (_, Err(error)) => findings.push(problem(error)),
        (Ok(dir), Ok(Source::Here(image))) => findings.push(attempt(config, &program, dir, image).await),
        (Ok(dir), Ok(Source::Built(file))) if file.is_file() => {
            findings.push(attempt(config, &program, dir, file).await);
        }
        (Ok(_), Ok(Source::Built(file))) => findings.push(Finding::warning(
            format!("{} is not built yet", config.settings.image),
            format!("it is built on first use, into {}", file.display()),
        )),
    }
    findings.extend(space(config));
    findings
}

/// The program's helper that gains root's rights, if it has one.
fn suid(program: &Program) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let real = std::fs::canonicalize(&program.path).ok()?;
    let prefix = real.parent()?.parent()?;
    let products = ["apptainer", "singularity"];
    let arch = std::env::consts::ARCH;
    let dirs = ["libexec".to_owned(), "lib".into(), format!("lib/{arch}-linux-gnu")];
    let files = dirs
        .iter()
        .flat_map(|dir| products.map(|product| prefix.join(dir).join(product).join("bin/starter-suid")));
    files
        .into_iter()
        .find(|file| std::fs::metadata(file).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o4000 != 0))
}

/// Where the kernel and its administrator say what they allow.
struct Host {
    /// `/proc/sys`
    sysctl: PathBuf,
    fuse: PathBuf,
    root: bool,
}

impl Host {
    fn this() -> Self {
        Self {
            sysctl: "/proc/sys".into(),
            fuse: "/dev/fuse".into(),
            root: rustix::process::getuid().is_root(),
        }
    }

    fn findings(&self, suid: Option<&Path>) -> Vec<Finding> {
        let number =
            |name: &str| std::fs::read_to_string(self.sysctl.join(name)).ok()?.trim().parse::<u64>().ok();
        let mut findings = Vec::new();
        let closed = [
            ("user/max_user_namespaces", 0, "sysctl user.max_user_namespaces=15000"),
            ("kernel/unprivileged_userns_clone", 0, "sysctl kernel.unprivileged_userns_clone=1"),
            (
                "kernel/apparmor_restrict_unprivileged_userns",
                1,
                "install Apptainer's AppArmor profile, or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            ),
        ];
        for (name, bad, cure) in closed {
            if number(name) != Some(bad) || self.root {
                continue;
            }
            let what = format!("users may make no namespaces here (/proc/sys/{name} is {bad})");
            let hint = format!(
                "ask the administrator of this machine: \"please {cure}, or install apptainer-suid\""
            );
            match suid {
                // With a profile it works all the same, and so does a program with root's rights.
                Some(path) => {
                    findings.push(Finding::warning(format!("{what}; {} stands in", path.display()), hint));
                }
                None if bad == 1 => findings.push(Finding::warning(what, hint)),
                None => findings.push(Finding::problem(what, hint)),
            }
        }
        let open = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
        if rustix::fs::access(&self.fuse, open).is_err() && suid.is_none() {
            findings.push(Finding::warning(
                "/dev/fuse can't be used: image files are unpacked for each start, which takes long, and \
                 singularity_disk_image does not work",
                "ask the administrator of this machine: \"please make /dev/fuse accessible to users (modprobe fuse, \
                 chmod 666 /dev/fuse)\", or use a sandbox directory as singularity_image",
            ));
        }
        findings
    }
}

/// Runs the outpost in the image, and nothing more.
async fn attempt(config: &Config, program: &Program, outpost: &Path, image: &Path) -> Finding {
    let mut command = program.command(config);
    command.args(["exec", "--containall", "--no-home", "--pwd=/"]).current_dir("/");
    if rustix::process::getuid().is_root() {
        command.arg("--userns");
    }
    command.arg(format!("--bind={}:{ROOT}/b:ro", outpost.display())).arg(image);
    command.args([&format!("{ROOT}/b/{PROGRAM}"), "--version"]);
    match tokio::time::timeout(TRY, command.output()).await {
        Ok(Ok(output)) if output.status.success() => {
            Finding::good(format!("the outpost runs in {}", config.settings.image))
        }
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            problem(&crate::error::explain(
                "trying an instance",
                &said,
                "the outpost does not run in the image",
            ))
        }
        Ok(Err(error)) => problem(&Error::io("trying an instance", error)),
        Err(_) => Finding::problem("an instance did not start in time", "is the image's file system slow?"),
    }
}

/// How much lies in scratch space.
fn space(config: &Config) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt;
    let dir = scratch(config);
    let (mut next, mut files, mut blocks) = (vec![dir.clone()], 0, 0_u64);
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            files += 1;
            blocks += meta.blocks();
            if meta.is_dir() {
                next.push(entry.path());
            }
        }
        if files > COUNTED {
            break;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let gb = blocks as f64 * 512.0 / 1e9;
    let most = config.settings.disk_warning_gb;
    (gb > most).then(|| {
        Finding::warning(
            format!("{} holds {gb:.0} GB, which is more than {most} (disk_warning_gb)", dir.display()),
            "`farshell env rm --files` removes what tasks keep; images that nobody needs can be deleted",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;
    use farshell_engine::backend::Severity;
    use std::os::unix::fs::PermissionsExt;

    /// A machine on which users can do all that is needed.
    fn host(dir: &Path) -> Host {
        let host = Host { sysctl: dir.join("sys"), fuse: dir.join("fuse"), root: false };
        std::fs::write(&host.fuse, "").unwrap();
        for name in ["user", "kernel"] {
            std::fs::create_dir_all(host.sysctl.join(name)).unwrap();
        }
        std::fs::write(host.sysctl.join("user/max_user_namespaces"), "15000\n").unwrap();
        host
    }

    fn told(host: &Host, suid: Option<&Path>) -> Vec<(Severity, String)> {
        let one = |finding: Finding| (finding.severity, format!("{} {:?}", finding.what, finding.hint));
        host.findings(suid).into_iter().map(one).collect()
    }

    #[test]
    fn a_machine_without_namespaces_has_a_sentence_for_its_administrator() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = host(dir.path());
        assert!(told(&host, None).is_empty());
        for (name, value, severity, cure) in [
            ("user/max_user_namespaces", "0\n", Severity::Problem, "user.max_user_namespaces=15000"),
            ("kernel/unprivileged_userns_clone", "0\n", Severity::Problem, "unprivileged_userns_clone=1"),
            ("kernel/apparmor_restrict_unprivileged_userns", "1\n", Severity::Warning, "AppArmor profile"),
        ] {
            let path = host.sysctl.join(name);
            let before = std::fs::read(&path).ok();
            std::fs::write(&path, value).unwrap();
            let found = told(&host, None);
            assert!(found.len() == 1 && found[0].0 == severity, "{found:?}");
            assert!(found[0].1.contains("please") && found[0].1.contains(cure), "{found:?}");
            // A program with root's rights does without.
            let found = told(&host, Some(Path::new("/usr/libexec/starter-suid")));
            assert!(found[0].0 == Severity::Warning && found[0].1.contains("starter-suid"), "{found:?}");
            host.root = true;
            assert!(told(&host, None).is_empty());
            host.root = false;
            std::fs::write(&path, before.unwrap_or_default()).unwrap();
        }
    }

    #[test]
    fn a_machine_without_fuse_is_slow() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        std::fs::remove_file(&host.fuse).unwrap();
        let found = told(&host, None);
        assert!(found.len() == 1 && found[0].0 == Severity::Warning, "{found:?}");
        assert!(found[0].1.contains("chmod 666 /dev/fuse"), "{found:?}");
        assert!(told(&host, Some(Path::new("/x"))).is_empty());
    }

    #[tokio::test]
    async fn an_old_singularity_is_told_and_its_helper_found() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        let mut config = sample();
        config.home = dir.path().join("h");
        config.settings.scratch_dir = Some(dir.path().join("s"));
        let binary = put("bin/singularity", "#!/bin/sh\necho singularity version 3.8.7\n", 0o755);
        config.settings.binary = Some(binary);
        let found = findings(&config).await;
        let old = |finding: &Finding| {
            finding.severity == Severity::Warning
                && finding.what == "singularity 3.8.7 is no longer maintained"
        };
        assert!(found.iter().any(old), "{found:?}");
        let program = Program::find(&config).await.unwrap();
        let helper = put("libexec/singularity/bin/starter-suid", "", 0o755);
        assert_eq!(suid(&program), None);
        std::fs::set_permissions(&helper, PermissionsExt::from_mode(0o4755)).unwrap();
        let real = std::fs::canonicalize(&helper).unwrap();
        // It is another user's if this one is not root.
        assert_eq!(suid(&program), rustix::process::getuid().is_root().then_some(real));
    }
}
