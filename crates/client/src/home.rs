//! Where the server's files are.

use std::path::{Path, PathBuf};

/// The server's files of one `$HERMES_HOME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    pub home: PathBuf,
    /// Private to the user.
    pub dir: PathBuf,
}

impl Files {
    #[must_use]
    pub fn of(home: &Path) -> Self {
        Self { home: home.to_owned(), dir: home.join("farshell").join("server") }
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// Held by the running server; has its process number in it.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// What a server in the background says.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The process that holds the lock, as far as the file says.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.lock()).ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    /// The last lines of the log: why a server ended, in its own words.
    #[must_use]
    pub fn last_words(&self, lines: usize) -> Vec<String> {
        const MOST: u64 = 16 << 10;
        use std::io::{Read, Seek, SeekFrom};
        let mut text = Vec::new();
        let Ok(mut file) = std::fs::File::open(self.log()) else { return Vec::new() };
        let len = file.metadata().map_or(0, |meta| meta.len());
        if file.seek(SeekFrom::Start(len.saturating_sub(MOST))).is_err()
            || file.take(MOST).read_to_end(&mut text).is_err()
        {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_the_last_ones() {
        let home = tempfile::tempdir().unwrap();
        let files = Files::of(home.path());
        assert_eq!(files.last_words(3), Vec::<String>::new());
        std::fs::create_dir_all(&files.dir).unwrap();
        let many: String = (0..10_000).map(|i| format!("line {i}\n\n")).collect();
        std::fs::write(files.log(), many).unwrap();
        assert_eq!(files.last_words(2), ["line 9998", "line 9999"]);
        std::fs::write(files.lock(), "4711\n").unwrap();
        assert_eq!(files.pid(), Some(4711));
    }
}
