//! Layers of images: directories that are never written to again, removed when no image and no sandbox has them any more.

use crate::copy;
use crate::options::Base;
use crate::wire::Tree;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One frozen layer: a directory per tree.
#[derive(Debug)]
pub(crate) struct Layer {
    dir: PathBuf,
    number: u64,
}

impl Drop for Layer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What a sandbox can be put on.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    base: Base,
    /// The lowest first.
    layers: Vec<Arc<Layer>>,
}

/// Where all layers are, and what this machine's own root looks like.
#[derive(Debug)]
pub(crate) struct Layers {
    dir: PathBuf,
    host: PathBuf,
    next: AtomicU64,
}

impl Layers {
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        let (layers, host) = (dir.join("layers"), dir.join("host"));
        std::fs::create_dir_all(&layers)?;
        std::fs::create_dir_all(&host)?;
        farshell_emulator_inside::skeleton(&host, &[])?;
        farshell_emulator_inside::host_links(&host, |_, _| Ok(()))?;
        Ok(Self { dir: layers, host, next: AtomicU64::new(1) })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn stack(&self, base: Base) -> Stack {
        Stack { base, layers: Vec::new() }
    }

    /// The overlays of a sandbox that writes into `dir`.
    pub(crate) fn trees(&self, stack: &Stack, dir: &Path) -> io::Result<Vec<Tree>> {
        let mut trees = Vec::new();
        for (at, below) in self.bases(&stack.base) {
            let name = tree_name(&at);
            let (upper, work) = (dir.join("upper").join(name), dir.join("work").join(name));
            std::fs::create_dir_all(&upper)?;
            std::fs::create_dir_all(&work)?;
            // The root of a sandbox looks like the root that it is a copy of.
            like(&below, &upper)?;
            let mut lower: Vec<PathBuf> = stack.layers.iter().rev().map(|layer| layer.named(name)).collect();
            lower.push(below);
            trees.push(Tree { at, lower, upper, work });
        }
        Ok(trees)
    }

    /// Parts of the root that come from somewhere, the root itself first.
    fn bases(&self, base: &Base) -> Vec<(String, PathBuf)> {
        match base {
            Base::Dir(dir) => vec![(String::new(), dir.clone())],
            // Directories that are real ones here; the others are links, or nothing.
            Base::Host => std::iter::once((String::new(), self.host.clone()))
                .chain(["usr", "etc", "bin", "sbin", "lib", "lib64", "lib32"].into_iter().filter_map(
                    |name| {
                        let here = Path::new("/").join(name);
                        let real = std::fs::symlink_metadata(&here).is_ok_and(|meta| meta.is_dir());
                        real.then(|| (name.to_owned(), here))
                    },
                ))
                .collect(),
        }
    }

    /// What was written on top of a stack becomes its next layer. Blocks for as long as copying takes.
    pub(crate) fn freeze(&self, stack: &Stack, trees: &[Tree]) -> io::Result<Stack> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let layer = Layer { dir: self.dir.join(number.to_string()), number };
        std::fs::create_dir(&layer.dir)?;
        for tree in trees {
            let to = layer.dir.join(tree_name(&tree.at));
            std::fs::create_dir(&to)?;
            copy::tree(&tree.upper, &to)?;
        }
        let mut all = stack.clone();
        all.layers.push(Arc::new(layer));
        Ok(all)
    }
}

impl Layer {
    /// Relative to the directory of all layers.
    fn named(&self, tree: &str) -> PathBuf {
        Path::new(&self.number.to_string()).join(tree)
    }
}

fn tree_name(at: &str) -> &str {
    if at.is_empty() { "root" } else { at }
}

/// Mode and owner of a directory.
fn like(model: &Path, dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(model)?;
    std::os::unix::fs::chown(dir, Some(meta.uid()), Some(meta.gid()))?;
    std::fs::set_permissions(dir, meta.permissions())
}
