//! Archives to put into a container before it starts: the few kinds of entry that are needed.

/// A tar archive in the making.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
}

const BLOCK: usize = 512;

impl Archive {
    pub(crate) fn dir(mut self, name: &str, mode: u32) -> Self {
        self.entry(name, mode, b'5', "", &[]);
        self
    }

    pub(crate) fn file(mut self, name: &str, mode: u32, bytes: &[u8]) -> Self {
        self.entry(name, mode, b'0', "", bytes);
        self
    }

    pub(crate) fn link(mut self, name: &str, target: &str) -> Self {
        self.entry(name, 0o777, b'2', target, &[]);
        self
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    /// Names are ours and short: both fit.
    fn entry(&mut self, name: &str, mode: u32, kind: u8, target: &str, bytes: &[u8]) {
        let mut header = [0; BLOCK];
        let mut put = |at: usize, len: usize, text: &str| {
            let text = &text.as_bytes()[..text.len().min(len)];
            header[at..at + text.len()].copy_from_slice(text);
        };
        put(0, 100, name);
        put(100, 8, &format!("{mode:07o}"));
        put(108, 8, "0000000");
        put(116, 8, "0000000");
        put(124, 12, &format!("{:011o}", bytes.len()));
        put(136, 12, "00000000000");
        put(148, 8, "        ");
        put(157, 100, target);
        put(257, 8, "ustar\u{0}00");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    #[test]
    fn tar_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Archive::default()
            .dir("d", 0o755)
            .dir("d/open", 0o1777)
            .file("d/program", 0o755, &[7; 700])
            .link("run", "d/program")
            .finish();
        let mut tar = Command::new("tar")
            .args(["-xpf", "-", "-C"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&archive).unwrap();
        assert!(tar.wait().unwrap().success());
        assert_eq!(std::fs::read(dir.path().join("run")).unwrap(), [7; 700]);
        let mode = |name| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("d/program"), mode("d/open")), (0o755, 0o1777));
    }
}
