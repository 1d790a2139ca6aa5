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

#[test]
fn a_log_that_cannot_be_written_says_so_and_counts_on() {
    let (dir, mut log) = log(1 << 20);
    log.append(Stream::Stdout, b"start");
    std::fs::remove_dir_all(&dir.0).unwrap();
    log.append(Stream::Stdout, &vec![b'x'; 100_000]);
    let status = log.status(false);
    assert_eq!(status.stdout, 100_005);
    assert!(status.log_error.is_some());
    assert_eq!(status.dropped_to, 100_005);
    let mut cursor = Cursor::default();
    assert!(matches!(log.read(&mut cursor, 100), Read::Piece { .. }));
    while !matches!(log.read(&mut cursor, 1 << 20), Read::End) {}
    assert_eq!(cursor.offset, 100_005);
}
