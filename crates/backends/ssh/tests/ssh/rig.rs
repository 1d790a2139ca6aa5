//! Hosts, a home, and environments in it.

use farshell_config::choice::HostKeyPolicy;
use farshell_config::settings::SshSettings;
use farshell_engine::Error;
use farshell_engine::backend::{Backend, Place, Spec, TaskName};
use farshell_ssh::{Config, Ssh};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// What the rig says.
pub(crate) fn var(name: &str) -> Option<String> {
    farshell_testing::var(name, "ssh")
}

/// A host of a test's own. It goes with the test.
#[derive(Debug)]
pub(crate) struct OwnHost {
    name: String,
    pub(crate) address: String,
}

impl OwnHost {
    pub(crate) fn start(lines: &[&str]) -> Option<Arc<Self>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let hosts = PathBuf::from(var("FARSHELL_TEST_SSHDS")?);
        let name = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut host = Self { name, address: String::new() };
        host.act("start", lines);
        let address = std::fs::read_to_string(hosts.join(&host.name).join("address")).unwrap();
        host.address = address.trim().to_owned();
        Some(Arc::new(host))
    }

    pub(crate) fn act(&self, action: &str, args: &[&str]) -> String {
        let program = std::env::var("FARSHELL_TEST_SSHD").unwrap();
        // A daemon must not inherit a pipe that is waited for.
        let out = tempfile::tempfile().unwrap();
        let status = Command::new(program)
            .args([&self.name, action])
            .args(args)
            .stdin(std::process::Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out.try_clone().unwrap())
            .status()
            .unwrap();
        let mut said = String::new();
        let mut out = out;
        std::io::Seek::rewind(&mut out).unwrap();
        std::io::Read::read_to_string(&mut out, &mut said).unwrap();
        assert!(status.success(), "{action} {args:?} on {}: {said}", self.name);
        said.trim().to_owned()
    }

    /// A directory there with a file system of its own.
    pub(crate) fn mounted(&self, options: &str, owner: &str) -> String {
        let dir = self.dir().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let dir = dir.to_string_lossy().into_owned();
        self.act("exec", &["mount", "-t", "tmpfs", "-o", options, "none", &dir]);
        self.act("exec", &["chown", owner, &dir]);
        dir
    }

    pub(crate) fn dir(&self) -> PathBuf {
        PathBuf::from(std::env::var("FARSHELL_TEST_SSHDS").unwrap()).join(&self.name)
    }
}

impl Drop for OwnHost {
    fn drop(&mut self) {
        let program = std::env::var("FARSHELL_TEST_SSHD").unwrap();
        let _ = Command::new(program).args([&self.name, "remove"]).status();
    }
}

/// An agent that has the rig's key. It ends with the test.
#[derive(Debug)]
pub(crate) struct Agent(std::process::Child);

impl Agent {
    pub(crate) fn start(socket: &std::path::Path) -> Self {
        let mut command = Command::new("ssh-agent");
        let agent =
            command.arg("-D").arg("-a").arg(socket).stdout(std::process::Stdio::null()).spawn().unwrap();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut add = Command::new("ssh-add");
        add.arg("-q").arg(var("FARSHELL_TEST_SSH_KEY").unwrap()).env("SSH_AUTH_SOCK", socket);
        assert!(add.status().unwrap().success());
        Self(agent)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of this machine from which everything reaches `to`, and comes back, that much later.
pub(crate) async fn late(to: String, delay: Duration) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = tokio::net::TcpStream::connect(&to).await else { continue };
            let ((near_out, near_in), (far_out, far_in)) = (near.into_split(), far.into_split());
            tokio::spawn(carry(near_out, far_in, delay));
            tokio::spawn(carry(far_out, near_in, delay));
        }
    });
    port
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut due) = tokio::sync::mpsc::channel::<(tokio::time::Instant, Vec<u8>)>(1024);
    tokio::spawn(async move {
        while let Some((when, bytes)) = due.recv().await {
            tokio::time::sleep_until(when).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buf = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buf).await {
        let when = tokio::time::Instant::now() + delay;
        if sender.send((when, buf[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

/// A home and the configuration of a backend for it. Outposts and connections go with it.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) home: TempDir,
    pub(crate) config: Config,
}

impl Rig {
    /// The account with bash on the stock host.
    pub(crate) fn new() -> Option<Self> {
        Self::at(&var("FARSHELL_TEST_SSH")?, "FARSHELL_TEST_SSH_USER")
    }

    pub(crate) fn at(address: &str, user: &str) -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let key = PathBuf::from(var("FARSHELL_TEST_SSH_KEY")?);
        let ssh_config = home.path().join("ssh_config");
        let known = home.path().join("known_hosts");
        // Also for jump hosts, and in place of whatever this machine's user has.
        let text = format!(
            "UserKnownHostsFile {}\nGlobalKnownHostsFile /dev/null\nIdentityFile {}\n",
            known.display(),
            key.display()
        );
        std::fs::write(&ssh_config, text).unwrap();
        let environment =
            ["PATH", "HOME"].iter().filter_map(|n| Some(((*n).to_owned(), std::env::var(n).ok()?))).collect();
        let config = Config {
            home: home.path().join("h"),
            settings: SshSettings {
                host: address.into(),
                user: var(user)?,
                port: var("FARSHELL_TEST_SSH_PORT")?.parse().unwrap(),
                key: Some(key),
                jump: None,
                options: Vec::new(),
                host_key_policy: HostKeyPolicy::AcceptNew,
                outpost_dir: None,
            },
            environment,
            ssh_config: Some(ssh_config),
            credential_root: PathBuf::new(),
            credential_files: Vec::new(),
        };
        Some(Self { home, config })
    }

    /// The same home with other settings.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut SshSettings)) -> Self {
        change(&mut self.config.settings);
        self
    }

    pub(crate) fn backend(&self) -> Ssh {
        Ssh::new(self.config.clone())
    }

    pub(crate) fn spec(&self, task: &str) -> Spec {
        let settings = BTreeMap::from([("ssh_host".to_owned(), self.config.settings.host.clone())]);
        Spec { task: TaskName::new(task).unwrap(), lease: Duration::from_secs(120), settings }
    }

    pub(crate) async fn open(&self) -> Env {
        self.try_open("default").await.unwrap()
    }

    pub(crate) async fn try_open(&self, task: &str) -> Result<Env, Error> {
        let place: Arc<dyn Place> = Arc::from(self.backend().provision(&self.spec(task), &()).await?);
        let backend = Held(self.backend(), Arc::clone(&place));
        let inner = farshell_testing::Env::try_open(&backend, &self.spec(task)).await?;
        Ok(Env { inner, place })
    }

    /// Why the backend can't serve.
    pub(crate) async fn refusal(&self) -> Error {
        match self.try_open("default").await {
            Ok(env) => panic!("it serves: {env:?}"),
            Err(error) => error,
        }
    }

    /// The sockets of the masters that live.
    pub(crate) fn masters(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.config.home.join("run/ssh")).into_iter().flatten().flatten();
        let sockets = entries.map(|entry| entry.path()).filter(|path| path.extension().is_none());
        sockets.filter(|path| std::os::unix::net::UnixStream::connect(path).is_ok()).collect()
    }

    /// The number of a master's process.
    pub(crate) fn master_pid(&self) -> String {
        let masters = self.masters();
        let output =
            Command::new("ssh").args(["-F", "none", "-O", "check", "-S"]).arg(&masters[0]).arg("x").output();
        let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
        said.split_once("pid=").unwrap().1.split(')').next().unwrap().to_owned()
    }
}

/// A backend whose place has been made, so that a test keeps hold of it.
#[derive(Debug)]
struct Held(Ssh, Arc<dyn Place>);

#[derive(Debug)]
struct Shared(Arc<dyn Place>);

impl Place for Shared {
    fn identity(&self) -> farshell_engine::Identity {
        self.0.identity()
    }
    fn connect(
        &self,
    ) -> farshell_engine::backend::BoxFuture<'_, farshell_engine::Result<farshell_engine::ByteStream>> {
        self.0.connect()
    }
    fn destroy(&self) -> farshell_engine::backend::BoxFuture<'_, farshell_engine::Result<()>> {
        self.0.destroy()
    }
}

impl Backend for Held {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn capabilities(&self) -> farshell_engine::Capabilities {
        self.0.capabilities()
    }
    fn provision<'a>(
        &'a self,
        _: &'a Spec,
        _: &'a dyn farshell_engine::backend::Progress,
    ) -> farshell_engine::backend::BoxFuture<'a, farshell_engine::Result<Box<dyn Place>>> {
        Box::pin(async { Ok(Box::new(Shared(Arc::clone(&self.1))) as Box<dyn Place>) })
    }
    fn find<'a>(
        &'a self,
        spec: &'a Spec,
    ) -> farshell_engine::backend::BoxFuture<'a, farshell_engine::Result<Option<Box<dyn Place>>>> {
        self.0.find(spec)
    }
    fn check(&self) -> farshell_engine::backend::BoxFuture<'_, Vec<farshell_engine::backend::Finding>> {
        self.0.check()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        farshell_testing::remove_all(self.backend());
        for master in self.masters() {
            let _ =
                Command::new("ssh").args(["-F", "none", "-O", "exit", "-S"]).arg(master).arg("x").output();
        }
    }
}

/// One environment with a session in it, and its place.
#[derive(Debug)]
pub(crate) struct Env {
    inner: farshell_testing::Env,
    pub(crate) place: Arc<dyn Place>,
}

impl std::ops::Deref for Env {
    type Target = farshell_testing::Env;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl Env {
    /// Runs a command that counts to `count` with a pause between, does something meanwhile, and checks each line.
    pub(crate) async fn counts_through(
        &self,
        count: u32,
        pause: &str,
        meanwhile: impl FnOnce() + Send + 'static,
    ) {
        let command = format!("for i in $(seq {count}); do echo line $i; sleep {pause}; done");
        let counting = self.out(&command);
        let trouble = tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(700));
            meanwhile();
        });
        let said = counting.await;
        trouble.await.unwrap();
        let expected: Vec<String> = (1..=count).map(|i| format!("line {i}")).collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    }
}
