use farshell_engine::*; use farshell_engine::capture::Capture; use farshell_engine::environment::SessionDefaults;
use farshell_protocol::session::Mode; use farshell_protocol::SessionName; use std::time::*;
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let home = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let mode = if std::env::args().nth(2).as_deref() == Some("one") { Mode::OneShot } else { Mode::Live };
    let local = farshell_local::Local::new(farshell_local::Config { home });
    let spec = Spec { task: TaskName::new("smoke").unwrap(), lease: Duration::from_secs(60), settings: Default::default() };
    let env = Environment::open(&local, &spec, SessionDefaults::plain(mode)).await.unwrap();
    let s = SessionName::new("default").unwrap();
    for c in ["echo hi; echo err >&2; (exit 7)", "cd /tmp; export A=1; b=2; f(){ echo f:$1; }; alias ll='echo al'", "echo $PWD $A $b; f x; echo $?", "export E=kept; exit 42", "echo $E $A $b $?; f y; pwd", "exec sh -c 'echo execed; exit 9'", "echo $E; f z", "kill -9 $$", "echo $E; sleep 5 & echo bg", "set -e; false", "false; echo after", "echo 'unterm", "for i in {0..255}; do eval \"exec $i>&-\"; done", "echo alive $E", "builtin(){ echo hijacked; }", "echo x", "set -n", "echo n $E"] {
        let mut cap = Capture::unlimited();
        let t = Instant::now();
        let r = env.run(&RunOptions::new(s.clone(), c), &mut cap).await;
        match r { Ok(st) => println!("{c:?}: {:?} out={:?} err={:?} cwd={:?} restarted={} lost={} {:?}", st.state, String::from_utf8_lossy(&cap.stdout.to_bytes()), String::from_utf8_lossy(&cap.stderr.to_bytes()), st.cwd.map(|c| String::from_utf8_lossy(&c).into_owned()), st.shell_restarted, st.state_lost, t.elapsed()), Err(e) => println!("{c:?}: ERROR {e} {:?}", e.hint) }
    }
    let mut o = RunOptions::new(s.clone(), "T=set; echo before; sleep 1000; echo after"); o.timeout = Some(Duration::from_millis(500));
    let mut cap = Capture::unlimited(); let t = Instant::now();
    let st = env.run(&o, &mut cap).await.unwrap(); println!("timeout: {st:?} {:?} {:?}", String::from_utf8_lossy(&cap.output.to_bytes()), t.elapsed());
    let mut ts = vec![];
    for _ in 0..3000 { let t = Instant::now(); let mut c = Capture::new(100); env.run(&RunOptions::new(s.clone(), "true"), &mut c).await.unwrap(); ts.push(t.elapsed()); }
    ts.sort(); println!("true p10 {:?} p50 {:?} p99 {:?}", ts[300], ts[1500], ts[2970]);
    let mut b = std::process::Command::new("bash").args(["--noprofile","--norc"]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    use std::io::{Read,Write}; let (mut i, mut o) = (b.stdin.take().unwrap(), b.stdout.take().unwrap());
    let mut ts = vec![]; let mut buf = [0;4096];
    for _ in 0..3000 { let t = Instant::now(); i.write_all(b"eval 'true' </dev/null; printf 'MARK %s %s\\n' $? \"$PWD\"\n").unwrap(); o.read(&mut buf).unwrap(); ts.push(t.elapsed()); }
    ts.sort(); println!("bare p10 {:?} p50 {:?} p99 {:?}", ts[300], ts[1500], ts[2970]);
    let t = Instant::now();
    let mut d = farshell_engine::capture::Discard;
    env.run(&RunOptions::new(s.clone(), "yes | head -c 1073741824"), &mut d).await.unwrap(); println!("1GiB {:?}", t.elapsed());
    let info = env.outpost().info().await.unwrap();
    println!("{info:?} {}", std::fs::read_to_string(format!("/proc/{}/status", info.identity.pid)).unwrap().lines().filter(|l| l.starts_with("VmHWM")).collect::<String>());
    println!("self {}", std::fs::read_to_string("/proc/self/status").unwrap().lines().filter(|l| l.starts_with("VmHWM")).collect::<String>());
    let t = Instant::now(); env.destroy().await.unwrap(); println!("destroyed {:?}", t.elapsed());
}
