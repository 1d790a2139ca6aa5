//! What a job does on its node.
//!
//! Everything that comes from settings is a quoted word, below the first command, where `sbatch` no longer looks for
//! options of its own.

use crate::layout::SOCKET;
use std::path::Path;
use std::time::Duration;

/// How often whoever listens to a stream says that it still does, and how many times in a row it may miss that.
pub(crate) const BEAT: Duration = Duration::from_secs(15);
const MISSED: u32 = 5;

/// What a script is made of.
#[derive(Clone, Debug)]
pub(crate) struct Script<'a> {
    pub(crate) home: &'a Path,
    /// Holds the mark of the job that is wanted.
    pub(crate) note: &'a Path,
    pub(crate) mark: &'a str,
    /// The directory of the node that the socket is in.
    pub(crate) door: &'a str,
    pub(crate) files: &'a Path,
    /// One of these has to be there.
    pub(crate) devices: &'a [&'a str],
    pub(crate) program: &'a Path,
    pub(crate) variables: Vec<(&'a str, &'a str)>,
    pub(crate) arguments: &'a [String],
}

const HEAD: &str = r#"#!/bin/sh
# The environment of a task of Farshell. It ends by itself when nobody needs it.
fatal() { printf 'FATAL: %s\n' "$*" >&2; exit 1; }
"#;

const BODY: &str = r#"node=$(uname -n)
[ -d "$home" ] || fatal "node $node does not see $home: Farshell's home has to be on a file system that all nodes share"
# Handed in twice, or no longer wanted.
{ read -r wanted <"$note"; } 2>/dev/null && [ "$wanted" = "$mark" ] || exit 0
[ -d "$files" ] || fatal "node $node does not see $files: scratch_dir has to be on a file system that all nodes share"
[ -x "$program" ] || fatal "node $node does not have $program: set singularity_binary to a path that all nodes have"
if [ -n "$devices" ]; then
    here=
    for device in $devices; do [ ! -e "$device" ] || here=yes; done
    [ -n "$here" ] || fatal "node $node has no GPU that can be used ($devices): ask for one with singularity_slurm.gpus"
fi
mkdir -m 700 "$door" || fatal "node $node: $door can't be made"
# Slurm ends all processes of a job at once; this one stays until the others are gone.
trap : TERM INT HUP
"#;

const TAIL: &str = r#" </dev/null &
child=$!
wait "$child"
status=$?
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    status=$?
done
rm -rf "$door"
exit "$status"
"#;

impl Script<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        let mut set = |name: &str, value: &str| text.push_str(&format!("{name}={}\n", quote(value)));
        set("home", &self.home.to_string_lossy());
        set("note", &self.note.to_string_lossy());
        set("mark", self.mark);
        set("door", self.door);
        set("files", &self.files.to_string_lossy());
        set("devices", &self.devices.join(" "));
        set("program", &self.program.to_string_lossy());
        text += BODY;
        text += "env -i";
        for (name, value) in &self.variables {
            text += &format!(" {}", quote(&format!("{name}={value}")));
        }
        text += " \"$program\"";
        for argument in self.arguments {
            text += &format!(" {}", quote(argument));
        }
        text + TAIL
    }
}

/// What runs beside the instance when somebody connects: waits for the socket, and is the bridge to it. The instance may
/// have put anything in its place, and a link could lead to another socket of this user.
///
/// Slurm does not tell it that `srun` was killed, or that its machine is gone, and the outpost would wait for ever for
/// somebody who is connected. So whoever listens writes something new into a file now and then, and removes it at the end.
pub(crate) fn bridge() -> String {
    let (beat, most) = (BEAT.as_secs(), MISSED);
    format!(
        r#"n=0
until [ -S "$1/{SOCKET}" ]; do
    n=$((n + 1))
    [ "$n" -lt 6000 ] || {{ echo "the outpost does not listen" >&2; exit 1; }}
    sleep 0.1
done
if [ -h "$1" ] || [ -h "$1/{SOCKET}" ]; then
    echo "something in the instance has put a link in the place of the outpost's socket" >&2
    exit 1
fi
exec 3<&0
"$2" join --dir "$1" --socket "$1/{SOCKET}" <&3 3<&- &
bridge=$!
exec 3<&-
(
    last= n=0
    while kill -0 "$bridge"; do
        sleep {beat}
        {{ read -r now <"$3"; }} || break
        if [ "$now" = "$last" ]; then n=$((n + 1)); else n=0; fi
        [ "$n" -lt {most} ] || break
        last=$now
    done
    kill "$bridge"
) </dev/null >/dev/null 2>&1 &
watch=$!
wait "$bridge"
status=$?
kill "$watch" 2>/dev/null
exit "$status"
"#
    )
}

/// One word for a shell, whatever is in it.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs a script whose program writes its arguments and variables down.
    fn run(change: impl FnOnce(&mut Script<'_>)) -> (i32, String, String) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("apptainer");
        std::fs::write(&program, "#!/bin/sh\nprintf '<%s>' \"$@\" \"$X\"\nexit 7\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let note = dir.path().join("job");
        std::fs::write(&note, "m1\n").unwrap();
        let door = dir.path().join("door").display().to_string();
        let arguments = ["a b", "it's", "$(id)", "x\n#SBATCH --wrap=id", ""].map(String::from);
        let mut script = Script {
            home: dir.path(),
            note: &note,
            mark: "m1",
            door: &door,
            files: dir.path(),
            devices: &[],
            program: &program,
            variables: vec![("X", "`id` '\n\"")],
            arguments: &arguments,
        };
        change(&mut script);
        let output = Command::new("/bin/sh").arg("-c").arg(script.text()).output().unwrap();
        assert!(!Path::new(&door).exists());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    #[test]
    fn words_stay_words() {
        let (code, said, _) = run(|_| ());
        assert_eq!((code, said.as_str()), (7, "<a b><it's><$(id)><x\n#SBATCH --wrap=id><><`id` '\n\">"));
    }

    #[test]
    fn nothing_that_sbatch_reads_comes_from_settings() {
        let text = Script {
            home: Path::new("/h\n#SBATCH --wrap=id"),
            note: Path::new("/n"),
            mark: "m",
            door: "/d",
            files: Path::new("/f"),
            devices: &[],
            program: Path::new("/p"),
            variables: Vec::new(),
            arguments: &[],
        }
        .text();
        // It stops at the first line that is a command.
        let first = text.lines().position(|line| !line.starts_with('#')).unwrap();
        assert!(text.lines().take(first).all(|line| !line.contains("SBATCH")));
        assert!(text.lines().nth(first).unwrap().starts_with("fatal()"));
    }

    #[test]
    fn one_that_is_no_longer_wanted_does_nothing() {
        assert_eq!(run(|script| script.mark = "m0"), (0, String::new(), String::new()));
        assert_eq!(run(|script| script.note = Path::new("/nowhere")), (0, String::new(), String::new()));
        let (code, _, said) = run(|script| script.home = Path::new("/nowhere"));
        assert!(code == 1 && said.contains("FATAL: node") && said.contains("all nodes share"), "{said}");
        let (code, _, said) = run(|script| script.devices = &["/dev/nowhere"]);
        assert!(code == 1 && said.contains("no GPU"), "{said}");
    }
}
