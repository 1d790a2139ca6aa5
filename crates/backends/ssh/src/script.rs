//! What is run on the host: scripts for `sh`, sent over standard input, and what they answer.
//!
//! A login shell may be anything, and a `ForceCommand` may have another shell or two read the same. What they get to read is
//! one line that means the same to all of them: `exec /bin/sh -c '…'` with no quote, dollar, backslash, exclamation mark or
//! line end inside. That line reads the script from standard input, by its length, and leaves what comes after it alone.
//!
//! Answers are lines that begin with a random word. Two halves of it are in the script, so that an echo of the script
//! is no answer. What comes before is somebody else's: a banner, a start file that talks.

use crate::config::Config;
use farshell_bundle::outposts;
use std::collections::BTreeMap;

/// A script and the word its answers begin with.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) word: String,
    pub(crate) text: String,
}

/// The beginning of each script: how it answers. Whatever was printed before ends here.
const VOICE: &str = r#"umask 077
say() { printf '%s%s %s\n' "$p" "$q" "$*"; }
echo
"#;

/// What there is to know about the host.
const PRELUDE: &str = r#"one() { printf %s "$1" | tr '\n\r' '  ' | cut -c1-400; }
home=${HOME:-}
case $home in /*) ;; *) home= ;; esac
cache=${XDG_CACHE_HOME:-}
case $cache in /*) ;; *) cache=$home/.cache ;; esac
case $given in
  '') base=$cache/farshell ;;
  '~') base=$home ;;
  '~/'*) base=$home/${given#??} ;;
  /*) base=$given ;;
  *) base=$home/$given ;;
esac
case $given in
  ''|'~'*|[!/]*) [ -n "$home" ] || base= ;;
esac
system=$(uname -s) arch=$(uname -m) name=$(uname -n)
machine=$(cat /etc/machine-id 2>/dev/null || cat /var/lib/dbus/machine-id 2>/dev/null)
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
case $machine in *[!A-Za-z0-9._-]*) machine=$(printf %s "$machine" | tr -cd 'A-Za-z0-9._-') ;; esac
case $name in *[!A-Za-z0-9._-]*) name=$(printf %s "$name" | tr -cd 'A-Za-z0-9._-') ;; esac
mark=$(printf %s "${machine:-$name} $boot" | cksum)
mark=${mark%% *}
run=$base/run
say system "$system"
say arch "$arch"
say name "$name"
say machine "$machine"
say boot "$boot"
user=$(id -u)
say user "$user"
say base "$base"
say mark "$mark"
"#;

/// Names the outpost and the directory of a task, and says what is there.
const LOOK: &str = r#"bin=$base/outposts/$hash/farshell-outpost
dir=$run/$task-$mark
say dir "$dir"
say bin "$bin"
if [ -d "$dir" ]; then say present; fi
have=no
if [ -n "$hash" ] && [ -f "$bin" ] && [ -x "$bin" ] && [ -O "$bin" ]; then
  n=$(wc -c <"$bin")
  if [ $((n)) = "$size" ]; then
    have=yes
    # One that runs is as it was when it was started.
    if ! [ -S "$dir/sock" ]; then case $(sum "$bin") in "$want"|'') ;; *) have=no ;; esac; fi
  fi
fi
if [ -n "$known" ] && [ "$known" != "${machine:-$name}/$user" ]; then
  have=no
  say other
fi
say have "$have"
"#;

/// The hash of a file, or nothing where no program can tell.
const SUM: &str = r#"sum() {
  s=$(sha256sum "$1" 2>/dev/null || shasum -a 256 "$1" 2>/dev/null || busybox sha256sum "$1" 2>/dev/null || openssl dgst -sha256 -r "$1" 2>/dev/null)
  printf %s "${s%% *}"
}
"#;

/// Notes whose directories end with this mark, so that those of an earlier start are known later.
const NOTE: &str = r#"if [ "$have" = yes ] && mkdir -p "$run" 2>/dev/null && [ ! -e "$run/.host-$mark" ]; then
  printf '%s %s\n' "${machine:-$name}" "$boot" >"$run/.host-$mark.$$" 2>/dev/null && mv -f "$run/.host-$mark.$$" "$run/.host-$mark" 2>/dev/null
  rm -f "$run/.host-$mark.$$"
fi
"#;

const START: &str = r#"if [ "$have" = yes ]; then
  if e=$("$bin" start --dir "$dir" --lease "$lease" </dev/null 2>&1); then say started; else say failed "$? $(one "$e")"; fi
fi
"#;

const STREAM: &str = r#"if [ "$have" = yes ]; then
  say stream
  exec "$bin" connect --dir "$dir" --lease "$lease"
fi
"#;

/// The same where everything is known, and nothing has to be found out again but whether this is the same start of the
/// same machine: others may share the files.
const AGAIN: &str = r#"read -r b </proc/sys/kernel/random/boot_id
if [ "$b" = "$boot" ] && [ -S "$dir/sock" ] && [ -x "$bin" ]; then
  say stream
  exec "$bin" connect --dir "$dir" --lease "$lease"
fi
"#;

const UPLOAD: &str = r#"fail() { say failed "$1" "$(one "$2")"; [ -z "${t:-}" ] || rm -f "$t"; say end; exit 0; }
d=$base/outposts/$hash
bin=$d/farshell-outpost
e=$(mkdir -p "$d" 2>&1) || fail directory "$e"
if ! [ -O "$base" ] || ! [ -O "$d" ]; then fail owner "$base"; fi
# What a host that lost its power keeps of earlier attempts. None takes a day.
find "$d" -name '.new-*' -mtime +0 -exec rm -f {} + 2>/dev/null
say ready
t=$d/.new-$q
e=$( { cat >"$t"; } 2>&1) || fail write "$e"
n=$(wc -c <"$t")
[ $((n)) = "$size" ] || fail short "$((n)) $e"
s=$(sum "$t")
if [ -z "$s" ]; then say unverified "$t"; say end; exit 0; fi
[ "$s" = "$want" ] || fail sum "$s"
"#;

/// Goes on after [`UPLOAD`], or after what was written has been read back.
const COMMIT: &str = r#"chmod 700 "$t" || fail write 'chmod'
e=$("$t" --version 2>&1 </dev/null) || fail run "$? $e"
e=$(mv -f "$t" "$bin" 2>&1) || fail write "$e"
say done
"#;

const LIST: &str = r#"for f in "$run"/.host-*; do
  [ -f "$f" ] || continue
  read -r m b <"$f" && say host "${f##*-}" "$m" "$b"
done
for d in "$run"/*-"$owner"-*; do
  [ -d "$d" ] || continue
  alive=no
  i=$(ls -i "$d/lock" 2>/dev/null)
  set -- $i
  if [ -n "${1:-}" ] && grep -q ":$1 " /proc/locks 2>/dev/null; then alive=yes; fi
  t=$(stat -c %Y "$d/sock" 2>/dev/null || stat -c %Y "$d" 2>/dev/null)
  say found "$alive" "$(($(date +%s) - ${t:-0}))" "${d##*/}"
done
"#;

const WAIT: &str = r#"n=0
while [ -e "$dir" ] && [ $n -lt 150 ]; do sleep 0.1 2>/dev/null || { sleep 1; n=$((n + 9)); }; n=$((n + 1)); done
if [ -e "$dir" ]; then say left; else say gone; fi
"#;

const CHECK: &str = r#"if command -v bash >/dev/null 2>&1; then say bash; fi
if [ -d /proc/self/fd ]; then say proc; fi
if grep -qs '^[[:space:]]*KillUserProcesses=yes' /etc/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf; then say killer; fi
"#;

/// What is wanted of the host.
#[derive(Clone, Debug)]
pub(crate) enum Wish<'a> {
    /// To see whether the task's outpost is there.
    Look,
    /// To have it running, if this is the machine that is known, or none is (an empty text).
    Start { lease: u64, known: &'a str },
    /// The same, and its stream on this session.
    Stream { lease: u64, known: &'a str },
    /// To have the stream of an outpost that was there a moment ago.
    Again { bin: &'a str, dir: &'a str, boot: &'a str, lease: u64 },
    /// To take the outpost for this architecture from standard input.
    Upload { arch: &'a str },
    /// To give back what was written, byte by byte.
    ReadBack { path: &'a str },
    /// To take what was written for good.
    Commit { arch: &'a str, path: &'a str },
    /// To say what there is of this owner.
    List { owner: &'a str },
    /// To remove what an earlier start left.
    RemoveOld { name: &'a str },
    /// To say when a directory is gone.
    Wait { dir: &'a str },
    /// To say what else matters.
    Check,
}

/// A word for `sh`, whatever is in it.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Script {
    /// The script for a wish. `task` is the beginning of the names of the task's directories.
    pub(crate) fn new(config: &Config, task: &str, wish: &Wish<'_>) -> Self {
        let mut random = [0_u8; 16];
        // Without random numbers nothing else works either; an answer that can be guessed is still an answer.
        let _ = getrandom::fill(&mut random);
        let random = crate::room::hex(&random);
        let (p, q) = ("farshell-", random.as_str());
        let known = match wish {
            Wish::Start { known, .. } | Wish::Stream { known, .. } => known,
            _ => "",
        };
        // Read as a whole, and then run with what comes after it as its standard input.
        let mut text = format!("{{\np={p}; q={q}; task={}; known={}\n{VOICE}", quote(task), quote(known));
        if !matches!(wish, Wish::Again { .. }) {
            let given = config.settings.outpost_dir.as_deref().unwrap_or_default();
            text += &format!("given={}\n{SUM}{PRELUDE}{}", quote(given), arches());
        }
        match wish {
            Wish::Look => text += LOOK,
            Wish::Start { lease, .. } => text += &format!("lease={lease}\n{LOOK}{NOTE}{START}"),
            Wish::Stream { lease, .. } => text += &format!("lease={lease}\n{LOOK}{NOTE}{STREAM}"),
            Wish::Again { bin, dir, boot, lease } => {
                let (bin, dir, boot) = (quote(bin), quote(dir), quote(boot));
                text += &format!("bin={bin} dir={dir} boot={boot} lease={lease}\n{AGAIN}");
            }
            Wish::Upload { arch } => text += &format!("arch={}\n{}{UPLOAD}{COMMIT}", quote(arch), arches()),
            Wish::ReadBack { path } => text += &format!("say ready\nexec cat {}\n", quote(path)),
            Wish::Commit { arch, path } => {
                let fail = UPLOAD.lines().take(3).collect::<Vec<_>>().join("\n");
                text += &format!("arch={}\n{}{fail}\nt={}\n{COMMIT}", quote(arch), arches(), quote(path));
            }
            Wish::List { owner } => text += &format!("owner={}\n{LIST}", quote(owner)),
            Wish::RemoveOld { name } => text += &format!("rm -rf -- \"$run/\"{}\n", quote(name)),
            Wish::Wait { dir } => text += &format!("dir={}\n{WAIT}", quote(dir)),
            Wish::Check => text += &format!("{LOOK}{CHECK}"),
        }
        text += "say end\n} <&3 3<&-\n";
        Self { word: format!("{p}{q} "), text }
    }

    /// What the login shell is asked to run.
    pub(crate) fn command(&self) -> String {
        format!("exec /bin/sh -c 'exec 3<&0; dd bs=1 count={} 2>/dev/null | /bin/sh'", self.text.len())
    }
}

/// Which outpost is for which architecture.
fn arches() -> String {
    let mut text = String::from("hash= size=0 want=\ncase $arch in\n");
    for outpost in outposts() {
        let others = match outpost.arch {
            "x86_64" => "|amd64",
            "aarch64" => "|arm64",
            _ => "",
        };
        let (hash, size) = (outpost.hash, outpost.bytes.len());
        text += &format!("  {}{others}) hash={} size={size} want={hash} ;;\n", outpost.arch, &hash[..16]);
    }
    text + "esac\n[ \"$system\" = Linux ] || hash=\n"
}

/// The answers of a script, by their first word.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) by_name: BTreeMap<String, Vec<String>>,
}

impl Answers {
    pub(crate) fn add(&mut self, line: &str) {
        let line = line.trim_end_matches('\r');
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        self.by_name.entry(name.to_owned()).or_default().push(value.to_owned());
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.by_name.get(name).and_then(|values| values.first()).map_or("", String::as_str)
    }

    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn run(shell: &[&str], script: &Script, home: &str, more: &[u8]) -> (Answers, Vec<u8>) {
        let mut child = Command::new(shell[0])
            .args(&shell[1..])
            .arg(script.command())
            .env("HOME", home)
            .env_remove("XDG_CACHE_HOME")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(script.text.as_bytes()).unwrap();
        let _ = stdin.write_all(more);
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let mut answers = Answers::default();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some(line) = line.strip_prefix(&script.word) {
                answers.add(line);
            }
        }
        (answers, output.stdout)
    }

    #[test]
    fn the_command_has_nothing_that_a_shell_could_take_otherwise() {
        let command = Script::new(&sample(), "t-1", &Wish::Look).command();
        let inside = command.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(!inside.contains(['\'', '"', '$', '\\', '!', '\n', '`']), "{command}");
    }

    #[test]
    fn an_echo_of_the_script_is_no_answer() {
        let script = Script::new(&sample(), "t-1", &Wish::Check);
        assert!(!script.text.contains(script.word.trim()));
    }

    #[test]
    fn a_host_is_described() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().to_str().unwrap();
        let (answers, _) = run(&["sh", "-c"], &Script::new(&sample(), "t-1", &Wish::Look), home, b"");
        assert_eq!(answers.get("system"), "Linux");
        assert_eq!(answers.get("base"), format!("{home}/.cache/farshell"));
        assert_eq!(answers.get("have"), "no");
        assert!(!answers.has("present") && answers.has("end"));
        assert!(answers.get("dir").starts_with(&format!("{home}/.cache/farshell/run/t-1-")));
        for (given, base) in [("~/x y", "x y"), ("rel", "rel"), ("~", ""), ("it's", "it's")] {
            let mut config = sample();
            config.settings.outpost_dir = Some(given.into());
            let (answers, _) = run(&["sh", "-c"], &Script::new(&config, "t-1", &Wish::Look), home, b"");
            assert_eq!(
                answers.get("base").trim_end_matches('/'),
                format!("{home}/{base}").trim_end_matches('/')
            );
        }
        let (answers, _) = run(&["sh", "-c"], &Script::new(&sample(), "t-1", &Wish::Look), "", b"");
        assert_eq!(answers.get("base"), "", "no home, no place");
    }

    #[test]
    fn an_outpost_arrives_whole_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().to_str().unwrap();
        let arch = std::env::consts::ARCH;
        let bytes = farshell_bundle::for_arch(arch).unwrap().bytes;
        let wish = Wish::Upload { arch };
        let (answers, _) =
            run(&["sh", "-c"], &Script::new(&sample(), "", &wish), at, &bytes[..bytes.len() - 1]);
        assert!(answers.get("failed").starts_with("short"), "{answers:?}");
        let mut wrong = bytes.to_vec();
        wrong[5000] ^= 1;
        let (answers, _) = run(&["sh", "-c"], &Script::new(&sample(), "", &wish), at, &wrong);
        assert!(answers.get("failed").starts_with("sum"), "{answers:?}");
        let files = |dir: &std::path::Path| std::fs::read_dir(dir).unwrap().count();
        let dir = home.path().join(".cache/farshell/outposts");
        let dir = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
        assert_eq!(files(&dir), 0);
        let (answers, _) = run(&["sh", "-c"], &Script::new(&sample(), "", &wish), at, bytes);
        assert!(answers.has("done"), "{answers:?}");
        let (answers, _) = run(&["sh", "-c"], &Script::new(&sample(), "t-1", &Wish::Look), at, b"");
        assert_eq!(answers.get("have"), "yes");
        assert_eq!(files(&dir), 1);
    }
}
