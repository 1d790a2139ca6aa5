use super::*;

fn log(cap: u64) -> (tempdir::Dir, Log) {
    let dir = tempdir::Dir::new();
    let log = Log::new(dir.0.join("p"), cap);
    (dir, log)
}

mod tempdir {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    pub(super) struct Dir(pub(super) PathBuf);
    static NEXT: AtomicU32 = AtomicU32::new(0);

    impl Dir {
        pub(super) fn new() -> Self {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("farshell-log-{}-{n}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn all(log: &Log, view: View) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let piece = log.piece(view, out.len() as u64, 1000, false);
        assert_eq!(piece.offset, out.len() as u64);
        if piece.bytes.is_empty() {
            assert!(piece.eof);
            return out;
        }
        out.extend(piece.bytes);
    }
}

#[test]
fn streams_apart_and_in_arrival_order_across_the_spill() {
    let (_dir, mut log) = log(32 << 20);
    let (mut out, mut err, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..5000_u32 {
        let text = format!("{i}\n");
        let stream = if i % 3 == 0 { Stream::Stderr } else { Stream::Stdout };
        log.append(stream, text.as_bytes());
        if i % 3 == 0 { &mut err } else { &mut out }.extend(text.as_bytes());
        both.extend(text.as_bytes());
    }
    assert_eq!(all(&log, View::Only(Stream::Stdout)), out);
    assert_eq!(all(&log, View::Only(Stream::Stderr)), err);
    assert_eq!(all(&log, View::Arrival), both);
    assert_eq!(log.memory(), 0, "it went to disk");
}

#[test]
fn a_small_log_makes_no_file() {
    let (dir, mut log) = log(32 << 20);
    log.append(Stream::Stdout, b"hello");
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0);
    assert_eq!(all(&log, View::Arrival), b"hello");
}

#[test]
fn the_middle_is_dropped_and_said() {
    let (dir, mut log) = log(256 << 10);
    let byte = |i: u64| (i % 251) as u8;
    let total = 2_000_000_u64;
    let mut at = 0;
    while at < total {
        let chunk: Vec<u8> = (at..(at + 3000).min(total)).map(byte).collect();
        log.append(Stream::Stdout, &chunk);
        at += chunk.len() as u64;
    }
    let status = log.status(false);
    assert_eq!(status.stdout, total);
    assert!(status.dropped_from > 60_000 && status.dropped_to < total - 150_000, "{status:?}");
    assert!(log.disk() <= 256 << 10);
    assert!(std::fs::read_dir(&dir.0).unwrap().count() <= 32);
    let mut cursor = Cursor::default();
    let mut seen = 0_u64;
    let mut gaps = Vec::new();
    loop {
        match log.read(&mut cursor, 7777) {
            Read::Piece { offset, bytes, .. } => {
                for (i, b) in bytes.iter().enumerate() {
                    assert_eq!(*b, byte(offset + i as u64));
                }
                seen += bytes.len() as u64;
            }
            Read::Gap { from, to } => gaps.push((from, to)),
            Read::End => break,
        }
    }
    assert_eq!(gaps, [(status.dropped_from, status.dropped_to)]);
    assert_eq!(seen + (status.dropped_to - status.dropped_from), total);
    let piece = log.piece(View::Only(Stream::Stdout), status.dropped_from + 10, 10, false);
    assert_eq!(piece.offset, status.dropped_to, "a read in the hole continues behind it");
}

#[test]
fn files_go_with_the_log() {
    let (dir, mut log) = log(1 << 20);
    log.append(Stream::Stdout, &vec![b'x'; 300_000]);
    assert!(std::fs::read_dir(&dir.0).unwrap().count() > 0);
    drop(log);
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0);
}

/// What a reader gets from here on, and what it is told is lost.
fn read_on(log: &Log, cursor: &mut Cursor, byte: impl Fn(u64) -> u8) -> (u64, u64) {
    let (mut seen, mut lost) = (0, 0);
    loop {
        match log.read(cursor, 7777) {
            Read::Piece { offset, bytes, .. } => {
                assert!(bytes.iter().zip(offset..).all(|(b, at)| *b == byte(at)));
                seen += bytes.len() as u64;
            }
            Read::Gap { from, to } => lost += to - from,
            Read::End => return (seen, lost),
        }
    }
}

#[test]
fn a_log_without_files_keeps_what_is_newest_and_says_what_is_gone() {
    let byte = |i: u64| (i % 251) as u8;
    // Before the first file, after some, and after more than the log holds.
    for before in [5_u64, 100_000, 3_000_000] {
        let (dir, mut log) = log(1 << 20);
        let mut cursor = Cursor::default();
        let print = |log: &mut Log, len: u64| {
            let at = log.total();
            log.append(Stream::Stdout, &(at..at + len).map(byte).collect::<Vec<u8>>());
        };
        print(&mut log, before);
        read_on(&log, &mut cursor, byte);
        // New files can't be made, and old ones can't grow.
        std::fs::remove_dir_all(&dir.0).unwrap();
        for segment in &mut log.segments {
            if let Store::File(file, path) = &mut segment.store {
                *file =
                    File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))).unwrap();
                assert!(file.write_all_at(b"x", 0).is_err(), "{path:?}");
            }
        }
        // Whoever keeps within two megabytes gets all of it.
        for _ in 0..3 {
            for _ in 0..8 {
                print(&mut log, 250_000);
            }
            assert_eq!(read_on(&log, &mut cursor, byte), (2_000_000, 0), "{before}");
        }
        assert!(log.memory() <= 8 << 20, "{}", log.memory());
        let status = log.status(false);
        assert_eq!(status.stdout, before + 6_000_000);
        assert!(status.log_error.is_some());
        let (seen, lost) = read_on(&log, &mut Cursor::default(), byte);
        assert_eq!(seen + lost, status.stdout);
        assert!(seen > 2_500_000, "{seen}");
        assert!(lost <= status.dropped_to - status.dropped_from);
        log.forget();
        assert_eq!((log.memory(), log.status(false).dropped_to), (0, status.stdout));
        let (seen, lost) = read_on(&log, &mut Cursor::default(), byte);
        assert_eq!(seen + lost, status.stdout);
    }
}
