//! Builds the outpost for this machine, and collects those that a packager supplies.
//!
//! The outpost is a program for another kind of machine than Farshell itself: static, small, never unwinding.
//! So it is built by a cargo of its own, with its own profile and target directory. It needs nothing from the
//! network but the crates in `Cargo.lock`.
#![expect(clippy::expect_used, reason = "a build script reports by failing")]

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out = PathBuf::from(var("OUT_DIR"));
    let root = PathBuf::from(var("CARGO_MANIFEST_DIR")).join("../..");
    for path in [
        "crates/bundle/no-unwind.ld",
        "crates/beneath",
        "crates/outpost",
        "crates/protocol/src",
        "crates/protocol/Cargo.toml",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo::rerun-if-env-changed=FARSHELL_OUTPOSTS");

    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    if let Ok(dir) = std::env::var("FARSHELL_OUTPOSTS") {
        println!("cargo::rerun-if-changed={dir}");
        for entry in std::fs::read_dir(&dir).expect("FARSHELL_OUTPOSTS names a directory").flatten() {
            if let Some(arch) = entry.file_name().to_str().and_then(|n| n.strip_prefix("farshell-outpost-")) {
                found.insert(arch.to_owned(), entry.path());
            }
        }
    }
    let arch = var("CARGO_CFG_TARGET_ARCH");
    if !found.contains_key(&arch) {
        found.insert(arch.clone(), build(&root, &out, &arch));
    }

    let mut code = String::from("static OUTPOSTS: &[Outpost] = &[\n");
    for (arch, path) in found {
        let bytes = std::fs::read(&path).expect("the outpost is readable");
        let hash: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        let copy = out.join(format!("farshell-outpost-{arch}"));
        std::fs::write(&copy, bytes).expect("OUT_DIR is writable");
        writeln!(code, "    Outpost {{ arch: {arch:?}, hash: {hash:?}, bytes: include_bytes!({copy:?}) }},")
            .expect("writing to a string");
    }
    code.push_str("];\n");
    std::fs::write(out.join("outposts.rs"), code).expect("OUT_DIR is writable");
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn build(root: &Path, out: &Path, arch: &str) -> PathBuf {
    let musl = format!("{arch}-unknown-linux-musl");
    let target = if has_target(&musl) { musl } else { format!("{arch}-unknown-linux-gnu") };
    // Shared by all profiles of this build, next to their directories: <target>/<profile>/build/<this>/out.
    let target_dir = out.ancestors().nth(4).unwrap_or(out).join("outpost");
    // Without unwinding tables, identical functions and long tables of relocations it is a tenth smaller. A
    // linker that can't do these things makes an outpost that works as well.
    let script = root.join("crates/bundle/no-unwind.ld").canonicalize().expect("the linker script is there");
    let smaller = [
        "-Cforce-unwind-tables=no".to_owned(),
        "-Cllvm-args=--enable-machine-outliner=always".to_owned(),
        format!("-Clink-arg=-Wl,-T,{}", script.display()),
        "-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned(),
        "-Clink-arg=-Wl,--icf=all".to_owned(),
    ];
    let path = target_dir.join(&target).join("outpost").join("farshell-outpost");
    for extra in [&smaller[..], &[]] {
        if run_cargo(root, &target, &target_dir, extra) {
            return path;
        }
    }
    panic!("building the outpost failed");
}

fn run_cargo(root: &Path, target: &str, target_dir: &Path, extra: &[String]) -> bool {
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    // Nothing in the program tells on which machine it was built.
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    if let Some(dir) = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home) {
        flags.push(format!("--remap-path-prefix={}=", dir.join("registry/src").display()));
    }
    flags.extend_from_slice(extra);
    let mut cargo = Command::new(var("CARGO"));
    cargo
        .current_dir(root)
        .args([
            "build",
            "--package",
            "farshell-outpost",
            "--profile",
            "outpost",
            "--locked",
            "--target",
            target,
        ])
        .arg("--target-dir")
        .arg(target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    // What the outer build was told about itself is not meant for the inner one.
    for name in [
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
        "CARGO_MAKEFLAGS",
        "MAKEFLAGS",
    ] {
        cargo.env_remove(name);
    }
    for (name, _) in std::env::vars() {
        if ["CARGO_PROFILE_", "CARGO_FEATURE_", "CARGO_CFG_", "CARGO_PKG_"]
            .iter()
            .any(|p| name.starts_with(p))
        {
            cargo.env_remove(name);
        }
    }
    cargo.status().expect("cargo runs").success()
}

fn has_target(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let Ok(output) = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output()
    else {
        return false;
    };
    output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
}
