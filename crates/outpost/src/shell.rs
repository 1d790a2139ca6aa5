//! One shell process, and the words with which it is driven.
//!
//! The shell reads its script from a pipe that only the outpost writes to. A command is evaluated at the top level
//! of the shell, so all it does to the shell lasts. Plain words go down that pipe as they are; for everything else
//! the outpost puts a script into a memory file and sends two short lines: source that file (it only sets
//! variables), evaluate one of them. Input, output and the report travel through pipes and memory files that the
//! shell opens under `/proc/<outpost>/fd/<n>`: nothing is inherited by what the command starts, nothing on a file
//! system can be removed or filled up, and a command that closes every descriptor closes none of ours.
//!
//! The shell's own standard output is the report pipe; while a command runs, bash keeps it aside where no child
//! gets it.
//!
//! A report carries a random token that only this shell's own variables and memory files know. What a
//! command prints is never looked at. The few builtins that say nothing but plain words (`echo hello`) need not be kept
//! from that pipe: what comes before the token is their output, and they can't know the token.

mod named;
mod pipe;
mod program;
mod state;

use crate::session::{VariableChange, change_variables};
use crate::sys::{self, Spawn, Stdio};
use crate::words::{MOST_PLAIN, is_pipeline, mentions_trap, quote};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub(crate) use named::{NamedPipe, name_of, script_file};
use named::{memory_file, refill};
use pipe::{PIPE_STATUS, statuses};
pub(crate) use program::Program;
pub(crate) use state::takeover;
use state::{BASH_OPTIONS, whole_state};

/// Commands up to this size travel inside the script; larger ones in a memory file of their own, which the
/// shell reads without parsing them twice.
const INLINE: usize = 256;
/// Commands beyond this size are sourced from that file, which is the fastest way. They are scripts rather than lines:
/// messages name the file and count the script's own lines, and `return` ends it.
const SOURCED: usize = 4096;

/// What a shell says on its report pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// It is there and waits.
    Ready { version: String },
    /// It has taken over a state.
    Restored { cwd: Vec<u8> },
    /// A command ended. If the shell is `leaving`, it ends too, as soon as it has written its state down.
    /// `pipe` says how the stages of its pipeline ended.
    End { number: u64, status: i32, pipe: u64, cwd: Vec<u8>, leaving: bool },
    /// A command printed this, and ended.
    Said { bytes: Vec<u8>, status: i32, cwd: Vec<u8> },
    /// A command did not begin: its directory can't be entered.
    NoDir { number: u64 },
    /// The state after a command has been written down.
    Saved { number: u64 },
}

/// What one command of a shell needs to know.
#[derive(Debug)]
pub(crate) struct Command<'a> {
    pub text: &'a [u8],
    pub stdin: Option<&'a OwnedFd>,
    pub stdout: &'a OwnedFd,
    /// Absent: stderr goes where stdout goes.
    pub stderr: Option<&'a OwnedFd>,
    pub workdir: Option<&'a [u8]>,
    /// Done to the shell before the command.
    pub variables: &'a [VariableChange],
    /// Where to return to after a command with a workdir.
    pub home: &'a [u8],
    /// `$?` as the command finds it.
    pub last_status: i32,
    /// Write the state down afterwards.
    pub save: bool,
    /// The shell ends with the command.
    pub one_shot: bool,
    /// Nothing but words that leave the shell as it is, without input: it needs no preparation.
    pub plain: bool,
    /// Plain, with nothing to say but plain words: it prints them where the report goes.
    pub direct: bool,
    /// The shell may have functions named like the builtins that are needed. Guarding against them costs a few
    /// bytes, and the shell reads its lines byte by byte.
    pub careful: bool,
}

#[derive(Debug)]
pub(crate) struct Shell {
    pub pid: u32,
    pub bash: bool,
    /// bash 4.4 and later can read a file into a variable as it is.
    mapfile: bool,
    control: OwnedFd,
    /// What the shell needs until it is ready: its end of the control pipe, and where it finds that.
    starting: Option<(OwnedFd, PathBuf)>,
    pub reports: NamedPipe,
    received: Vec<u8>,
    script: File,
    text: Option<File>,
    on_exit: File,
    /// States, written alternately, so that one is whole whenever the shell dies.
    states: [File; 3],
    token: String,
    pub number: u64,
    /// The pipes that the shell knows by name, for plain commands.
    plain_pipes: Option<[RawFd; 2]>,
    /// The command that runs prints where the report goes.
    direct: bool,
}

/// What a shell takes over to become a session's.
#[derive(Debug)]
pub(crate) struct Takeover<'a> {
    pub state: &'a [u8],
    pub cwd: &'a [u8],
    pub init_files: &'a [Vec<u8>],
    pub one_shot: bool,
    /// The session's output pipes, whose names stay the same for as long as the shell lives.
    pub pipes: Option<&'a [NamedPipe; 2]>,
}

/// 16 random characters.
pub(crate) fn token() -> String {
    let mut bytes = [0; 8];
    // Without randomness (a kernel that has none yet) the clock must do: the token guards against accidents.
    if getrandom::fill(&mut bytes).is_err() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        bytes = (now.tv_nsec.cast_unsigned() ^ now.tv_sec.cast_unsigned() << 32).to_le_bytes();
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Shell {
    /// Starts a shell that waits for its task. `dir` is a fresh directory of its own, which may be removed once
    /// the shell has said that it is ready.
    pub(crate) fn start(program: &Program, dir: PathBuf) -> io::Result<Self> {
        let (control_read, control) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&control, true)?;
        // The shell names its script in messages, so the pipe gets a name that a reader of "bash: line 1: …"
        // expects. Its own standard input stays free.
        std::fs::create_dir(&dir)?;
        std::os::unix::fs::symlink(name_of(&control_read), dir.join(program.name()))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let reports = NamedPipe::new()?;
        let argv: &[&str] =
            if program.bash { &["bash", "--noprofile", "--norc", "bash"] } else { &["sh", "sh"] };
        let argv: Vec<CString> = argv.iter().map(|a| CString::new(*a)).collect::<Result<_, _>>()?;
        let cwd = CString::new(dir.as_os_str().as_bytes())?;
        let pid = sys::spawn(&Spawn {
            program: program.path.as_os_str(),
            argv: &argv,
            // Nothing is inherited: variables come with the state that the shell takes over.
            env: &[],
            stdio: [Stdio::Fd(null.as_fd()), Stdio::Fd(reports.write.as_fd()), Stdio::Fd(null.as_fd())],
            cwd: Some(&cwd),
        })?;
        let shell = Self {
            pid,
            bash: program.bash,
            mapfile: false,
            control,
            starting: Some((control_read, dir)),
            reports,
            received: Vec::new(),
            script: memory_file("script")?,
            text: None,
            on_exit: memory_file("exit")?,
            states: [memory_file("state")?, memory_file("state")?, memory_file("state")?],
            token: token()[..8].to_owned(),
            number: 0,
            plain_pipes: None,
            direct: false,
        };
        let version = if program.bash { "\"$BASH_VERSION\"" } else { "-" };
        let ready = format!("cd /; printf '{} ready 0 %s\\0' {version}\n", shell.token);
        shell.send(ready.as_bytes())?;
        Ok(shell)
    }

    fn send(&self, line: &[u8]) -> io::Result<()> {
        // The pipe is empty or holds a few lines: a write of a hundred bytes is all or nothing.
        rustix::io::write(&self.control, line)?;
        Ok(())
    }

    /// `builtin` in bash keeps a user's function of that name out; other shells have no such word.
    fn builtin(&self) -> &'static str {
        if self.bash { "builtin " } else { "" }
    }

    /// Has the shell taken over a state, and set its traps.
    pub(crate) fn restore(&mut self, takeover: &Takeover<'_>) -> io::Result<()> {
        let &Takeover { state, cwd, init_files, one_shot, pipes } = takeover;
        self.plain_pipes = pipes.map(|pair| pair.each_ref().map(|p| p.read.as_raw_fd()));
        let builtin = self.builtin();
        let exit = self.exit_script(one_shot);
        refill(&self.on_exit, exit.as_bytes())?;
        let mut script = Vec::with_capacity(state.len() + 1024);
        if self.bash {
            script.extend_from_slice(b"__farshell_b=$BASHOPTS __farshell_o=$SHELLOPTS __farshell_d=\n");
        }
        script.extend_from_slice(state);
        if self.bash {
            script.extend_from_slice(BASH_OPTIONS.as_bytes());
        }
        script.extend_from_slice(format!("\n{KEEP_OLDPWD}{{ {builtin}cd -- ").as_bytes());
        quote(&mut script, cwd);
        script
            .extend_from_slice(format!(" || {builtin}cd || {builtin}cd /; }} >/dev/null 2>&1\n").as_bytes());
        script.extend_from_slice(PUT_OLDPWD.as_bytes());
        for file in init_files {
            script.extend_from_slice(b"[ -r ");
            quote(&mut script, file);
            script.extend_from_slice(format!(" ] && {builtin}. ").as_bytes());
            quote(&mut script, file);
            script.extend_from_slice(b" </dev/null >/dev/null 2>&1\n");
        }
        script.extend_from_slice(
            format!(
                "{builtin}trap '{own}{builtin}. {exit}' EXIT\n{builtin}trap '{builtin}exit 137' {term}\n{builtin}trap '{builtin}exit 130' {int}\n\
                 {builtin}set +e\n__farshell_n=0\n__fr='printf \"{token} plain 0 %s %s\\0\" \"$?\" \"$PWD\"'{plain}\n\
                 {builtin}printf '{token} restored 0 %s\\0' \"$PWD\" >{reports}\n{save}",
                save = if init_files.is_empty() {
                    String::new()
                } else {
                    let save = self.save_script(0, false, "0");
                    format!("{save}{builtin}printf '{} saved 0\\0' >{}\n", self.token, name_of(&self.reports.read))
                },
                // A child that is signalled between fork and exec still has the shell's traps.
                own = if self.bash { "[[ $BASHPID != \"$$\" ]] || " } else { "" },
                exit = name_of(&self.on_exit),
                term = crate::kill::SHELL_TERM,
                int = crate::kill::SHELL_INT,
                token = self.token,
                plain = pipes.map_or_else(String::new, |[out, err]| {
                    format!(" __fo={} __fe={}", name_of(&out.read), name_of(&err.read))
                }),
                reports = name_of(&self.reports.read),
            )
            .as_bytes(),
        );
        refill(&self.script, &script)?;
        self.send(format!("{builtin}. {}\n", name_of(&self.script)).as_bytes())
    }

    /// What the shell does when it ends, by `exit`, by `set -e`, or because it was told to: it reports, and
    /// writes down its state.
    fn exit_script(&self, one_shot: bool) -> String {
        let builtin = self.builtin();
        let own = if self.bash { "builtin trap - DEBUG RETURN ERR\n" } else { "" };
        let save = self.save_script(2, one_shot, "$__farshell_n");
        let save = if one_shot { format!("if [ \"$__farshell_d\" ]; then\n{save}fi\n") } else { save };
        format!(
            "__farshell_r=$?\n[ \"$__farshell_q\" ] && return\n{own}command exec </dev/null >/dev/null 2>&1\n\
             {builtin}printf '{token} exit %s %s %s\\0' \"$__farshell_n\" \"$__farshell_r\" \"$PWD\" >{reports}\n\
             {builtin}set +e\n{save}\
             {builtin}printf '{token} saved %s\\0' \"$__farshell_n\" >{reports}\n",
            token = self.token,
            reports = name_of(&self.reports.read),
        )
    }

    fn save_script(&self, slot: usize, one_shot: bool, number: &str) -> String {
        let what = match (self.bash, one_shot) {
            (true, false) => {
                "builtin declare -p; builtin declare -fp; builtin alias -p; builtin umask -p; builtin trap -p; \
                 builtin printf '__farshell_o=%q __farshell_b=%q\\n' \"$SHELLOPTS\" \"$BASHOPTS\""
            }
            (true, true) => "builtin export -p; builtin export -fp",
            // No shell but bash can print its functions.
            (false, false) => "set; export -p; printf 'umask '; umask",
            (false, true) => "export -p",
        };
        let builtin = self.builtin();
        format!(
            "{{ {builtin}unset __farshell __farshell_c; {builtin}printf '#begin %s\\n' \"{number}\"; {what}; \
             {builtin}printf '#end %s\\n' \"{number}\"; }} >{} 2>/dev/null\n",
            name_of(&self.states[slot])
        )
    }

    /// Runs a command; its number is [`Shell::number`] afterwards.
    pub(crate) fn run(&mut self, command: &Command<'_>) -> io::Result<()> {
        self.direct = command.direct;
        if self.direct {
            return self.send(&[command.text, b";eval \"$__fr\"\n"].concat());
        }
        if command.plain {
            // One line, so that the pipe is empty once the shell has begun. It keeps the number of the command before
            // it, as it keeps its state.
            // Redirected as a group, the shell opens the pipes: its child, which shares all memory with it until one of
            // them writes, would take a tenth of a short program's time for that.
            let mut lines = Vec::with_capacity(128);
            lines.extend_from_slice(b"{ ");
            if command.text.trim_ascii().is_empty() {
                // A group has something in it.
                lines.push(b':');
            } else if command.text.len() <= MOST_PLAIN {
                // Plain words mean the same without `eval`, and the shell reads each byte with a call of its own.
                lines.extend_from_slice(command.text);
            } else {
                let text = match self.text.take() {
                    Some(text) => text,
                    None => memory_file("command")?,
                };
                refill(&text, command.text)?;
                lines.extend_from_slice(format!(". {}", name_of(&text)).as_bytes());
                self.text = Some(text);
            }
            let stderr = if command.stderr.is_some() { "$__fe" } else { "&1" };
            lines.extend_from_slice(format!(";}} >$__fo 2>{stderr};eval \"$__fr\"\n").as_bytes());
            return self.send(&lines);
        }
        self.number += 1;
        let number = self.number;
        let builtin = self.builtin();
        // `builtin exec` would undo its redirections at once.
        let exec = if command.careful { "command exec" } else { "exec" };
        let reports = name_of(&self.reports.read);
        let token = &self.token;

        let mut what = Vec::with_capacity(command.text.len() + 256);
        // The shell forgets how the stages of a pipeline ended as soon as the `eval` around it has. So it is asked within
        // that, where the text is sure to be over: not by a line of a command that goes on.
        let piped = self.bash
            && command.text.len() <= SOURCED
            && is_pipeline(command.text)
            && !(command.one_shot && mentions_trap(command.text));
        let in_file = !piped && command.text.len() > if self.mapfile { INLINE } else { SOURCED };
        let sourced = command.text.len() > SOURCED;
        if piped {
            what.extend_from_slice(b"builtin eval '{ '");
            quote(&mut what, command.text);
            what.extend_from_slice(PIPE_STATUS.as_bytes());
        } else if in_file {
            let text = match self.text.take() {
                Some(text) => text,
                None => memory_file("command")?,
            };
            refill(&text, command.text)?;
            if sourced {
                let word = if self.bash { "builtin" } else { "command" };
                what.extend_from_slice(format!("{word} . {}", name_of(&text)).as_bytes());
            } else {
                what.extend_from_slice(b"builtin eval \"$__farshell_c\"");
            }
            self.text = Some(text);
        } else {
            // `command` keeps a syntax error from ending a plain sh.
            what.extend_from_slice(if self.bash { b"builtin eval " } else { b"command eval " });
            quote(&mut what, command.text);
        }
        let stdin = command.stdin.map_or_else(|| "/dev/null".to_owned(), name_of);
        let status = if piped { "\n: \"${__farshell_r:=$?}\"" } else { "\n__farshell_r=$?" };
        let stderr = command.stderr.map_or_else(|| "&1".to_owned(), name_of);
        // Standard output is set for the shell itself rather than for one word of it: it must still be there
        // when a trap on EXIT prints, after the redirections of words have been undone.
        let stdout = name_of(command.stdout);
        let redirections = format!(" <{stdin} 2>{stderr}{status}\n");

        let mut body = Vec::with_capacity(what.len() + 512);
        if let Some(dir) = command.workdir {
            body.extend_from_slice(format!("{KEEP_OLDPWD}if {builtin}cd -- ").as_bytes());
            quote(&mut body, dir);
            body.extend_from_slice(
                format!(" >/dev/null 2>{}; then\n", name_of(command.stderr.unwrap_or(command.stdout)))
                    .as_bytes(),
            );
        }
        body.extend_from_slice(format!("{exec} >{stdout}\n").as_bytes());
        if command.last_status != 0 && !command.one_shot {
            body.extend_from_slice(format!("({builtin}exit {})\n", command.last_status).as_bytes());
        }
        if command.one_shot {
            // Here standard error can stay as well: there is no trace (`set -x`) from an earlier command that
            // would show the outpost's own words.
            body.extend_from_slice(format!("{exec} 2>{stderr}\n").as_bytes());
            if command.last_status != 0 {
                body.extend_from_slice(format!("({builtin}exit {})\n", command.last_status).as_bytes());
            }
            body.extend_from_slice(&what);
            body.extend_from_slice(format!(" <{stdin}{status}\n").as_bytes());
            // A trap on EXIT has to print before the end is told, so a command that may have set one leaves by
            // the exit script. All others report right here, and nobody waits for the shell's last breath.
            if !mentions_trap(command.text) {
                let save =
                    if command.save { self.save_script(2, true, &number.to_string()) } else { String::new() };
                body.extend_from_slice(
                    format!(
                        "__farshell_q=1\n{exec} >{reports} 2>/dev/null\n\
                         {builtin}printf '{token} end {number} %s %s\\0' \"$__farshell_r\" \"$PWD\"\n\
                         {save}{builtin}printf '{token} saved {number}\\0'\n"
                    )
                    .as_bytes(),
                );
            }
            body.extend_from_slice(format!("{builtin}exit 2>/dev/null\n").as_bytes());
        } else {
            body.extend_from_slice(&what);
            body.extend_from_slice(redirections.as_bytes());
            // A function named `builtin` would stand in the way of everything that follows.
            let clear = if self.bash { "unset -f builtin\n" } else { "" };
            body.extend_from_slice(
                format!(
                    "{clear}{exec} >{reports}\n\
                     {builtin}printf '{token} end {number} %s %s\\0' \"$__farshell_r\" \"$PWD\"\n"
                )
                .as_bytes(),
            );
        }
        if command.workdir.is_some() {
            body.extend_from_slice(
                format!("else\n{exec} >{reports}\n{builtin}printf '{token} nodir {number}\\0'\nfi\n{builtin}cd -- ").as_bytes(),
            );
            quote(&mut body, command.home);
            body.extend_from_slice(format!(" >/dev/null 2>&1\n{PUT_OLDPWD}").as_bytes());
        }
        // `set -e` and `set -n` end with the command that set them: a shell that dies of the next typo, or
        // runs nothing any more, serves nobody.
        body.extend_from_slice(format!("{builtin}set +e +n\n").as_bytes());
        if command.save && !command.one_shot {
            body.extend_from_slice(
                self.save_script((number & 1) as usize, false, &number.to_string()).as_bytes(),
            );
            body.extend_from_slice(
                format!("{builtin}printf '{token} saved {number}\\0' >{reports}\n").as_bytes(),
            );
        }

        let mut script = Vec::with_capacity(body.len() * 5 / 4 + 64);
        script.extend_from_slice(
            format!(
                "__farshell_n={number} __farshell_r= __farshell_d={}\n",
                if command.save { "1" } else { "" }
            )
            .as_bytes(),
        );
        change_variables(&mut script, command.variables, self.bash);
        if in_file
            && !sourced
            && let Some(text) = &self.text
        {
            script.extend_from_slice(
                format!("builtin mapfile -t -d '' __farshell_c <{}\n", name_of(text)).as_bytes(),
            );
        }
        script.extend_from_slice(b"__farshell=");
        quote(&mut script, &body);
        script.push(b'\n');
        refill(&self.script, &script)?;

        let guard = if command.careful { builtin } else { "" };
        let lines = format!("{guard}. {}\n{guard}eval \"$__farshell\"\n", name_of(&self.script));
        self.send(lines.as_bytes())
    }

    /// Plain commands find these pipes.
    pub(crate) fn knows(&self, pipes: &[NamedPipe; 2]) -> bool {
        self.plain_pipes == Some(pipes.each_ref().map(|p| p.read.as_raw_fd()))
    }

    /// The shell has taken the lines of the last command from the pipe: it may have begun to run it.
    pub(crate) fn took_command(&self) -> bool {
        sys::pipe_fill(self.control.as_fd()) == 0
    }

    /// Reads what the shell has reported.
    pub(crate) fn reports(&mut self) -> Vec<Report> {
        let mut found = Vec::new();
        let mut buf = [0; 8192];
        while let Ok(n) = rustix::io::read(&self.reports.read, &mut buf) {
            if n == 0 {
                break;
            }
            self.received.extend_from_slice(&buf[..n]);
            while let Some(end) = self.received.iter().position(|b| *b == 0) {
                let record: Vec<u8> = self.received.drain(..=end).collect();
                found.extend(self.parse(&record[..end]));
            }
            // Nobody but this shell writes here; whoever does is not listened to without end.
            if self.received.len() > 64 << 10 {
                self.received.clear();
            }
            if n < buf.len() {
                break;
            }
        }
        found
    }

    fn parse(&mut self, record: &[u8]) -> Option<Report> {
        // A trap of the user's may have printed here between two commands.
        let token = self.token.as_bytes();
        let at = record.windows(token.len()).rposition(|w| w == token)?;
        let mut fields = record[at..].splitn(5, |b| *b == b' ');
        fields.next()?;
        let kind = fields.next()?;
        let number = std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok()?;
        let rest: Vec<&[u8]> = fields.collect();
        match kind {
            b"ready" => {
                let version = String::from_utf8_lossy(rest.first()?).into_owned();
                self.mapfile = self.bash && at_least_4_4(&version);
                if let Some((_, dir)) = self.starting.take() {
                    let _ = std::fs::remove_dir_all(dir);
                }
                Some(Report::Ready { version })
            }
            b"restored" => Some(Report::Restored { cwd: rest.join(&b' ') }),
            b"plain" => {
                let status = std::str::from_utf8(rest.first()?).ok()?.parse().ok()?;
                if self.direct {
                    let cwd = rest.get(1)?.to_vec();
                    return Some(Report::Said { bytes: record[..at].to_vec(), status, cwd });
                }
                let (number, pipe) = (self.number, 0);
                Some(Report::End { number, status, pipe, cwd: rest.get(1)?.to_vec(), leaving: false })
            }
            b"end" | b"exit" => {
                let (status, pipe) = statuses(rest.first()?);
                Some(Report::End {
                    number,
                    status,
                    pipe,
                    cwd: rest.get(1)?.to_vec(),
                    leaving: kind == b"exit",
                })
            }
            b"nodir" => Some(Report::NoDir { number }),
            b"saved" => Some(Report::Saved { number }),
            _ => None,
        }
    }

    /// The newest state that was written completely, with the number of the command it follows.
    pub(crate) fn saved_state(&self) -> Option<(u64, Vec<u8>)> {
        self.states.iter().filter_map(whole_state).max_by_key(|(number, _)| *number)
    }

    /// The state that the start files left. A one-shot shell keeps it beside that of its command, which may be written
    /// before anybody has read that this one was.
    pub(crate) fn first_state(&self) -> Option<Vec<u8>> {
        whole_state(&self.states[0]).filter(|(number, _)| *number == 0).map(|(_, state)| state)
    }

    /// Does the shell wait for its next line, although it was given a command and never reported its end?
    /// (`set -n`, or a function named like what the script needs.)
    pub(crate) fn lost(&self) -> bool {
        // In this order: it reports before it waits.
        self.waits() && sys::pipe_fill(self.reports.read.as_fd()) == 0
    }

    /// It has taken all its lines, and waits for another.
    fn waits(&self) -> bool {
        if !self.took_command() {
            return false;
        }
        let Ok(call) = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid)) else { return false };
        let mut words = call.split_ascii_whitespace();
        let (Some(number), Some(first)) = (words.next(), words.next()) else { return false };
        if number.parse() != Ok(libc::SYS_read) {
            return false;
        }
        let Ok(fd) = u64::from_str_radix(first.trim_start_matches("0x"), 16) else { return false };
        let theirs = std::fs::read_link(format!("/proc/{}/fd/{fd}", self.pid));
        let ours = std::fs::read_link(format!("/proc/self/fd/{}", self.control.as_raw_fd()));
        matches!((theirs, ours), (Ok(a), Ok(b)) if a == b)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some((_, dir)) = self.starting.take() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn at_least_4_4(version: &str) -> bool {
    let mut numbers = version.split(['.', '(']).map_while(|n| n.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (4, 4)
}

/// `cd -` knows only the directories that the user left, not those the outpost goes through.
const KEEP_OLDPWD: &str = "__farshell_p=${OLDPWD-}\n";
const PUT_OLDPWD: &str =
    "if [ \"$__farshell_p\" ]; then OLDPWD=$__farshell_p; else unset OLDPWD; fi\nunset __farshell_p\n";

#[cfg(test)]
mod tests;
