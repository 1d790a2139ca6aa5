//! `farshell attach` and `shell`, as a person sees them: in a real terminal, which tmux plays.

use crate::rig::{PATIENCE, World};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// One window of a tmux server of its own.
pub(crate) struct Tmux<'a> {
    world: &'a World,
    socket: String,
}

impl<'a> Tmux<'a> {
    /// `None` if there is no tmux, which CI does not forgive.
    pub(crate) fn start(world: &'a World, columns: u16, rows: u16) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "tmux is missing: install tmux");
            skipped("tmux is not installed");
            return None;
        }
        let socket = world.work().join("tmux").to_str().unwrap().to_owned();
        let tmux = Self { world, socket };
        let (x, y) = (columns.to_string(), rows.to_string());
        let shell = "env PS1='$ ' ENV= sh";
        tmux.call(&["-f", "/dev/null", "new-session", "-d", "-x", &x, "-y", &y, shell]);
        tmux.call(&["set-option", "-g", "status", "off"]);
        tmux.call(&["resize-window", "-x", &x, "-y", &y]);
        // What is typed before the shell listens is shown elsewhere, or twice.
        tmux.until("a prompt", |screen| screen.starts_with('$'));
        tmux.type_line(&format!("alias farshell={}", env!("CARGO_BIN_EXE_farshell")));
        tmux.until("another prompt", |screen| {
            screen.lines().filter(|line| line.starts_with('$')).count() > 1
        });
        Some(tmux)
    }

    fn call(&self, args: &[&str]) -> Output {
        let rig = self.world.command(&[]);
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket]).args(args).env_clear().current_dir(self.world.work());
        command.envs(rig.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("LANG", "C.UTF-8").env("TERM", "xterm-256color");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        output
    }

    pub(crate) fn keys(&self, keys: &[&str]) {
        self.call(&[&["send-keys"], keys].concat());
    }

    pub(crate) fn type_line(&self, text: &str) {
        self.call(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    fn resize(&self, columns: u16, rows: u16) {
        self.call(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    pub(crate) fn screen(&self) -> String {
        String::from_utf8(self.call(&["capture-pane", "-p"]).stdout).unwrap()
    }

    pub(crate) fn until(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if condition(&screen) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-S", &self.socket, "kill-server"]).output();
    }
}

fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Numbered lines, from one number to another.
fn numbers(from: u32, to: u32) -> String {
    (from..=to).map(|i| format!("number {i}\n")).collect()
}

/// Something has come after the line that was typed.
fn prompted(screen: &str) -> bool {
    screen.lines().filter(|line| !line.is_empty()).count() >= 3
}

/// The id of the only process that runs.
fn running(world: &World) -> String {
    let list = world.json(&["ps", "--json"]);
    assert_eq!(list["processes"].as_array().unwrap().len(), 1, "{list}");
    list["processes"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_shell_is_one_and_its_code_is_passed_on() {
    let world = World::new();
    world.run("cd /usr; export A=kept");
    let Some(tmux) = Tmux::start(&world, 80, 24) else { return };
    tmux.type_line("farshell shell; echo code=$?");
    tmux.until("the shell", prompted);
    tmux.type_line("echo $((40 + 2)) $A $PWD; [ -t 0 ] && [ -t 1 ] && echo tty; stty size");
    tmux.until("its answer", |screen| screen.contains("42 kept /usr\ntty\n24 80\n"));
    // Job control and Ctrl-C are the shell's.
    tmux.type_line("sleep 1000");
    std::thread::sleep(Duration::from_millis(300));
    tmux.keys(&["C-c"]);
    tmux.type_line("echo after=$?");
    tmux.until("the end of sleep", |screen| screen.contains("after=130"));
    tmux.type_line("exit 7");
    tmux.until("its code", |screen| screen.contains("code=7"));
    // The terminal is as it was: what is typed is shown, and lines are lines.
    tmux.type_line("stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo -e -icanon -e -echo");
    tmux.until("a sane terminal", |screen| screen.contains("\nicanon\necho\n"));
}

#[test]
fn less_redraws_after_a_resize_and_a_detach_keeps_the_screen() {
    let world = World::new();
    world.file("work/numbers", &numbers(1, 200));
    let Some(tmux) = Tmux::start(&world, 80, 24) else { return };
    tmux.type_line("farshell shell; echo code=$?");
    tmux.until("the shell", prompted);
    tmux.type_line("less numbers");
    tmux.until("less", |screen| screen.starts_with(&numbers(1, 23)));
    tmux.resize(100, 40);
    tmux.until("the redrawn screen", |screen| screen.starts_with(&numbers(1, 39)));
    tmux.keys(&["Space"]);
    let before = tmux.until("the next page", |screen| screen.starts_with(&numbers(40, 78)));
    tmux.keys(&["C-]", "d"]);
    tmux.until("the way back", |screen| {
        screen.contains("[detached; `farshell attach proc_") && screen.contains("code=0")
    });
    let id = running(&world);
    tmux.type_line("clear; echo in between");
    tmux.until("something else", |screen| screen.starts_with("in between"));
    tmux.type_line(&format!("farshell attach {id}; echo code=$?"));
    let after = tmux.until("the screen as it was", |screen| screen.starts_with("number 40"));
    assert_eq!(after, before);
    // A terminal of another size is drawn anew, too.
    tmux.keys(&["C-]", "d"]);
    tmux.until("the shell outside", |screen| screen.contains("code=0"));
    tmux.resize(60, 15);
    tmux.type_line(&format!("farshell attach {id}; echo code=$?"));
    tmux.until("a smaller screen", |screen| screen.starts_with(&numbers(40, 53)));
    tmux.keys(&["q"]);
    tmux.until("the end of less", |screen| !screen.starts_with("number"));
    // Somebody else may type, too.
    assert_eq!(world.call(&["send", &id, "echo sent=$((6 * 7))"]).code, 0);
    tmux.until("what was sent", |screen| screen.contains("sent=42"));
    tmux.type_line("exit 5");
    tmux.until("its code", |screen| screen.contains("code=5"));
}

#[test]
fn a_full_screen_editor_survives_the_death_of_the_server() {
    let world = World::new();
    if Command::new("vi").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "vi is missing: install vim");
        return skipped("vi is not installed");
    }
    let Some(tmux) = Tmux::start(&world, 80, 24) else { return };
    let id = world.background(&["--pty"], "vi -u NONE -n text");
    tmux.type_line(&format!("farshell attach {id}; echo code=$?"));
    tmux.until("vi", |screen| screen.lines().filter(|line| *line == "~").count() > 15);
    tmux.call(&["send-keys", "-l", "ihello world"]);
    tmux.until("the text", |screen| screen.starts_with("hello world\n"));
    world.kill_server();
    tmux.call(&["send-keys", "-l", " again"]);
    tmux.until("more text", |screen| screen.starts_with("hello world again\n"));
    tmux.resize(50, 10);
    tmux.until("the redrawn screen", |screen| {
        screen.starts_with("hello world again\n") && screen.lines().filter(|line| *line == "~").count() == 8
    });
    tmux.keys(&["Escape"]);
    tmux.type_line(":wq");
    tmux.until("its code", |screen| screen.contains("code=0"));
    assert_eq!(std::fs::read_to_string(world.work().join("text")).unwrap(), "hello world again\n");
}

#[test]
fn a_killed_attach_gives_the_terminal_back() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, 80, 24) else { return };
    let id = world.background(&["--pty"], "printf '\\033[?1049h\\033[?25lfull screen'; sleep 1000");
    tmux.type_line(&format!("farshell attach {id}; echo code=$?"));
    tmux.until("its screen", |screen| screen.starts_with("full screen"));
    let pid = tmux.call(&["display-message", "-p", "#{pane_pid}"]);
    let shell = String::from_utf8(pid.stdout).unwrap();
    let shell = shell.trim();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let attach = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    kill_process(attach, Signal::TERM).unwrap();
    tmux.until("its code", |screen| screen.contains("code=143"));
    let flags = tmux.call(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
    assert_eq!(String::from_utf8(flags.stdout).unwrap().trim(), "0 1");
    tmux.type_line("stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo");
    tmux.until("a sane terminal", |screen| screen.contains("\nicanon\necho\n"));
    // It was left running.
    assert_eq!(running(&world), id);
}

#[test]
fn other_keys_can_be_chosen() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, 80, 24) else { return };
    let id = world.background(&["--pty"], "cat -v");
    tmux.type_line(&format!("farshell attach --detach-key ctrl-p,ctrl-q {id}; echo code=$?"));
    tmux.until("the way in", |screen| !screen.contains("code="));
    // The usual keys are nothing special now.
    tmux.keys(&["C-]", "d", "Enter"]);
    tmux.until("the echo", |screen| screen.contains("^]d"));
    tmux.keys(&["C-p", "C-q"]);
    tmux.until("its code", |screen| screen.contains("code=0"));
    let wrong = world.call(&["attach", "--detach-key", "d", &id]);
    assert_eq!(wrong.code, 125);
}

#[test]
fn a_command_on_a_terminal() {
    let world = World::new();
    // Without a terminal here it has one all the same.
    let said = world.call(&["run", "--pty", "[ -t 0 ] && [ -t 1 ] && echo tty; stty size"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "tty\r\n24 80\r\n"), "{said:?}");
    let Some(tmux) = Tmux::start(&world, 70, 20) else { return };
    tmux.type_line(
        "farshell run --pty 'stty size; read -p \"name? \" n; echo \"hello $n\"; exit 3'; echo code=$?",
    );
    tmux.until("the question", |screen| screen.contains("20 70\nname?"));
    tmux.type_line("you");
    tmux.until("the answer", |screen| screen.contains("name? you\nhello you\n") && screen.contains("code=3"));
}

#[test]
fn what_takes_long_is_shown_and_can_be_given_up() {
    let world = World::new();
    let dir = world.hermes().join("farshell/server");
    std::fs::create_dir_all(&dir).unwrap();
    // A server that never comes round to answer.
    let _listener = std::os::unix::net::UnixListener::bind(dir.join("sock")).unwrap();
    let Some(tmux) = Tmux::start(&world, 80, 24) else { return };
    tmux.type_line("farshell run 'touch ran'; echo code=$?");
    tmux.until("progress", |screen| screen.contains("preparing the environment"));
    tmux.keys(&["C-c"]);
    let screen = tmux.until("its code", |screen| screen.contains("code=130"));
    assert!(!screen.contains("preparing"), "{screen}");
    assert!(!world.work().join("ran").exists());
    std::fs::remove_dir_all(world.hermes().join("farshell")).unwrap();
}

#[test]
fn programs_are_told_that_a_terminal_is_needed() {
    let world = World::new();
    for args in [&["shell"][..], &["attach", "x"]] {
        let refused = world.call(args);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("must be a terminal"), "{refused:?}");
    }
}

#[test]
fn tables_fit_and_have_colours_where_somebody_looks() {
    let world = World::new();
    let id = world.background(&[], &format!("sleep 1000; echo {}", "long ".repeat(50)));
    let Some(tmux) = Tmux::start(&world, 60, 10) else { return };
    tmux.type_line("clear; farshell ps");
    let screen = tmux.until("the table", |screen| screen.contains(&id) && prompted(screen));
    let lines: Vec<&str> = screen.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 3, "{screen}");
    assert!(lines[0].starts_with("ID") && lines[1].starts_with(&id) && lines[1].ends_with('…'), "{screen}");
    let coloured = String::from_utf8(tmux.call(&["capture-pane", "-p", "-e"]).stdout).unwrap();
    assert!(coloured.contains("\x1b[32mrunning"), "{coloured:?}");
}
