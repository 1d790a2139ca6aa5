"""Hermes' own ModalEnvironment drives the emulator. Usage: hermes.py TAG, with the variables of sdk.py set."""

import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
import uuid

HOME = tempfile.TemporaryDirectory(prefix="farshell-hermes-")
os.environ["HERMES_HOME"] = HOME.name
# What is installed is what is tried.
os.environ["HERMES_DISABLE_LAZY_INSTALLS"] = "1"

from tools.environments.modal import ModalEnvironment

TAG = sys.argv[1]
TASK = "task-" + uuid.uuid4().hex[:8]
BOOK = pathlib.Path(HOME.name) / "modal_snapshots.json"


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} is not {expected!r}")


def ran(environment, command, **more):
    result = environment.execute(command, **more)
    return result["returncode"], result["output"].strip()


def main():
    environment = ModalEnvironment(image=TAG, cwd="/root", timeout=60, task_id=TASK)
    equal(ran(environment, "echo hello"), (0, "hello"))
    equal(ran(environment, "echo broken >&2; exit 3")[0], 3)
    # What it keeps from one command to the next.
    equal(ran(environment, "cd /opt && export KEPT=yes")[0], 0)
    equal(ran(environment, "pwd; echo $KEPT"), (0, "/opt\nyes"))
    equal(ran(environment, "cat", stdin_data="given\n"), (0, "given"))
    equal(ran(environment, "echo data > /root/file")[0], 0)
    environment.cleanup()
    image = json.loads(BOOK.read_text())[f"direct:{TASK}"]
    assert image.startswith("im-"), image

    # Another one for the same task has the files.
    environment = ModalEnvironment(image=TAG, cwd="/root", timeout=60, task_id=TASK)
    equal(ran(environment, "cat /root/file"), (0, "data"))
    result = environment.execute("sleep 600", timeout=2)
    # Three clocks race for it, Hermes', the SDK's and the server's. If Hermes' wins it ends the whole sandbox.
    assert result["returncode"] in (-1, 124, 137), result
    environment.cleanup()
    print(f"Hermes {importlib.metadata.version('hermes-agent')} on modal {importlib.metadata.version('modal')}: all is well")


main()
