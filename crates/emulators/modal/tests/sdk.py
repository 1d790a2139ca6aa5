"""Modal's own Python SDK drives the emulator through its public API.

Usage: sdk.py TAG, with MODAL_SERVER_URL, MODAL_TOKEN_ID and MODAL_TOKEN_SECRET set; TAG is an image that the emulator
has. With MODAL_SANDBOX_V2=0 a release that knows both kinds of sandbox makes those of the first kind.
"""

import importlib.metadata
import os
import re
import sys
import threading
import uuid

import modal

VERSION = tuple(int(part) for part in importlib.metadata.version("modal").split(".")[:2])
# Which kind of sandbox this release makes.
SECOND = VERSION >= (1, 6) and os.environ.get("MODAL_SANDBOX_V2", "1") not in ("", "0", "false")
RUN = uuid.uuid4().hex[:8]
TAG = sys.argv[1]


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} is not {expected!r}")


def refused(call, *kinds):
    try:
        call()
    except kinds as error:
        return error
    raise AssertionError("it was not refused")


def shell(sandbox, command, **more):
    """(code, stdout, stderr)"""
    process = sandbox.exec("sh", "-c", command, **more)
    return process.wait(), process.stdout.read(), process.stderr.read()


def life(app, image):
    sandbox = modal.Sandbox.create(
        "sh", "-c", "echo began; echo trouble >&2; read line; echo got $line; exec sleep infinity",
        app=app, image=image, timeout=300, workdir="/tmp",
        secrets=[modal.Secret.from_dict({"GREETING": "hello", "OTHER": "one"}), modal.Secret.from_dict({"OTHER": "two"})],
    )
    shape = r"sb-[0-9A-HJKMNP-TV-Z]{26}" if SECOND else r"sb-[0-9A-Za-z]{22}"
    assert re.fullmatch(shape, sandbox.object_id), sandbox.object_id
    equal(sandbox.poll(), None)
    equal(shell(sandbox, "echo out; echo err >&2; exit 3"), (3, "out\n", "err\n"))
    equal(shell(sandbox, 'pwd; echo "$GREETING $OTHER"'), (0, "/tmp\nhello two\n", ""))
    equal(shell(sandbox, "pwd", workdir="/"), (0, "/\n", ""))
    own = modal.Secret.from_dict({"OTHER": "three"})
    equal(shell(sandbox, "echo $GREETING $OTHER", secrets=[own]), (0, "hello three\n", ""))
    equal(shell(sandbox, "kill -TERM $$")[0], 143)
    equal(sandbox.stdin.write("line\n"), None)
    sandbox.stdin.drain()
    lines = iter(sandbox.stdout)
    equal([next(lines), next(lines)], ["began\n", "got line\n"])
    equal(next(iter(sandbox.stderr)), "trouble\n")
    return sandbox


def streams(sandbox):
    process = sandbox.exec("cat")
    process.stdin.write("a" * 100_000)
    process.stdin.drain()
    process.stdin.write("b" * 100_000)
    process.stdin.write_eof()
    process.stdin.drain()
    equal(process.wait(), 0)
    equal(process.stdout.read(), "a" * 100_000 + "b" * 100_000)

    # Output comes while the process runs, and answers what was written.
    process = sandbox.exec("sh", "-c", "while read line; do echo \"<$line>\"; done")
    answers = iter(process.stdout)
    for word in ("one", "two"):
        process.stdin.write(word + "\n")
        process.stdin.drain()
        equal(next(answers), f"<{word}>\n")
    equal(process.poll(), None)
    process.stdin.write_eof()
    process.stdin.drain()
    equal(process.wait(), 0)
    equal(process.poll(), 0)
    equal(process.returncode, 0)

    # A megabyte on each of both at once, also as bytes.
    process = sandbox.exec("sh", "-c", "head -c 1000000 /dev/zero >&2 & head -c 1000000 /dev/zero; wait", text=False)
    equal((len(process.stdout.read()), len(process.stderr.read()), process.wait()), (1_000_000, 1_000_000, 0))

    process = sandbox.exec("sleep", "600", timeout=2)
    assert process.wait() in (-1, 137), process.returncode
    equal(sandbox.poll(), None)
    equal(shell(sandbox, "echo still here")[1], "still here\n")

    many = [sandbox.exec("sh", "-c", f"echo {number}") for number in range(10)]
    equal([process.stdout.read() for process in many], [f"{number}\n" for number in range(10)])

    process = sandbox.exec("sh", "-c", "test -t 0 && test -t 1 && echo terminal", pty=True)
    equal(process.wait(), 0)
    equal(process.stdout.read().strip(), "terminal")


def tags_and_lists(app, sandbox):
    sandbox.set_tags({"run": RUN, "kind": "first"})
    equal(sandbox.get_tags(), {"run": RUN, "kind": "first"})
    found = list(modal.Sandbox.list(app_id=app.app_id, tags={"run": RUN}))
    equal([one.object_id for one in found], [sandbox.object_id])
    equal(list(modal.Sandbox.list(app_id=app.app_id, tags={"run": RUN, "kind": "other"})), [])
    again = modal.Sandbox.from_id(sandbox.object_id)
    equal(again.poll(), None)
    equal(shell(again, "echo by id")[1], "by id\n")
    wrong = ("sb-" + "0" * 26) if SECOND else ("sb-" + "0" * 22)
    refused(lambda: modal.Sandbox.from_id(wrong).poll(), modal.exception.NotFoundError)


def snapshots(app, image, sandbox):
    equal(shell(sandbox, "mkdir /kept && echo data > /kept/file && rm /etc/debian_version")[0], 0)
    taken = sandbox.snapshot_filesystem()
    assert re.fullmatch(r"im-[0-9A-Za-z]{22}", taken.object_id), taken.object_id
    # The source goes on, and what it does next is not in the snapshot.
    equal(shell(sandbox, "echo later > /kept/file; touch /kept/new")[0], 0)
    for source in (taken, modal.Image.from_id(taken.object_id)):
        restored = modal.Sandbox.create("sleep", "infinity", app=app, image=source, timeout=300)
        command = "cat /kept/file; ls /kept; test ! -e /etc/debian_version; echo $?"
        equal(shell(restored, command), (0, "data\nfile\n0\n", ""))
        restored.terminate()
    fresh = modal.Sandbox.create("sleep", "infinity", app=app, image=image, timeout=300)
    equal(shell(fresh, "test -e /kept; echo $?; test -e /etc/debian_version; echo $?")[1], "1\n0\n")
    fresh.terminate()
    missing = modal.Image.from_id("im-" + "0" * 22)
    refused(lambda: modal.Sandbox.create("true", app=app, image=missing), modal.exception.Error)


def files(sandbox):
    if not hasattr(sandbox, "filesystem"):
        return
    place = sandbox.filesystem
    place.write_bytes(bytes(range(256)) * 1000, "/made/by/us")
    equal(place.read_bytes("/made/by/us"), bytes(range(256)) * 1000)
    equal(place.stat("/made/by/us").size, 256_000)
    equal([entry.name for entry in place.list_files("/made/by")], ["us"])
    place.remove("/made", recursive=True)
    refused(lambda: place.read_bytes("/made/by/us"), modal.exception.Error)


def ends(app, image, sandbox):
    results = []
    waiting = threading.Thread(target=lambda: results.append(sandbox.wait(raise_on_termination=False)))
    waiting.start()
    sandbox.terminate()
    waiting.join(60)
    equal(waiting.is_alive(), False)
    equal(sandbox.returncode, 137)
    equal(modal.Sandbox.from_id(sandbox.object_id).poll(), 137)
    refused(lambda: sandbox.exec("true"), Exception)
    equal([one.object_id for one in modal.Sandbox.list(app_id=app.app_id, tags={"run": RUN})], [])

    done = modal.Sandbox.create("sh", "-c", "echo all; exit 7", app=app, image=image, timeout=300)
    done.wait()
    equal(done.returncode, 7)
    equal(done.poll(), 7)
    good = modal.Sandbox.create("true", app=app, image=image, timeout=300)
    good.wait()
    equal(good.returncode, 0)


def names(app, image):
    name = f"sdk-{RUN}"
    one = modal.Sandbox.create("sleep", "infinity", app=app, image=image, timeout=300, name=name)
    create = lambda: modal.Sandbox.create("sleep", "infinity", app=app, image=image, timeout=300, name=name)
    refused(create, modal.exception.AlreadyExistsError)
    equal(modal.Sandbox.from_name("sdk-app", name).object_id, one.object_id)
    one.terminate()
    one.wait(raise_on_termination=False)
    refused(lambda: modal.Sandbox.from_name("sdk-app", name).object_id, modal.exception.NotFoundError)


def builds(app):
    image = modal.Image.from_registry(TAG).run_commands("echo built > /built").env({"BUILT": "yes"}).workdir("/opt")
    sandbox = modal.Sandbox.create("sleep", "infinity", app=app, image=image, timeout=300)
    equal(shell(sandbox, "cat /built; echo $BUILT; pwd")[1], "built\nyes\n/opt\n")
    sandbox.terminate()
    wrong = modal.Image.from_registry("nowhere/nothing:1")
    error = refused(lambda: modal.Sandbox.create("true", app=app, image=wrong), modal.exception.Error)
    assert "nowhere/nothing:1" in str(error), error
    wrong = modal.Image.from_registry(TAG).run_commands("echo why; exit 9")
    error = refused(lambda: modal.Sandbox.create("true", app=app, image=wrong), modal.exception.Error)


def main():
    refused(lambda: modal.App.lookup("sdk-nothing-" + RUN), modal.exception.NotFoundError)
    app = modal.App.lookup("sdk-app", create_if_missing=True)
    equal(modal.App.lookup("sdk-app").app_id, app.app_id)
    image = modal.Image.from_registry(TAG)
    sandbox = life(app, image)
    for step in (
        lambda: streams(sandbox),
        lambda: tags_and_lists(app, sandbox),
        lambda: snapshots(app, image, sandbox),
        lambda: files(sandbox),
        lambda: ends(app, image, sandbox),
        lambda: names(app, image),
        lambda: builds(app),
    ):
        step()
    kind = "second" if SECOND else "first"
    print(f"modal {importlib.metadata.version('modal')}: all is well, with sandboxes of the {kind} kind")


main()
