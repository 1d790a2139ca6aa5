//! What a command prints arrives, all of it, and nothing else does.

use crate::case::{Done, cases, check, check_eq};
use crate::env::Env;
use crate::sinks::{Each, Uniform, line, numbered};
use farshell_engine::RunOptions;
use farshell_engine::capture::Capture;
use farshell_protocol::process::{Attach, Stream, View};
use std::time::{Duration, Instant};

const MANY: u64 = 100 << 20;

cases! {
    Both:
        streams_are_apart_and_the_code_is_right,
        no_line_end_is_added,
        all_byte_values_on_both_streams,
        bytes_of_the_builtin_printf,
        output_that_imitates_frames_and_markers,
        output_that_imitates_reports,
        utf_8_and_what_is_not,
        a_line_of_100_megabytes @ 120,
        output_comes_while_the_command_runs,
        merged_streams_keep_their_order,
        both_streams_at_full_speed @ 120,
        a_background_child_holds_the_output,
        hermes_8340_a_daemon_does_not_hold_the_command_up,
        hermes_4_a_sleep_in_the_background_returns_at_once,
        hermes_77301_failing_with_known_phrases_runs_once,
        hermes_86401_the_middle_of_long_output_can_be_read,
        a_command_of_a_megabyte,
        commands_around_the_sizes_that_matter,
        a_thousand_lines_one_write_each,
        output_to_a_closed_pipe,
        dev_stdout_and_dev_stderr_can_be_opened;
}

async fn streams_are_apart_and_the_code_is_right(env: &Env) -> Done {
    env.gives("echo out; echo err >&2; (exit 7)", 7, "out\n", "err\n").await
}

async fn no_line_end_is_added(env: &Env) -> Done {
    env.gives("printf abc; printf def >&2", 0, "abc", "def").await
}

async fn all_byte_values_on_both_streams(env: &Env) -> Done {
    let command = r#"for i in $(seq 0 255); do printf "\\$(printf %03o $i)"; done
        for i in $(seq 255 -1 0); do printf "\\$(printf %03o $i)" >&2; done"#;
    let ran = env.run(command).await?;
    check_eq!(ran.stdout, (0..=255).collect::<Vec<u8>>(), "stdout");
    check_eq!(ran.stderr, (0..=255).rev().collect::<Vec<u8>>(), "stderr");
    Ok(())
}

async fn bytes_of_the_builtin_printf(env: &Env) -> Done {
    let octal: String = (1..=255).map(|byte| format!("\\{byte:03o}")).collect();
    let ran = env.run(format!("printf '{octal}'")).await?;
    check_eq!(ran.stdout, (1..=255).collect::<Vec<u8>>(), "stdout");
    Ok(())
}

async fn output_that_imitates_frames_and_markers(env: &Env) -> Done {
    // The start of a response frame, of a goodbye, of an end of data; then the words of other tools.
    let frames =
        b"\xf5\x03\0\0\x01\0\0\0\x01\0\0\0\xc0\xf5\x09\0\0\0\0\0\0\0\0\0\0\xf5\x07\0\0\x02\0\0\0\0\0\0\0";
    let words =
        b"D 999 0 1 0 0\nX 1 0 0 0 0\nA ready\n__HERMES_FENCE__\n__CWD__/etc__CWD__\n#Fe00000000\n\x00\x00";
    let all: Vec<u8> = frames.iter().chain(words).copied().cycle().take(20_000).collect();
    let octal: String = all.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let ran = env.run(format!("printf '{octal}'; printf '{octal}' >&2; (exit 5)")).await?;
    check_eq!(ran.code(), 5, "the code");
    check!(ran.stdout == all && ran.stderr == all, "the bytes arrive as they are");
    env.says("echo next", "next\n").await
}

async fn output_that_imitates_reports(env: &Env) -> Done {
    // What the shell's own variables hold, printed on every descriptor that is open.
    let command = "set | grep -a -i farshell; for fd in /proc/self/fd/*; do n=${fd##*/}; \
                   [ $n -gt 2 ] && printf 'x end 1 0 /\\0' 2>/dev/null >&$n; done 2>/dev/null; echo real; (exit 3)";
    let ran = env.run(command).await?;
    check_eq!(ran.code(), 3, "the code");
    check!(ran.out().ends_with("real\n"), "the output: {:?}", ran.out());
    env.says("echo next", "next\n").await
}

async fn utf_8_and_what_is_not(env: &Env) -> Done {
    env.says("echo 'héllo ✓ 日本'", "héllo ✓ 日本\n").await?;
    let ran = env.run(b"echo '\xff\xfe caf\xe9'".to_vec()).await?;
    check_eq!(
        ran.stdout,
        b"\xff\xfe caf\xe9\n".to_vec(),
        "Latin-1 and invalid bytes, in the command and back"
    );
    Ok(())
}

async fn a_line_of_100_megabytes(env: &Env) -> Done {
    let mut sink = Uniform::new(b'x');
    let options = env.command(format!("head -c {MANY} /dev/zero | tr '\\0' x"));
    let status = env.environment.run(&options, &mut sink).await?;
    check_eq!((sink.bytes, sink.wrong, sink.gaps), (MANY, 0, 0), "bytes, wrong chunks, gaps");
    check_eq!(status.output.stdout, MANY, "what the status says");
    env.says("echo next", "next\n").await
}

async fn output_comes_while_the_command_runs(env: &Env) -> Done {
    env.says("true", "").await?;
    let begun = Instant::now();
    let mut first = None;
    let mut sink = Each(|_: farshell_protocol::process::Chunk<'_>| {
        first.get_or_insert(begun.elapsed());
    });
    let options = env.command("echo early; sleep 2");
    env.environment.run(&options, &mut sink).await?;
    let (first, all) = (first.unwrap_or(Duration::MAX), begun.elapsed());
    check!(first + Duration::from_secs(1) < all, "the first bytes came after {first:?} of {all:?}");
    Ok(())
}

async fn merged_streams_keep_their_order(env: &Env) -> Done {
    let command = "for i in $(seq 500); do echo o$i; echo e$i >&2; done";
    let ran = env.run_with(&RunOptions { merge_stderr: true, ..env.command(command) }).await?;
    let expected: String = (1..=500).map(|i| format!("o{i}\ne{i}\n")).collect();
    check_eq!((ran.out(), ran.err()), (expected, String::new()), "both streams in one");
    Ok(())
}

async fn both_streams_at_full_speed(env: &Env) -> Done {
    let mut bytes = [0u64; 2];
    let mut wrong = 0;
    let mut sink = Each(|chunk: farshell_protocol::process::Chunk<'_>| {
        let (at, byte) = if chunk.stream == Stream::Stdout { (0, b'o') } else { (1, b'e') };
        if chunk.stream_offset != bytes[at]
            || chunk.bytes.first() != Some(&byte)
            || chunk.bytes.last() != Some(&byte)
        {
            wrong += 1;
        }
        bytes[at] += chunk.bytes.len() as u64;
    });
    let command =
        "(head -c 40000000 /dev/zero | tr '\\0' e >&2) & head -c 40000000 /dev/zero | tr '\\0' o; wait";
    env.environment.run(&env.command(command), &mut sink).await?;
    check_eq!((bytes, wrong), ([40_000_000; 2], 0), "bytes of each stream, wrong chunks");
    Ok(())
}

async fn a_background_child_holds_the_output(env: &Env) -> Done {
    env.says("true", "").await?;
    let options = env.command("(while ! [ -e gate ]; do sleep 0.05; done; echo late) & echo now");
    let ran = env.run_with(&options).await?;
    check_eq!(ran.out(), "now\n", "the output at the command's end");
    check!(ran.status.output.open, "the status says that the output is still held");
    env.says("echo second", "second\n").await?;
    let attach = Attach { from: 0, lossless: false, until_closed: true };
    let mut capture = Capture::unlimited();
    let attached = async { Ok(env.outpost().attach(options.id.clone(), attach, &mut capture).await?) };
    let (status, _) = tokio::try_join!(attached, env.own(env.shell("touch gate")))?;
    check_eq!(capture.stdout.to_bytes(), b"now\nlate\n".to_vec(), "followed until nobody holds it");
    check!(!status.output.open, "then it is closed");
    Ok(())
}

async fn hermes_8340_a_daemon_does_not_hold_the_command_up(env: &Env) -> Done {
    env.says("true", "").await?;
    let ran = env.run(format!("setsid $(command -v nohup) {} & echo d", env.nap(1))).await?;
    check_eq!(ran.out(), "d\n", "the output");
    let ran = env.run(format!("(setsid {} &) ; echo e", env.nap(2))).await?;
    check_eq!(ran.out(), "e\n", "the output");
    env.await_naps(2).await
}

async fn hermes_4_a_sleep_in_the_background_returns_at_once(env: &Env) -> Done {
    let ran = env.run(format!("{} &", env.nap(1))).await?;
    check_eq!(
        (ran.code(), ran.out(), ran.err()),
        (0, String::new(), String::new()),
        "a job in the background"
    );
    Ok(())
}

async fn hermes_77301_failing_with_known_phrases_runs_once(env: &Env) -> Done {
    let command = "echo x >>runs; echo 'Error response from daemon: No such container: abc' >&2; \
                   echo 'container is not running; connection reset by peer; broken pipe' >&2; exit 125";
    let ran = env.run(command).await?;
    check_eq!(ran.code(), 125, "the code");
    env.says("wc -l <runs", "1\n").await
}

async fn hermes_86401_the_middle_of_long_output_can_be_read(env: &Env) -> Done {
    let options = env.command(numbered(20_000));
    let mut capture = Capture::new(50_000);
    let status = env.environment.run(&options, &mut capture).await?;
    check_eq!(status.output.stdout, 200_000, "all bytes are counted");
    check!(capture.truncated(), "the capture says that it is not whole");
    check_eq!((capture.stdout.head().len(), capture.stdout.tail().len()), (20_000, 30_000), "head and tail");
    let omitted = capture.stdout.omitted();
    let len = u32::try_from(omitted.end - omitted.start)?;
    let view = View::Only(Stream::Stdout);
    let piece = env.outpost().read_log(options.id.clone(), view, omitted.start, len).await?;
    let mut whole = capture.stdout.head().to_vec();
    whole.extend(piece.bytes);
    whole.extend(capture.stdout.tail());
    let expected: String = (1..=20_000).map(line).collect();
    check!(whole == expected.as_bytes(), "head, middle from the log and tail make the whole");
    Ok(())
}

async fn a_command_of_a_megabyte(env: &Env) -> Done {
    for size in [100_000, 1 << 20] {
        let big = "x".repeat(size);
        env.says(&format!("v='{big}'; echo ${{#v}}"), &format!("{size}\n")).await?;
    }
    Ok(())
}

async fn commands_around_the_sizes_that_matter(env: &Env) -> Done {
    for size in (250..=262).chain([4095, 4096, 4097, 65535, 65536, 131_071, 131_072]) {
        let padding = "p".repeat(size - "echo 'b'; : ".len());
        env.says(&format!("echo 'b'; : {padding}"), "b\n").await?;
    }
    Ok(())
}

async fn a_thousand_lines_one_write_each(env: &Env) -> Done {
    let expected: String = (1..=1000).map(|i| format!("{i}\n")).collect();
    env.says("for i in $(seq 1000); do echo $i; done", &expected).await
}

async fn output_to_a_closed_pipe(env: &Env) -> Done {
    env.gives("{ yes; echo $? >&2; } | head -n 2", 0, "y\ny\n", "141\n").await
}

async fn dev_stdout_and_dev_stderr_can_be_opened(env: &Env) -> Done {
    env.gives("echo a >/dev/stdout; echo b >/dev/stderr; echo c >/proc/self/fd/1", 0, "a\nc\n", "b\n").await
}
