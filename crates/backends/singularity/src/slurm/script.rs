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
/// How long an instance may take on its node until its outpost answers: without FUSE the image is unpacked first.
pub(crate) const START: Duration = Duration::from_secs(600);
/// The directory behind a door that the instance gets. What it puts there is not to be trusted.
pub(crate) const SHARED: &str = "s";

/// What a script is made of.
#[derive(Clone, Debug)]
pub(crate) struct Script<'a> {
    pub(crate) home: &'a Path,
    /// Holds the mark of the job that is wanted.
    pub(crate) note: &'a Path,
    pub(crate) mark: &'a str,
    /// The directory of the node that the socket's directory is in.
    pub(crate) door: &'a str,
    /// How long it may take until the outpost listens.
    pub(crate) start: Duration,
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
mkdir -m 700 "$door" && mkdir -m 700 "$shared" || fatal "node $node: $door can't be made"
# Slurm ends all processes of a job at once; this one stays until the others are gone.
trap : TERM INT HUP
"#;

const TAIL: &str = r#" </dev/null &
child=$!
# Without an outpost there is no lease, and nobody who could use the job. The directory is there as long as the child is.
(
    n=0
    while [ -d "$shared" ] && [ ! -S "$shared/$socket" ]; do
        if [ "$n" -eq "$start" ]; then
            echo "FATAL: the outpost does not listen after $start s" >&3
            kill "$child"
        elif [ "$n" -gt $((start + 10)) ]; then
            kill -9 "$child"
        fi
        n=$((n + 1))
        sleep 1 3>&-
    done
) </dev/null 3>&2 >/dev/null 2>&1 &
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
        set("shared", &format!("{}/{SHARED}", self.door));
        set("socket", SOCKET);
        set("start", &self.start.as_secs().to_string());
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
/// put anything in its place at any moment, and a link could lead to another socket of this user. So the socket gets a second
/// name, where the instance does not get: what that is stays what it is.
///
/// Slurm does not tell it that `srun` was killed, or that its machine is gone, and the outpost would wait for ever for
/// somebody who is connected. So whoever listens writes something new into a file now and then, and removes it at the end. A
/// file that is there and can't be read is that of somebody who missed it.
pub(crate) fn bridge(beat: Duration) -> String {
    let (beat, most) = (beat.as_secs_f64(), MISSED);
    format!(
        r#"n=0
until [ -S "$1/{SHARED}/{SOCKET}" ]; do
    n=$((n + 1))
    [ "$n" -lt 6000 ] || {{ echo "the outpost does not listen" >&2; exit 1; }}
    sleep 0.1
done
own=$1/$$
ln -f "$1/{SHARED}/{SOCKET}" "$own" || exit 1
if [ -h "$1" ] || [ -h "$own" ] || [ ! -S "$own" ]; then
    rm -f "$own"
    echo "something in the instance has put a link in the place of the outpost's socket" >&2
    exit 1
fi
exec 3<&0
"$2" join --dir "$1" --socket "$own" <&3 3<&- &
bridge=$!
exec 3<&-
(
    last= n=0
    while kill -0 "$bridge"; do
        sleep {beat}
        now=
        {{ read -r now <"$3"; }} || [ -e "$3" ] || [ ! -d "${{3%/*}}" ] || break
        if [ -z "$now" ] || [ "$now" = "$last" ]; then n=$((n + 1)); else n=0 last=$now; fi
        [ "$n" -lt {most} ] || break
    done
    kill "$bridge"
) </dev/null >/dev/null 2>&1 &
watch=$!
wait "$bridge"
status=$?
kill "$watch" 2>/dev/null
rm -f "$own"
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
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    /// A program that does this.
    fn program(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    /// Runs a script whose program writes its arguments and variables down.
    fn run(change: impl FnOnce(&mut Script<'_>)) -> (i32, String, String) {
        let dir = tempfile::tempdir().unwrap();
        run_in(dir.path(), "printf '<%s>' \"$@\" \"$X\"\nexit 7", change)
    }

    /// Runs a script whose program does this. Its door is a directory beside it.
    fn run_in(dir: &Path, text: &str, change: impl FnOnce(&mut Script<'_>)) -> (i32, String, String) {
        let program = program(dir, text);
        let note = dir.join("job");
        std::fs::write(&note, "m1\n").unwrap();
        let door = dir.join("door").display().to_string();
        let arguments = ["a b", "it's", "$(id)", "x\n#SBATCH --wrap=id", ""].map(String::from);
        let mut script = Script {
            home: dir,
            note: &note,
            mark: "m1",
            door: &door,
            start: START,
            files: dir,
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
    fn a_job_without_an_outpost_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (code, _, said) =
            run_in(dir.path(), "exec sleep 600", |script| script.start = Duration::from_secs(1));
        assert!(
            code == 143 && said.starts_with("FATAL: the outpost does not listen after 1 s\n"),
            "{code} {said}"
        );
    }

    #[test]
    fn a_job_with_an_outpost_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let _outpost = UnixListener::bind(dir.path().join("sock")).unwrap();
        let text = "cd \"${0%/*}\" && ln sock door/s/sock && sleep 5; exit 7";
        let (code, _, said) = run_in(dir.path(), text, |script| script.start = Duration::from_secs(4));
        assert_eq!((code, said.as_str()), (7, ""));
    }

    /// A door, and a bridge through it to a program.
    fn bridge_to(dir: &Path, text: &str, beat: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &bridge(Duration::from_millis(10)), "sh"]);
        command.arg(dir).arg(program(dir, text)).arg(beat);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[test]
    fn a_bridge_leads_to_what_the_instance_can_not_change_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s/sock");
        std::fs::create_dir(dir.path().join("s")).unwrap();
        let other = UnixListener::bind(dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("other"), &socket).unwrap();
        let beat = dir.path().join("beat");
        std::fs::write(&beat, "1\n").unwrap();
        let text = "rm \"$3/s/sock\"; test -S \"$5\" && echo \"${5#\"$3/\"}\"";
        let output = bridge_to(dir.path(), text, &beat).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains("has put a link"), "{said}");
        assert!(output.stdout.is_empty());
        std::fs::remove_file(&socket).unwrap();
        let _outpost = UnixListener::bind(&socket).unwrap();
        let output = bridge_to(dir.path(), text, &beat).output().unwrap();
        let name = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && name.trim().parse::<u32>().is_ok(), "{name:?}");
        assert!(!dir.path().join(name.trim()).exists());
        drop(other);
    }

    #[test]
    fn a_bridge_ends_when_nobody_listens_and_not_before() {
        use std::os::unix::fs::OpenOptionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["s", "bin"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        let _outpost = UnixListener::bind(path("s/sock")).unwrap();
        // A pause lasts as long as the test says: until it is told to end, and has said that it was.
        for name in ["tick", "tock"] {
            assert!(Command::new("mkfifo").arg(path(name)).status().unwrap().success());
        }
        let sleep = program(&path("bin"), "cd \"${0%/*}/..\"; read x <tick; timeout 60 sh -c 'echo >tock'");
        std::fs::rename(sleep, path("bin/sleep")).unwrap();
        let mut command = bridge_to(dir.path(), "exec cat", &path("beat"));
        command.env("PATH", format!("{}:/usr/bin:/bin", path("bin").display()));
        let mut bridge = command.spawn().unwrap();
        let (mut to, mut from) = (bridge.stdin.take().unwrap(), bridge.stdout.take().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        // What it finds after the next pause. False if there is none, because it has ended.
        let mut finds = |beat: &str| {
            let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
            loop {
                assert!(Instant::now() < deadline);
                match std::fs::OpenOptions::new().write(true).custom_flags(flags).open(path("tick")) {
                    Ok(mut tick) => {
                        std::fs::write(path("beat"), beat).unwrap();
                        tick.write_all(b"\n").unwrap();
                        drop(tick);
                        return std::fs::read(path("tock")).is_ok();
                    }
                    Err(_) if bridge.try_wait().unwrap().is_some() => return false,
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        };
        for beat in ["", "1\n", "", "2\n", "", "2\n", "", "", "3\n", "3\n", "4\n"] {
            assert!(finds(beat), "{beat:?}");
        }
        to.write_all(b"x").unwrap();
        let mut echo = [0];
        from.read_exact(&mut echo).unwrap();
        assert_eq!(&echo, b"x");
        let mut missed = 0;
        while finds("") {
            missed += 1;
        }
        assert_eq!(missed, MISSED);
        assert_eq!(from.read(&mut echo).unwrap(), 0);
    }

    #[test]
    fn nothing_that_sbatch_reads_comes_from_settings() {
        let text = Script {
            home: Path::new("/h\n#SBATCH --wrap=id"),
            note: Path::new("/n"),
            mark: "m",
            door: "/d",
            start: START,
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
