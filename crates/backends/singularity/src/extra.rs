//! Which arguments of `singularity_extra_args` are taken.
//!
//! They go to `apptainer exec` as they are. What would undo the containment, move the outpost's own files, or be taken
//! for the image is refused by name; so is what this release does not know.

use farshell_engine::{Error, Kind, Result};

const FLAGS: [&str; 18] = [
    "--allow-setuid",
    "--fakeroot",
    "-f",
    "--keep-privs",
    "--net",
    "-n",
    "--no-eval",
    "--no-privs",
    "--no-umask",
    "--nv",
    "--nvccli",
    "--oom-kill-disable",
    "--rocm",
    "--underlay",
    "--unsquash",
    "--userns",
    "-u",
    "--uts",
];

const VALUED: [&str; 18] = [
    "--add-caps",
    "--blkio-weight",
    "--blkio-weight-device",
    "--cpu-shares",
    "--cpuset-cpus",
    "--cpuset-mems",
    "--dns",
    "--drop-caps",
    "--fusemount",
    "--hostname",
    "--memory-reservation",
    "--netns-path",
    "--network",
    "--network-args",
    "--no-mount",
    "--pem-path",
    "--scratch",
    "--security",
];

/// What to use in the place of arguments that are Farshell's business.
const INSTEAD: [(&str, &str); 20] = [
    ("--bind", "singularity_bind"),
    ("-B", "singularity_bind"),
    ("--mount", "singularity_bind"),
    ("--env", "singularity_env"),
    ("--env-file", "singularity_env"),
    ("--cpus", "container_cpu"),
    ("--memory", "container_memory"),
    ("--memory-swap", "container_memory"),
    ("--pids-limit", "singularity_pids_limit"),
    ("--overlay", "container_persistent and singularity_disk_image"),
    ("-o", "container_persistent and singularity_disk_image"),
    ("--writable", "container_persistent"),
    ("-w", "container_persistent"),
    ("--writable-tmpfs", "container_persistent: false"),
    ("--workdir", "scratch_dir"),
    ("-W", "scratch_dir"),
    ("--home", "nothing: it is /root"),
    ("-H", "nothing: it is /root"),
    ("--pwd", "cwd"),
    ("--cwd", "cwd"),
];

/// The arguments, checked.
pub(crate) fn check(args: &[String]) -> Result<()> {
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg.as_str(), None),
        };
        if arg.contains(char::is_control) {
            return Err(refused(arg, "it holds control characters"));
        }
        if FLAGS.contains(&name) && value.is_none() {
            continue;
        }
        if VALUED.contains(&name) {
            if value.is_none() && rest.next().is_none_or(|value| value.starts_with('-')) {
                return Err(refused(arg, "its value is missing"));
            }
            continue;
        }
        if let Some((_, instead)) = INSTEAD.iter().find(|(other, _)| *other == name) {
            return Err(refused(arg, &format!("use {instead}")));
        }
        return Err(refused(
            arg,
            "it is not among those that are passed on; see docs/backends/singularity.md",
        ));
    }
    Ok(())
}

fn refused(arg: &str, why: &str) -> Error {
    let message = format!("singularity_extra_args holds {arg:?}: {why}");
    Error::new(Kind::Invalid, "preparing the singularity backend", message)
        .with_hint("change singularity_extra_args")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(args: &[&str]) -> Result<()> {
        check(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_known_is_taken_in_both_spellings() {
        of(&[]).unwrap();
        of(&["--fakeroot", "--net", "--network", "none", "--hostname=box", "-u"]).unwrap();
    }

    #[test]
    fn what_undoes_containment_or_moves_files_is_refused() {
        for args in [
            &["--no-pid"][..],
            &["--bind", "/:/host"],
            &["--home=/home/me"],
            &["--writable"],
            &["other.sif"],
            &["--hostname"],
            &["--hostname", "--fakeroot"],
            &["--sharens"],
            &["--fakeroot=no"],
            &["--"],
            &["--hostname=a\nb"],
            &[""],
        ] {
            let error = of(args).unwrap_err();
            assert_eq!(error.kind, Kind::Invalid, "{args:?}");
        }
        assert!(of(&["--bind", "/a"]).unwrap_err().message.contains("use singularity_bind"));
    }
}
