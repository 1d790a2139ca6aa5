//! The outposts that this build carries, one for each architecture.
//!
//! The build script builds the one for this machine. A packager who has others (cross-built, or built on
//! other machines) puts them into one directory as `farshell-outpost-<arch>` (`x86_64`, `aarch64`, …: the
//! first part of the target triple) and names it in `FARSHELL_OUTPOSTS` when building Farshell: what is there
//! is carried along, and replaces the build for this machine if it is there too.

/// One outpost binary.
#[derive(Clone, Copy)]
pub struct Outpost {
    /// As `uname -m` says it.
    pub arch: &'static str,
    /// SHA-256 of the bytes, in hex: the name under which it is installed.
    pub hash: &'static str,
    pub bytes: &'static [u8],
}

impl std::fmt::Debug for Outpost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outpost({}, {}, {} bytes)", self.arch, self.hash, self.bytes.len())
    }
}

include!(concat!(env!("OUT_DIR"), "/outposts.rs"));

/// All outposts that this build carries.
#[must_use]
pub fn outposts() -> &'static [Outpost] {
    OUTPOSTS
}

/// The outpost for an architecture, as `uname -m` names it.
#[must_use]
pub fn for_arch(arch: &str) -> Option<&'static Outpost> {
    let arch = match arch {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    OUTPOSTS.iter().find(|o| o.arch == arch)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest outpost that is carried: it travels to every remote place.
    const MOST: usize = 3 << 20;

    /// The kinds of an ELF file's segments (64 bits, little endian, as all our targets are).
    fn segment_types(elf: &[u8]) -> Vec<u32> {
        let number = |at: usize, len: usize| {
            elf[at..at + len].iter().rev().fold(0_usize, |value, byte| value << 8 | usize::from(*byte))
        };
        let (first, size, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
        (0..count).map(|i| number(first + i * size, 4) as u32).collect()
    }

    #[test]
    fn this_machine_has_a_small_static_outpost() {
        let outpost = for_arch(std::env::consts::ARCH).unwrap();
        assert!(outpost.bytes.len() <= MOST, "{} bytes", outpost.bytes.len());
        assert!(outpost.bytes.starts_with(b"\x7fELF"));
        // A dynamically linked program asks for a loader (PT_INTERP).
        assert!(segment_types(outpost.bytes).iter().all(|kind| *kind != 3), "it is not static");
    }
}
