//! What a hostile message can make its reader allocate. One test in a process of its own, because it reads
//! the size of the process.

use farshell_protocol::message::from_bytes;
use farshell_protocol::{Event, Failure, Hello, Reply, Request};

/// The largest size of the address space so far, in KiB: untouched memory counts.
#[expect(clippy::unwrap_used, reason = "a helper of the test")]
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn announced_lengths_allocate_next_to_nothing() {
    let before = peak_kib();
    // array, map, bytes, text and extension of 2^32-1 elements, and arrays in the places of our own lists
    let mut hostile: Vec<Vec<u8>> = [0xdd, 0xdf, 0xc6, 0xdb, 0xc9]
        .into_iter()
        .flat_map(|marker| {
            let huge = [marker, 0xff, 0xff, 0xff, 0xff, 0x01];
            let lists =
                ["Sessions", "Processes", "Killed", "Start", "OpenSession", "File", "Log", "Info", "zz"];
            let named = lists.into_iter().map(move |name| {
                let mut bytes = vec![0x81, 0xa0 | name.len() as u8];
                bytes.extend_from_slice(name.as_bytes());
                bytes.extend_from_slice(&huge);
                bytes
            });
            named.chain([huge.to_vec()])
        })
        .collect();
    for list in ["Entries", "Files", "Counts"] {
        let mut bytes = b"\x81\xa4File\x81".to_vec();
        bytes.push(0xa0 | list.len() as u8);
        bytes.extend_from_slice(list.as_bytes());
        bytes.extend_from_slice(b"\xdd\xff\xff\xff\xff");
        hostile.push(bytes);
    }
    for field in ["env", "init_files", "cwd"] {
        let mut bytes = b"\x81\xabOpenSession\x81".to_vec();
        bytes.push(0xa0 | field.len() as u8);
        bytes.extend_from_slice(field.as_bytes());
        bytes.extend_from_slice(b"\xdd\xff\xff\xff\xff");
        hostile.push(bytes);
    }
    for bytes in &hostile {
        assert!(from_bytes::<Hello>(bytes).is_err());
        assert!(from_bytes::<Request>(bytes).is_err());
        assert!(from_bytes::<Reply>(bytes).is_err());
        assert!(from_bytes::<Event>(bytes).is_err());
        assert!(from_bytes::<Failure>(bytes).is_err());
    }
    let grown = peak_kib() - before;
    assert!(grown < 16 << 10, "{grown} KiB more");

    // Real elements cost what they are in memory: 24 bytes for each byte of a full frame.
    let mut bytes = b"\x81\xabOpenSession\x81\xaainit_files\xdd\x00\x3f\xff\x00".to_vec();
    bytes.resize(farshell_protocol::frame::MAX_PAYLOAD, 0x90);
    assert!(from_bytes::<Request>(&bytes).is_err());
    let grown = peak_kib() - before;
    assert!(grown < 400 << 10, "{grown} KiB more");
}
