//! Names of directories and files, by what they mean to a user.

/// Directories in `/` without which a machine or its data is lost.
#[rustfmt::skip]
pub(super) const SYSTEM: &[&str] = &[
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "opt", "proc", "root", "run", "sbin", "srv",
    "sys", "usr", "var", "System", "Library", "Applications", "Users", "Volumes", "private", "mnt", "media",
    "nix", "snap",
];
/// And those inside of them that matter as much.
#[rustfmt::skip]
pub(super) const SYSTEM_INSIDE: &[&str] = &[
    "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "usr/local", "usr/share", "var/lib", "boot/efi",
    "lib/modules", "private/etc", "private/var",
];
/// Where a write changes the system rather than somebody's files.
#[rustfmt::skip]
pub(super) const SYSTEM_FILES: &[&str] = &[
    "etc", "boot", "usr", "bin", "sbin", "lib", "lib32", "lib64", "sys", "proc", "dev", "var/spool", "var/lib",
    "System", "Library", "private/etc", "private/var",
];
/// What build tools and package managers make again.
#[rustfmt::skip]
pub(super) const REGENERATED: &[&str] = &[
    "node_modules", "dist", "build", "target", "out", "output", "__pycache__", ".pytest_cache", ".mypy_cache",
    ".ruff_cache", ".tox", ".nox", ".venv", "venv", ".cache", ".next", ".nuxt", ".svelte-kit", ".turbo",
    ".parcel-cache", "coverage", "htmlcov", ".nyc_output", ".gradle", "bin", "obj", "tmp", "temp", ".tmp",
    ".eggs", "_build", "site", ".terraform", "bower_components", "DerivedData", ".dart_tool",
    ".ipynb_checkpoints", "cmake-build-debug", "cmake-build-release", "test-results", "playwright-report",
    ".coverage", "logs", "zig-out", ".zig-cache", ".angular", ".vite", ".output", ".serverless", ".vercel",
    ".docusaurus", "public/build", "wheels", "artifacts",
];
/// Files and directories of credentials and of what runs at login, directly in a home directory.
#[rustfmt::skip]
pub(super) const PRIVATE: &[&str] = &[
    ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker", ".config/gh", ".config/gcloud", ".netrc", ".pgpass",
    ".npmrc", ".pypirc", ".git-credentials", ".gitconfig", ".bashrc", ".bash_profile", ".bash_login",
    ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zprofile", ".zshenv", ".zlogin", ".kshrc",
    ".xinitrc", ".xprofile", ".config/fish", ".config/autostart", ".config/systemd", ".local/share/systemd",
    "Library/LaunchAgents", ".hermes", ".farshell", ".vimrc", ".tmux.conf", ".inputrc", ".cargo/config.toml",
    ".cargo/credentials.toml",
];
/// Files whose content is a secret.
#[rustfmt::skip]
pub(super) const SECRETS: &[&str] = &[
    ".aws/credentials", ".netrc", ".pgpass", ".git-credentials", ".docker/config.json", ".kube/config",
    ".hermes/.env", ".config/gh/hosts.yml", ".pypirc", ".cargo/credentials.toml",
    ".config/gcloud/credentials.db", ".vault-token",
];

/// What ends like this is a file, also where `rm -r` is used on it.
#[rustfmt::skip]
pub(super) const FILES: &[&str] = &[
    "json", "lock", "log", "txt", "tmp", "pyc", "o", "so", "a", "zip", "gz", "xz", "zst", "tar", "tgz", "db",
    "sqlite", "csv", "xml", "md", "html", "css", "js", "ts", "tsx", "jsx", "py", "rs", "go", "c", "h", "out",
    "err", "pid", "bin", "exe", "img", "iso", "png", "jpg", "svg", "yaml", "yml", "toml", "sh", "cfg", "ini",
    "map", "tsbuildinfo", "whl",
];
