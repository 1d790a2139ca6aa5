//! Input, by offset.

use crate::rig::{Emulator, Sandbox};
use farshell_modal_proto::client::*;
use farshell_modal_proto::router::task_exec_stdin_write_stream_request::Payload;
use farshell_modal_proto::router::*;
use tonic::{Code, Status};

#[tokio::test]
async fn offsets_decide_what_is_new() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    let exec = sandbox.start(sandbox.wish(&["cat"])).await;
    sandbox.write(&exec, 0, b"hello ", false).await.unwrap();
    // Again, and again with more.
    sandbox.write(&exec, 0, b"hello ", false).await.unwrap();
    sandbox.write(&exec, 3, b"lo world", false).await.unwrap();
    let gap = sandbox.write(&exec, 100, b"far", false).await.unwrap_err();
    assert_eq!(gap.code(), Code::FailedPrecondition);
    assert_eq!(status(&sandbox, &exec).await, (11, false));
    sandbox.write(&exec, 11, b"!", true).await.unwrap();
    sandbox.write(&exec, 11, b"!", true).await.unwrap();
    sandbox.write(&exec, 12, b"", true).await.unwrap();
    assert_eq!(sandbox.write(&exec, 12, b"more", false).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(sandbox.read(&exec, 0, false).await.unwrap(), b"hello world!");
    assert_eq!(sandbox.wait(&exec).await.unwrap(), 0);
    assert_eq!(status(&sandbox, &exec).await, (12, true));
    let exec = sandbox.start(sandbox.shell("exit 0")).await;
    sandbox.wait(&exec).await.unwrap();
    assert_eq!(sandbox.write(&exec, 0, b"late", false).await.unwrap_err().code(), Code::FailedPrecondition);
    let huge = vec![0; (16 << 20) + 1];
    let exec = sandbox.start(sandbox.wish(&["cat"])).await;
    assert_eq!(sandbox.write(&exec, 0, &huge, false).await.unwrap_err().code(), Code::InvalidArgument);
}

async fn status(sandbox: &Sandbox, exec: &str) -> (u64, bool) {
    let wish = TaskExecStdinStatusRequest { task_id: sandbox.task.clone(), exec_id: exec.into() };
    let answer = sandbox.router.clone().task_exec_stdin_status(sandbox.ask(wish)).await.unwrap().into_inner();
    (answer.num_bytes_written, answer.closed)
}

async fn stream(sandbox: &Sandbox, exec: &str, offset: u64, rest: Vec<Payload>) -> Result<(), Status> {
    let start = TaskExecStdinWriteStreamStart { task_id: sandbox.task.clone(), exec_id: exec.into(), offset };
    let all = std::iter::once(Payload::Start(start)).chain(rest);
    let messages: Vec<_> =
        all.map(|payload| TaskExecStdinWriteStreamRequest { payload: Some(payload) }).collect();
    let request = sandbox.ask(futures_util::stream::iter(messages));
    sandbox.router.clone().task_exec_stdin_write_stream(request).await.map(|_| ())
}

#[tokio::test]
async fn a_stream_of_it_goes_on_where_it_broke_off() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    let exec = sandbox.start(sandbox.wish(&["sh", "-c", "cat | md5sum"])).await;
    let data = |byte: u8| Payload::Data(vec![byte; 256 << 10].into());
    // Without an end it stays open.
    stream(&sandbox, &exec, 0, vec![data(b'a'), data(b'b')]).await.unwrap();
    assert_eq!(status(&sandbox, &exec).await, (512 << 10, false));
    let wrong = stream(&sandbox, &exec, 5, vec![data(b'c')]).await.unwrap_err();
    assert_eq!(wrong.code(), Code::FailedPrecondition);
    stream(&sandbox, &exec, 512 << 10, vec![data(b'c'), Payload::End(TaskExecStdinWriteStreamEnd {})])
        .await
        .unwrap();
    assert_eq!(status(&sandbox, &exec).await, (768 << 10, true));
    let sum = sandbox.read(&exec, 0, false).await.unwrap();
    let letters = "for c in a b c; do head -c 262144 /dev/zero | tr '\\0' $c; done | md5sum";
    assert_eq!(String::from_utf8(sum).unwrap(), sandbox.sh(letters).await);
}

#[tokio::test]
async fn one_that_is_stuck_is_evicted_by_whoever_asks() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let sandbox = emulator.client().await.sandbox().await;
    // It reads nothing until it is told to, in a file.
    let exec = sandbox.start(sandbox.shell("until test -e /tmp/go; do sleep 0.05; done; wc -c")).await;
    let stuck = tokio::spawn({
        let (sandbox, exec) = (sandbox.clone(), exec.clone());
        async move { stream(&sandbox, &exec, 0, vec![Payload::Data(vec![0; 1 << 20].into())]).await }
    });
    // A pipe holds 64 KiB.
    let written = loop {
        let (written, closed) = status(&sandbox, &exec).await;
        assert!(!closed && written < 1 << 20, "{written}");
        if written > 0 {
            break written;
        }
    };
    assert_eq!(stuck.await.unwrap().unwrap_err().code(), Code::Aborted);
    sandbox.sh("touch /tmp/go").await;
    let rest = usize::try_from((1 << 20) - written).unwrap();
    let end = Payload::End(TaskExecStdinWriteStreamEnd {});
    stream(&sandbox, &exec, written, vec![Payload::Data(vec![0; rest].into()), end]).await.unwrap();
    assert_eq!(sandbox.read(&exec, 0, false).await.unwrap(), b"1048576\n");
}

#[tokio::test]
async fn of_the_entrypoint() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let echo = ["sh", "-c", "while read line; do echo \"<$line>\"; echo err >&2; done; echo over"];
    let sandbox = modal.create(modal.definition(&echo)).await;
    let write = async |offset: u64, data: &'static [u8], eof| {
        let wish =
            SandboxStdinWriteV2Request { task_id: sandbox.task.clone(), offset, data: data.into(), eof };
        sandbox.router.clone().sandbox_stdin_write_v2(sandbox.ask(wish)).await.unwrap();
    };
    write(0, b"one\n", false).await;
    write(0, b"one\n", false).await;
    let wish = SandboxStdioReadV2Request { task_id: sandbox.task.clone(), offset: 1, file_descriptor: 0 };
    let mut output =
        sandbox.router.clone().sandbox_stdio_read_v2(sandbox.ask(wish)).await.unwrap().into_inner();
    let mut said = Vec::new();
    while !said.ends_with(b"one>\n") {
        let message = output.message().await.unwrap().unwrap();
        assert_eq!(message.starting_offset, 1 + said.len() as u64);
        said.extend_from_slice(&message.data);
    }
    assert_eq!(said, b"one>\n");
    write(4, b"two\n", true).await;
    while let Some(message) = output.message().await.unwrap() {
        said.extend_from_slice(&message.data);
    }
    assert_eq!(said, b"one>\n<two>\nover\n");

    // The first kind counts messages, and has text.
    let sandbox = modal.first_kind(modal.definition(&echo)).await;
    let mut client = modal.client.clone();
    for (index, input) in [(1, "é\n"), (1, "é\n"), (2, "b\n")] {
        let wish = SandboxStdinWriteRequest {
            sandbox_id: sandbox.id.clone(),
            input: input.into(),
            index,
            eof: index == 2,
        };
        client.sandbox_stdin_write(modal.ask(wish)).await.unwrap();
    }
    let logs = |file_descriptor: FileDescriptor, last_entry_id: &str| SandboxGetLogsRequest {
        sandbox_id: sandbox.id.clone(),
        file_descriptor: file_descriptor as i32,
        timeout: 30.0,
        last_entry_id: last_entry_id.into(),
    };
    let mut entries = Vec::new();
    let mut stream =
        client.sandbox_get_logs(modal.ask(logs(FileDescriptor::Stdout, ""))).await.unwrap().into_inner();
    while let Some(batch) = stream.message().await.unwrap() {
        entries.push((
            batch.items.iter().map(|item| item.data.as_str()).collect::<String>(),
            batch.entry_id,
            batch.eof,
        ));
    }
    assert_eq!(entries.iter().map(|entry| entry.0.as_str()).collect::<String>(), "<é>\n<b>\nover\n");
    assert!(entries.last().unwrap().2);
    // From the end of an entry on.
    let after: String = entries[1..].iter().map(|entry| entry.0.as_str()).collect();
    let mut stream = client
        .sandbox_get_logs(modal.ask(logs(FileDescriptor::Stdout, &entries[0].1)))
        .await
        .unwrap()
        .into_inner();
    let mut again = String::new();
    while let Some(batch) = stream.message().await.unwrap() {
        again.extend(batch.items.iter().map(|item| item.data.as_str()));
    }
    assert_eq!(again, after);
}
