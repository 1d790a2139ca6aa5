use farshell_engine::*; use farshell_engine::capture::Capture; use farshell_engine::environment::SessionDefaults;
use farshell_protocol::session::Mode; use farshell_protocol::SessionName; use std::time::*;
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let home = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let local = farshell_local::Local::new(farshell_local::Config { home });
    let spec = Spec { task: TaskName::new("smoke").unwrap(), lease: Duration::from_secs(60), settings: Default::default() };
    let env = Environment::open(&local, &spec, SessionDefaults::plain(Mode::Live)).await.unwrap();
    let s = SessionName::new("default").unwrap();
    let p = |n: &str, mut ts: Vec<Duration>| { ts.sort(); println!("{n} p10 {:?} p50 {:?} p90 {:?}", ts[ts.len()/10], ts[ts.len()/2], ts[ts.len()*9/10]); };
    for round in 0..3 {
    let mut ts = vec![]; for _ in 0..3000 { let t = Instant::now(); env.outpost().ping().await.unwrap(); ts.push(t.elapsed()); } p("ping", ts);
    let mut ts = vec![]; for _ in 0..3000 { let t = Instant::now(); let mut c = Capture::new(100); env.run(&RunOptions::new(s.clone(), "true"), &mut c).await.unwrap(); ts.push(t.elapsed()); } p("true", ts);
    let mut b = std::process::Command::new("bash").args(["--noprofile","--norc"]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    use std::io::{Read,Write}; let (mut i, mut o) = (b.stdin.take().unwrap(), b.stdout.take().unwrap());
    let mut ts = vec![]; let mut buf = [0;4096];
    for _ in 0..3000 { let t = Instant::now(); i.write_all(b"eval 'true' </dev/null; printf 'MARK %s %s\\n' $? \"$PWD\"\n").unwrap(); o.read(&mut buf).unwrap(); ts.push(t.elapsed()); } p("bare", ts);
    let _ = round; }
    if std::env::args().nth(2).is_some() { loop { let mut c = Capture::new(100); env.run(&RunOptions::new(s.clone(), "true"), &mut c).await.unwrap(); } }
    env.destroy().await.unwrap();
}
