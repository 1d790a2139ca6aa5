"""Hermes Agent's own Daytona environment on the emulator. Usage: hermes.py, with DAYTONA_API_URL and _KEY set."""

import importlib.metadata
import os
import tempfile
import uuid

os.environ["HERMES_HOME"] = tempfile.mkdtemp(prefix="hermes-home-")
# What it needs is installed; it fetches nothing by itself.
os.environ["HERMES_DISABLE_LAZY_INSTALLS"] = "1"

from daytona import Daytona, DaytonaError
from tools.environments.daytona import DaytonaEnvironment

IMAGE = "nikolaik/python-nodejs:python3.11-nodejs20"
TASK = f"h{uuid.uuid4().hex[:8]}"


def environment(persistent=True):
    return DaytonaEnvironment(image=IMAGE, timeout=60, persistent_filesystem=persistent, task_id=TASK)


def said(env, command, code=0, **options):
    ran = env.execute(command, **options)
    if ran["returncode"] != code:
        raise AssertionError(f"{command}: {ran}")
    return ran["output"].strip()


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} is not {expected!r}")


def state():
    return str(Daytona().get(f"hermes-{TASK}").state).rsplit(".", 1)[-1].lower()


def main():
    env = environment()
    equal(said(env, "echo hello; exit 3", code=3), "hello")
    said(env, "mkdir -p /tmp/d && cd /tmp/d && export KEPT=yes")
    equal(said(env, "pwd; echo $KEPT"), "/tmp/d\nyes")
    equal(said(env, "cat", stdin_data="from stdin\n"), "from stdin")
    said(env, "echo kept > ~/kept")
    # Whether Hermes notices first that it takes too long, or Daytona: it fails, and the next command works.
    if env.execute("sleep 30", timeout=1)["returncode"] == 0:
        raise AssertionError("it was not stopped")
    equal(said(env, "cat ~/kept"), "kept")
    env.cleanup()
    equal(state(), "stopped")
    env = environment()
    equal(said(env, "cat ~/kept"), "kept")
    env.cleanup()
    env = environment(persistent=True)
    env._persistent = False
    env.cleanup()
    try:
        if state() not in ("destroying", "destroyed"):
            raise AssertionError(f"it is {state()}")
    except DaytonaError:
        pass
    print("ok", importlib.metadata.version("hermes-agent"), "with", importlib.metadata.version("daytona"))


main()
