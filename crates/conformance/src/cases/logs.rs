//! Output logs: read by offset, capped, forgotten.

use crate::case::{Done, Failure, cases, check, check_eq};
use crate::env::Env;
use crate::sinks::{LINE, Numbered, numbered};
use farshell_engine::Kind;
use farshell_engine::capture::Sink;
use farshell_protocol::ProcessId;
use farshell_protocol::process::{Attach, Chunk, Start, Stream, View};

cases! {
    Any:
        a_log_is_read_by_stream_and_offset,
        arrival_order,
        hermes_92162_reading_on_from_an_offset,
        logs_of_all_sizes_around_the_limits_of_memory,
        a_cap_drops_the_middle_and_says_so,
        a_reader_who_must_get_all_gets_all_despite_the_cap @ 180,
        a_forgotten_log_is_gone_and_its_id_stays_taken,
        attach_from_an_offset;
}

async fn read(env: &Env, id: &ProcessId, view: View, from: u64) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    loop {
        let piece = env.outpost().read_log(id.clone(), view, from + all.len() as u64, 1 << 20).await?;
        check_eq!(piece.offset, from + all.len() as u64, "the offset of the piece");
        all.extend_from_slice(&piece.bytes);
        if piece.eof {
            return Ok(all);
        }
        check!(!piece.bytes.is_empty(), "an ended process's log goes on or ends: at {}", all.len());
    }
}

async fn a_log_is_read_by_stream_and_offset(env: &Env) -> Done {
    let start = env.shell("printf 0123456789; printf abcdef >&2");
    env.own(start.clone()).await?;
    let (out, err) = (View::Only(Stream::Stdout), View::Only(Stream::Stderr));
    let outpost = env.outpost();
    for (view, offset, len, expected, total) in [
        (out, 0, 100, "0123456789", 10),
        (out, 3, 4, "3456", 10),
        (out, 10, 5, "", 10),
        (out, 99, 5, "", 10),
        (err, 0, 100, "abcdef", 6),
        (err, 5, 1, "f", 6),
        (View::Arrival, 16, 1, "", 16),
    ] {
        let piece = outpost.read_log(start.id.clone(), view, offset, len).await?;
        let found = (String::from_utf8_lossy(&piece.bytes).into_owned(), piece.total);
        check_eq!(found, (expected.to_owned(), total), "{view:?} at {offset}, {len} bytes");
    }
    check!(outpost.read_log(start.id.clone(), out, 5, 5).await?.eof, "the last piece says that it is");
    check!(!outpost.read_log(start.id.clone(), out, 5, 4).await?.eof, "one before does not");
    Ok(())
}

async fn arrival_order(env: &Env) -> Done {
    let command = "for i in 1 2 3; do echo o$i; sleep 0.1; echo e$i >&2; sleep 0.1; done";
    let start = env.shell(command);
    env.own(start.clone()).await?;
    let all = read(env, &start.id, View::Arrival, 0).await?;
    check_eq!(String::from_utf8_lossy(&all), "o1\ne1\no2\ne2\no3\ne3\n", "both streams");
    Ok(())
}

async fn hermes_92162_reading_on_from_an_offset(env: &Env) -> Done {
    let start = env.shell("for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done");
    env.outpost().start(start.clone()).await?;
    let mut all = Vec::new();
    loop {
        let piece = env.outpost().read_log(start.id.clone(), View::Arrival, all.len() as u64, 1024).await?;
        check_eq!(piece.offset, all.len() as u64, "the offset");
        all.extend(piece.bytes);
        if piece.eof {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(15)).await;
    }
    check_eq!(String::from_utf8_lossy(&all), "1\n2\n3\n4\n5\n6\n", "read while it runs");
    Ok(())
}

async fn logs_of_all_sizes_around_the_limits_of_memory(env: &Env) -> Done {
    for lines in [1, 1637, 1638, 1639, 1640, 3276, 3277, 6553, 6554, 26_214, 26_215, 200_000] {
        let start = env.shell(&numbered(lines));
        let mut sink = Numbered::from(0);
        env.outpost().run(start.clone(), &mut sink).await?;
        check_eq!((sink.at, sink.wrong, sink.gaps), (lines * LINE, None, 0), "{lines} lines followed");
        let middle = lines * LINE / 2 + 3;
        let mut check = Numbered::from(middle);
        check.push(&read(env, &start.id, View::Only(Stream::Stdout), middle).await?);
        check_eq!((check.at, check.wrong), (lines * LINE, None), "{lines} lines read from {middle} on");
    }
    Ok(())
}

async fn a_cap_drops_the_middle_and_says_so(env: &Env) -> Done {
    const CAP: u64 = 8 << 20;
    let lines = 4_000_000;
    let start = Start { log_cap: CAP, ..env.shell(&numbered(lines)) };
    env.outpost().start(start.clone()).await?;
    let status = env.ended(&start.id).await?;
    let output = &status.output;
    check_eq!(output.stdout, lines * LINE, "all bytes are counted");
    let (from, to) = (output.dropped_from, output.dropped_to);
    check!(0 < from && from < to && to < lines * LINE, "the middle is gone: {from}..{to}");
    let kept = from + (lines * LINE - to);
    check!(kept <= CAP && kept > CAP / 2, "{kept} bytes are kept of {CAP}");
    let mut head = Numbered::from(0);
    let mut tail = Numbered::from(to);
    let outpost = env.outpost();
    while head.at < from {
        let len = u32::try_from(from - head.at)?;
        let piece = outpost.read_log(start.id.clone(), View::Arrival, head.at, len).await?;
        check!(
            !piece.bytes.is_empty() && piece.offset == head.at,
            "the head at {}: {}",
            head.at,
            piece.offset
        );
        head.push(&piece.bytes);
    }
    tail.push(&read(env, &start.id, View::Arrival, to).await?);
    check_eq!((head.wrong, tail.wrong, tail.at), (None, None, lines * LINE), "head and tail");
    let piece = outpost.read_log(start.id.clone(), View::Arrival, from + 1, 10).await?;
    check_eq!(piece.offset, to, "a read in the gap goes on after it");
    let piece = outpost.read_log(start.id.clone(), View::Only(Stream::Stdout), (from + to) / 2, 10).await?;
    check_eq!(piece.offset, to, "a read in the gap of a stream goes on after it");

    #[derive(Default)]
    struct Gaps(Vec<(u64, u64)>, u64);
    impl Sink for Gaps {
        fn chunk(&mut self, chunk: Chunk<'_>) {
            self.1 += chunk.bytes.len() as u64;
        }
        fn gap(&mut self, from: u64, to: u64) {
            self.0.push((from, to));
        }
    }
    let mut gaps = Gaps::default();
    outpost
        .attach(start.id.clone(), Attach { from: 0, lossless: false, until_closed: false }, &mut gaps)
        .await?;
    check_eq!((gaps.0, gaps.1), (vec![(from, to)], kept), "who follows later is told of the gap");
    Ok(())
}

async fn a_reader_who_must_get_all_gets_all_despite_the_cap(env: &Env) -> Done {
    let lines = 4_000_000;
    for cap in [1, 1 << 20, 8 << 20] {
        let start = Start { log_cap: cap, ..env.shell(&numbered(lines)) };
        let mut sink = Numbered::from(0);
        let status = env.outpost().run(start, &mut sink).await?;
        let found = (sink.at, sink.wrong, sink.gaps);
        check_eq!(found, (lines * LINE, None, 0), "bytes, first wrong one, gaps with a cap of {cap}");
        check!(status.output.dropped_to > status.output.dropped_from, "the log itself is capped");
    }
    Ok(())
}

async fn a_forgotten_log_is_gone_and_its_id_stays_taken(env: &Env) -> Done {
    let start = env.shell("echo x >>runs; seq 1 100000");
    env.own(start.clone()).await?;
    env.outpost().forget(start.id.clone()).await?;
    match env.outpost().read_log(start.id.clone(), View::Arrival, 0, 10).await {
        Err(error) => check_eq!(error.kind, Kind::NotFound, "reading it"),
        Ok(piece) => check!(false, "it is still there: {piece:?}"),
    }
    match env.outpost().start(start.clone()).await {
        Err(error) => check_eq!(error.kind, Kind::AlreadyExists, "starting it again"),
        Ok(status) => check!(false, "it was started again: {status:?}"),
    }
    env.await_file("runs", "x\n").await?;
    let running = env.shell("sleep 30");
    env.outpost().start(running.clone()).await?;
    match env.outpost().forget(running.id.clone()).await {
        Err(error) => check_eq!(error.kind, Kind::Busy, "forgetting what runs"),
        Ok(()) => check!(false, "a running process was forgotten"),
    }
    env.outpost().kill(vec![running.id], std::time::Duration::ZERO).await?;
    Ok(())
}

async fn attach_from_an_offset(env: &Env) -> Done {
    let lines = 300_000;
    let start = env.shell(&numbered(lines));
    env.own(start.clone()).await?;
    for from in [0, 1, 15, 16_383, 16_384, 1_000_001, lines * LINE - 1, lines * LINE] {
        let mut sink = Numbered::from(from);
        env.outpost().attach(start.id.clone(), Attach { from, ..Attach::foreground() }, &mut sink).await?;
        check_eq!((sink.at, sink.wrong, sink.gaps), (lines * LINE, None, 0), "followed from {from}");
    }
    Ok(())
}
