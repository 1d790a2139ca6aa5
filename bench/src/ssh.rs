//! Farshell on a host that ssh reaches, beside a bare shell at the end of an ssh of its own.
//!
//! Where a row's name has a time, the host is that far away: a proxy of this program holds back each byte for half of
//! it in each direction.

use crate::hermes::Hermes;
use crate::limits::Shell;
use crate::ours::Ours;
use crate::stats::{Bench, Column, Metric, Weight, on};
use farshell_config::choice::HostKeyPolicy;
use farshell_config::settings::SshSettings;
use farshell_protocol::session::Mode;
use farshell_ssh::{Config, Ssh};
use std::cell::RefCell;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How far away a host is in the rows that say so.
const FAR: [u64; 2] = [20, 80];
/// Tasks at once, and commands of each.
const TASKS: usize = 100;
const EACH: usize = 20;

/// A host, and who enters it.
#[derive(Clone, Debug)]
pub struct Host {
    pub user: String,
    pub host: String,
    pub port: u16,
    pub key: PathBuf,
}

impl Host {
    /// From `user@host:port`.
    ///
    /// # Errors
    /// That is not its form.
    pub fn new(address: &str, key: &Path) -> Result<Self> {
        let parse = || {
            let (user, rest) = address.split_once('@')?;
            let (host, port) = rest.rsplit_once(':')?;
            Some((user, host, port.parse().ok()?))
        };
        let (user, host, port) = parse().ok_or("the host's address must be user@host:port")?;
        Ok(Self { user: user.into(), host: host.into(), port, key: key.into() })
    }

    /// The same host, further away.
    fn behind(&self, round_trip: Duration) -> Result<Self> {
        let address = (self.host.as_str(), self.port).to_socket_addrs()?.next().ok_or("no such host")?;
        let port = delayed(address, round_trip / 2)?;
        Ok(Self { host: "127.0.0.1".into(), port, ..self.clone() })
    }

    fn backend(&self, home: &Path) -> Result<Ssh> {
        // The user's own hosts and keys have no part in this.
        let ssh_config = home.join("ssh_config");
        std::fs::write(
            &ssh_config,
            format!("UserKnownHostsFile {}\nGlobalKnownHostsFile none\n", home.join("known").display()),
        )?;
        Ok(Ssh::new(Config {
            home: home.into(),
            settings: SshSettings {
                host: self.host.clone(),
                user: self.user.clone(),
                port: self.port,
                key: Some(self.key.clone()),
                jump: None,
                options: Vec::new(),
                host_key_policy: HostKeyPolicy::AcceptNew,
                outpost_dir: None,
            },
            environment: std::env::vars().collect(),
            ssh_config: Some(ssh_config),
            credential_root: home.into(),
            credential_files: Vec::new(),
        }))
    }

    async fn ours(&self, task: &str) -> Result<Ours> {
        let home = tempfile::tempdir()?;
        let backend = self.backend(home.path())?;
        Ours::on(&backend, task, Mode::Live, home).await
    }

    /// A bare bash there.
    fn shell(&self) -> Result<Shell> {
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-T", "-oBatchMode=yes", "-oLogLevel=ERROR"]);
        command.args(["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-i"]).arg(&self.key);
        command.args(["-p", &self.port.to_string(), "-l", &self.user, "--", &self.host]);
        command.arg("bash --norc --noprofile");
        Shell::of(&mut command)
    }
}

/// What the rows need.
#[derive(Debug)]
pub struct Hosts {
    near: Host,
    ours: Ours,
    far: Vec<(u64, Host, Ours)>,
    /// Tasks that share one connection.
    tasks: Vec<Ours>,
    hermes: Option<RefCell<Hermes>>,
    /// Of the tasks.
    _home: tempfile::TempDir,
}

impl Hosts {
    /// # Errors
    /// The host can't be entered.
    pub fn open(host: Host, hermes: Option<&Path>, runtime: &Runtime) -> Result<Self> {
        let hermes = hermes.map(|python| Hermes::start_by_ssh(python, &host)).transpose()?.map(RefCell::new);
        runtime.block_on(async {
            let ours = host.ours("near").await?;
            let mut far = Vec::new();
            for millis in FAR {
                let there = host.behind(Duration::from_millis(millis))?;
                let ours = there.ours("far").await?;
                far.push((millis, there, ours));
            }
            let home = tempfile::tempdir()?;
            let backend = host.backend(home.path())?;
            let mut opening = JoinSet::new();
            // All at once, as agents come.
            let backend = std::sync::Arc::new(backend);
            for number in 0..TASKS {
                let backend = std::sync::Arc::clone(&backend);
                opening.spawn(async move {
                    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
                    let opened = Ours::on(&*backend, &format!("task{number}"), Mode::Live, home).await;
                    opened.map_err(|error| error.to_string())
                });
            }
            let mut tasks = Vec::new();
            while let Some(opened) = opening.join_next().await {
                tasks.push(opened??);
            }
            Ok(Self { near: host, ours, far, tasks, hermes, _home: home })
        })
    }

    /// # Errors
    /// The host can't be entered.
    pub fn rows<'a>(&'a self, bench: &mut Bench<'a>, runtime: &'a Runtime) -> Result<()> {
        for (name, command) in [("ssh: builtin", "true"), ("ssh: external", "/bin/true")] {
            let mut shell = self.near.shell()?;
            let group = bench
                .group(Weight::Light, vec![Metric::time(name)])
                .case(Column::Limit, move || Ok(vec![shell.run(command)?]))
                .case(Column::Ours, on(runtime, async move || Ok(vec![self.ours.run(command).await?])));
            if let Some(hermes) = &self.hermes {
                group.case(Column::Hermes, || Ok(vec![hermes.borrow_mut().run(command)?]));
            }
        }
        for (millis, host, ours) in &self.far {
            let mut shell = host.shell()?;
            bench
                .group(Weight::Light, vec![Metric::time(format!("ssh, {millis} ms away: builtin"))])
                .case(Column::Limit, move || Ok(vec![shell.run("true")?]))
                .case(Column::Ours, on(runtime, async || Ok(vec![ours.run("true").await?])));
        }
        let mut shell = self.near.shell()?;
        let name = format!("ssh: {} commands of {TASKS} tasks, limit: one shell", TASKS * EACH);
        bench
            .group(Weight::Heavy, vec![Metric::per_second(name, (TASKS * EACH) as u64)])
            .case(Column::Limit, move || {
                let begin = Instant::now();
                for _ in 0..TASKS * EACH {
                    shell.run("true")?;
                }
                Ok(vec![begin.elapsed()])
            })
            .case(Column::Ours, on(runtime, async || Ok(vec![self.at_once().await?])));
        Ok(())
    }

    async fn at_once(&self) -> Result<Duration> {
        let begin = Instant::now();
        let mut running = JoinSet::new();
        for task in &self.tasks {
            let task = task.clone();
            running.spawn(async move {
                for _ in 0..EACH {
                    task.run("true").await.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(())
            });
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(begin.elapsed())
    }

    /// # Errors
    /// The host can't be reached any more.
    pub async fn close(self) -> Result<()> {
        self.ours.close().await?;
        for ours in self.far.into_iter().map(|(_, _, ours)| ours).chain(self.tasks) {
            ours.close().await?;
        }
        Ok(())
    }
}

/// A port of this machine behind which the address is, with each byte later than it was sent.
fn delayed(address: SocketAddr, by: Duration) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // A connection that can't be served ends, and its user sees that.
            if let Ok(far) = TcpStream::connect(address) {
                let _ = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
                if let (Ok(near_end), Ok(far_end)) = (near.try_clone(), far.try_clone()) {
                    late(near, far, by);
                    late(far_end, near_end, by);
                }
            }
        }
    });
    Ok(port)
}

/// Carries bytes from one to the other, each piece when its time has come.
fn late(mut from: TcpStream, mut to: TcpStream, by: Duration) {
    let (pieces, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if pieces.send((Instant::now() + by, buffer[..len].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (when, piece) in due {
            std::thread::sleep(when.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
