"""Daytona's own Python SDK drives the emulator through its public API. Usage: sdk.py, with DAYTONA_API_URL and _KEY set."""

import importlib.metadata
import os
import tempfile
import threading
import time
import uuid

import daytona as sdk
from daytona import CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, Daytona, FileUpload, Resources

VERSION = tuple(int(part) for part in importlib.metadata.version("daytona").split(".")[:2])
NEW = VERSION >= (0, 190)
RUN = uuid.uuid4().hex[:8]


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} is not {expected!r}")


def said(ran):
    """What a command printed. Older clients take the last newline away."""
    return ran.result.rstrip("\n")


def refused(call, *parts):
    try:
        call()
    except sdk.DaytonaError as error:
        text = str(error)
        for part in parts:
            if part not in text:
                raise AssertionError(f"{part!r} is not in {text!r}")
        return
    raise AssertionError("it was not refused")


def listed(client, labels):
    if NEW:
        return [item.name for item in client.list(sdk.ListSandboxesQuery(labels=labels))]
    return [item.name for item in client.list(labels).items]


def life(client):
    name = f"sdk-{RUN}"
    refused(lambda: client.get(name), "not found")
    sandbox = client.create(
        CreateSandboxFromImageParams(
            image="nikolaik/python-nodejs:python3.11-nodejs20",
            name=name,
            labels={"run": RUN},
            env_vars={"GREETING": "hello"},
            resources=Resources(cpu=1, memory=2, disk=3),
            auto_stop_interval=0,
        )
    )
    equal(sandbox.state, "started")
    equal(client.get(name).id, sandbox.id)
    equal(client.get(sandbox.id).name, name)
    deadline = time.time() + 10
    while listed(client, {"run": RUN}) != [name]:
        if time.time() > deadline:
            raise AssertionError(listed(client, {"run": RUN}))
        time.sleep(0.05)
    equal(listed(client, {"run": "other"}), [])
    if hasattr(client, "find_one"):
        # Newer clients have only lists.
        equal(client.find_one(labels={"run": RUN}).id, sandbox.id)
        equal(client.find_one(name).id, sandbox.id)
    refused(
        lambda: client.create(CreateSandboxFromImageParams(image="debian:12", name=name)),
        "already exists",
    )
    return sandbox


def commands(sandbox):
    process = sandbox.process
    ran = process.exec("echo out; echo err >&2; exit 3")
    equal((ran.exit_code, said(ran)), (3, "out\nerr"))
    equal(said(process.exec("echo $GREETING $WORD", env={"WORD": "you"})), "hello you")
    equal(said(process.exec("pwd", cwd="/tmp")), "/tmp")
    if NEW:
        # Older clients wrap the command.
        equal(said(process.exec("cat\necho after")), "echo after")
        equal(process.exec("kill -9 $$").exit_code, -1)
    refused(lambda: process.exec("sleep 5", timeout=1), "timeout")


def sessions(sandbox):
    process = sandbox.process
    process.create_session("s1")
    run = lambda text, background=False: process.execute_session_command(
        "s1", sdk.SessionExecuteRequest(command=text, run_async=background)
    )
    run("cd /tmp; export KEPT=yes")
    ran = run("pwd; echo $KEPT; echo wrong >&2; false")
    equal(ran.exit_code, 1)
    equal((ran.stdout, ran.stderr) if VERSION >= (0, 167) else ran.output is not None, ("/tmp\nyes\n", "wrong\n") if VERSION >= (0, 167) else True)
    begun = run("for i in 1 2 3; do echo line $i; sleep 0.1; done; exit_code=7; (exit 7)", background=True)
    pieces, errors = [], []
    import asyncio

    asyncio.run(process.get_session_command_logs_async("s1", begun.cmd_id, pieces.append, errors.append))
    equal("".join(pieces).split(), ["line", "1", "line", "2", "line", "3"])
    equal(process.get_session_command("s1", begun.cmd_id).exit_code, 7)
    asked = run("read -r word; echo got $word", background=True)
    if hasattr(process, "send_session_command_input"):
        process.send_session_command_input("s1", asked.cmd_id, "something\n")
        deadline = time.time() + 10
        while process.get_session_command("s1", asked.cmd_id).exit_code is None and time.time() < deadline:
            time.sleep(0.05)
        logs = process.get_session_command_logs("s1", asked.cmd_id)
        if "got something" not in (logs.output or "") and "got something" not in (logs.stdout or ""):
            raise AssertionError(logs)
    equal(len(process.get_session("s1").commands), 4)
    process.delete_session("s1")
    refused(lambda: process.get_session("s1"), "not found")


def terminal(sandbox):
    heard = []
    done = threading.Event()

    def hear(data):
        heard.append(data)
        if b"sum 42" in b"".join(heard):
            done.set()

    handle = sandbox.process.create_pty_session(id="t1", pty_size=sdk.PtySize(rows=30, cols=100))
    reader = threading.Thread(target=lambda: handle.wait(on_data=hear))
    reader.start()
    handle.send_input("echo sum $((40+2))\n")
    if not done.wait(10):
        raise AssertionError(b"".join(heard))
    handle.resize(sdk.PtySize(rows=31, cols=101))
    handle.send_input("exit 3\n")
    reader.join(10)
    equal(handle.exit_code, 3)


def files(sandbox):
    fs = sandbox.fs
    fs.create_folder("/tmp/d", "755")
    fs.upload_file(b"one\n", "/tmp/d/1.txt")
    fs.upload_files(
        [FileUpload(source=b"two\n", destination="/tmp/d/2 ü.bin"), FileUpload(source=b"three", destination="/tmp/d/new/3")]
    )
    equal(fs.download_file("/tmp/d/1.txt"), b"one\n")
    equal(said(sandbox.process.exec("cat '/tmp/d/2 ü.bin' /tmp/d/new/3")), "two\nthree")
    equal(sorted(entry.name for entry in fs.list_files("/tmp/d")), ["1.txt", "2 ü.bin", "new"])
    equal(fs.get_file_info("/tmp/d/1.txt").size, 4)
    # Older clients read other names in the answer wrong.
    other, content = ("/tmp/d/2 ü.bin", b"two\n") if NEW else ("/tmp/d/new/3", b"three")
    got = fs.download_files([sdk.FileDownloadRequest(source=path) for path in ("/tmp/d/1.txt", other, "/tmp/d/missing")])
    equal([one.result for one in got], [b"one\n", content, None])
    with tempfile.TemporaryDirectory() as here:
        fs.download_file("/tmp/d/new/3", os.path.join(here, "3"))
        with open(os.path.join(here, "3"), "rb") as file:
            equal(file.read(), b"three")
    fs.set_file_permissions("/tmp/d/1.txt", mode="600")
    equal(fs.get_file_info("/tmp/d/1.txt").permissions, "0600")
    equal([match.line for match in fs.find_files("/tmp/d", "tw")], [1])
    equal(fs.search_files("/tmp/d", "*.txt").files, ["/tmp/d/1.txt"])
    fs.replace_in_files(["/tmp/d/1.txt"], "one", "uno")
    fs.move_files("/tmp/d/1.txt", "/tmp/d/moved")
    equal(fs.download_file("/tmp/d/moved"), b"uno\n")
    fs.delete_file("/tmp/d/moved")
    refused(lambda: fs.get_file_info("/tmp/d/moved"))


def sleeping(client, sandbox):
    sandbox.process.exec("echo kept > /root/kept; nohup sleep 4711 >/dev/null 2>&1 &")
    sandbox.stop()
    equal(sandbox.state, "stopped")
    refused(lambda: sandbox.process.exec("true"), "Is the Sandbox started?")
    sandbox.start()
    equal(said(sandbox.process.exec("cat /root/kept; pgrep -f 'sleep 471[1]' || echo gone")), "kept\ngone")
    sandbox.stop()
    sandbox.archive()
    deadline = time.time() + 20
    while client.get(sandbox.id).state != "archived":
        if time.time() > deadline:
            raise AssertionError(client.get(sandbox.id).state)
        time.sleep(0.05)
    sandbox.start()
    equal(said(sandbox.process.exec("cat /root/kept")), "kept")
    if hasattr(sandbox, "resize"):
        sandbox.resize(Resources(cpu=2, memory=4))
        sandbox.refresh_data()
        equal((sandbox.cpu, sandbox.memory), (2, 4))
    sandbox.set_autostop_interval(30)
    sandbox.set_labels({"run": RUN, "more": "1"})
    equal(client.get(sandbox.id).labels, {"run": RUN, "more": "1"})
    equal(client.get(sandbox.id).auto_stop_interval, 30)


def snapshots(client):
    other = client.create(CreateSandboxFromSnapshotParams(name=f"snap-{RUN}", env_vars={"A": "b"}))
    equal(said(other.process.exec("echo $A; ls /root")), "b")
    other.delete()
    refused(
        lambda: client.create(CreateSandboxFromSnapshotParams(snapshot="nobody-made-this")),
        "Did you add it through the Daytona Dashboard?",
    )
    refused(
        lambda: client.create(CreateSandboxFromImageParams(image="debian:12", resources=Resources(disk=11))),
        "exceeds maximum allowed per sandbox (10GB)",
    )


def main():
    client = Daytona()
    sandbox = life(client)
    try:
        for part in (commands, sessions, terminal, files):
            part(sandbox)
            print("ok", part.__name__, flush=True)
        sleeping(client, sandbox)
        print("ok sleeping", flush=True)
    finally:
        client.delete(sandbox)
    deadline = time.time() + 10
    while True:
        try:
            client.get(sandbox.id)
        except sdk.DaytonaError:
            break
        if time.time() > deadline:
            raise AssertionError("it is still there")
        time.sleep(0.05)
    snapshots(client)
    bad = Daytona(sdk.DaytonaConfig(api_key="wrong", api_url=os.environ["DAYTONA_API_URL"]))
    refused(lambda: bad.get("x"), "Invalid credentials")
    print("ok", importlib.metadata.version("daytona"))


main()
