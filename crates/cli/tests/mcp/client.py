"""What an MCP client does with Farshell, by way of the official Python client.

usage: client.py STORY, with the way to the server in the environment:
  FARSHELL         the program, for stdio
  FARSHELL_URL     the address and FARSHELL_TOKEN the token, for HTTP
  FARSHELL_MODE    auto (the newest protocol) or legacy (the one with a greeting)
A story that ends differently than it should ends with an exception.
"""

import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
import jsonschema
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

PROGRAM = os.environ["FARSHELL"]
URL = os.environ.get("FARSHELL_URL")
TOKEN = os.environ.get("FARSHELL_TOKEN", "")
MODE = os.environ["FARSHELL_MODE"]
# Tells the processes of this story, and of those it plays with, from those of others.
MARK = os.environ.setdefault("FARSHELL_TEST_MARK", str(os.getpid()))
# How long anything may take before a story gives up on it.
PATIENCE = 90


@asynccontextmanager
async def connected(elicit=None, task="default"):
    """A client; `elicit` answers questions, and without it the client says that it can't ask anybody."""
    options = {"mode": MODE, "elicitation_callback": elicit}
    if URL is None:
        args = ["mcp", "--task", task]
        server = StdioServerParameters(command=PROGRAM, args=args, env=dict(os.environ), cwd=os.getcwd())
        async with Client(server, **options) as client:
            yield client
        return
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        transport = streamable_http_client(f"{URL}&task={task}" if "?" in URL else f"{URL}?task={task}", http_client=http)
        async with Client(transport, **options) as client:
            yield client


class Tools:
    """Calls tools, and compares every result with what the server has promised."""

    def __init__(self, client, listed):
        self.client = client
        self.schemas = {tool.name: tool.output_schema for tool in listed}

    @classmethod
    async def of(cls, client):
        return cls(client, (await client.list_tools()).tools)

    async def raw(self, name, arguments, **options):
        result = await self.client.call_tool(name, arguments, **options)
        # The text is the same for clients that know nothing else.
        assert json.loads(result.content[0].text) == result.structured_content, result
        if not result.is_error:
            jsonschema.Draft202012Validator(self.schemas[name]).validate(result.structured_content)
        return result

    async def call(self, name, **arguments):
        result = await self.raw(name, arguments)
        assert not result.is_error, result
        return result.structured_content

    async def fails(self, name, **arguments):
        result = await self.raw(name, arguments)
        assert result.is_error, result
        return result.structured_content

    async def sh(self, command, **options):
        return await self.call("terminal", command=command, **options)


def same(left, right):
    assert left == right, f"{left!r} is not {right!r}"


async def running(tools, marker):
    """How many processes have exactly this command line, seen from inside."""
    look = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p; echo; done 2>/dev/null | grep -cFx " + f"'{marker} '"
    return int((await tools.sh(look, session="looking"))["output"].strip())


async def until(what, condition):
    with anyio.fail_after(PATIENCE):
        while not await condition():
            await anyio.sleep(0.05)


async def every_tool():
    async with connected() as client:
        same(client.server_info.name, "farshell")
        assert "terminal" in client.instructions
        listed = (await client.list_tools()).tools
        names = {tool.name for tool in listed}
        expected = {"terminal", "process", "read_file", "write_file", "patch", "search_files", "execute_code"}
        same(names, expected)
        for tool in listed:
            for schema in (tool.input_schema, tool.output_schema):
                jsonschema.Draft202012Validator.check_schema(schema)
                same(schema["type"], "object")
            assert tool.title and tool.description and tool.annotations.read_only_hint is not None, tool
        hints = {tool.name: tool.annotations for tool in listed}
        assert hints["read_file"].read_only_hint and not hints["terminal"].read_only_hint
        tools = Tools(client, listed)
        await commands(tools)
        await files(tools)
        await processes(client, tools)
        await mistakes(tools)
        await scripts(tools)


async def commands(tools):
    ran = await tools.sh("echo hello; echo oops >&2; (exit 3)")
    same((ran["exit_code"], sorted(ran["output"].split())), (3, ["hello", "oops"]))
    assert ran["backend"] == os.environ.get("FARSHELL_BACKEND", "local"), ran
    # State lasts, and sessions are apart.
    await tools.sh("cd /; export FS_MCP=kept")
    same((await tools.sh("echo $PWD $FS_MCP"))["output"].strip(), "/ kept")
    same((await tools.sh("echo [$FS_MCP]", session="other"))["output"].strip(), "[]")
    same((await tools.sh("cat", stdin="given"))["output"], "given")
    assert "not a tty" not in (await tools.sh("tty", pty=True))["output"]
    large = await tools.sh("seq 100000")
    assert large["truncated"] and large["output"].startswith("1\n"), large["output"][:100]


async def files(tools):
    room = (await tools.sh("mktemp -d"))["output"].strip()
    path = f"{room}/a.txt"
    await tools.call("write_file", path=path, content="one\ntwo\nthree\n")
    assert "two" in (await tools.call("read_file", path=path))["content"]
    patched = await tools.call("patch", path=path, old_string="two", new_string="2")
    assert patched["success"], patched
    same((await tools.sh(f"cat {path}"))["output"], "one\n2\nthree")
    found = await tools.call("search_files", pattern="^2$", path=room)
    assert "a.txt" in json.dumps(found), found
    assert "error" in await tools.fails("read_file", path=f"{room}/none")


SCRIPT = """
import os, threading
from hermes_tools import terminal, read_file, write_file, patch, search_files, json_parse, shell_quote, retry

room = terminal("mktemp -d")["output"].strip()
path = os.path.join(room, "it's.txt")
write_file(path, "one\\ntwo\\n" * 1000)
assert patch(path, "one\\ntwo", "1\\n2", replace_all=True)["success"]
assert read_file(path, limit=2)["content"] == "1|1\\n2|2"
assert search_files("^2$", path=room, limit=1)["matches"][0]["line"] == 2
counted = retry(lambda: terminal("wc -l < " + shell_quote(path)))
assert counted["output"].strip() == "2000", counted
assert len(open(path).read()) == 4000, "the same place"
threads = [threading.Thread(target=terminal, args=(f"echo {i} >> {room}/log",)) for i in range(10)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json_parse("noise\\n[1]"), sorted(map(int, open(f"{room}/log"))) == list(range(10)))
print("x" * 200_000)
"""


async def scripts(tools):
    ran = await tools.call("execute_code", code=SCRIPT)
    assert ran["status"] == "success", ran
    same((ran["exit_code"], ran["tool_calls_made"]), (0, 16))
    assert ran["output"].startswith("[1] True\nxxx"), ran["output"][:1000]
    assert ran["stdout_truncated"] and ran["stdout_bytes_total"] == 200_010, ran["warning"]
    log = await tools.call("process", action="log", session_id=ran["session_id"], byte_offset=100_000)
    assert set(log["output"]) == {"x"}, log["output"][:100]
    same(ran["backend"], os.environ.get("FARSHELL_BACKEND", "local"))
    failed = await tools.call("execute_code", code="print('before')\n{}['key']")
    same((failed["status"], failed["exit_code"], failed["error"]), ("error", 1, "KeyError: 'key'"))
    assert failed["output"].startswith("before\n--- stderr ---\nTraceback"), failed
    late = await tools.call("execute_code", code="import time\ntime.sleep(600)", timeout=1)
    same((late["status"], late["exit_code"]), ("timeout", 124))
    assert "missing field `code`" in (await tools.fails("execute_code"))["error"]


async def processes(client, tools):
    started = await tools.sh(f"echo line 1; echo line 2; sleep 600.{MARK}", background=True)
    id = started["session_id"]

    async def printed():
        return "line 2" in (await tools.call("process", action="log", session_id=id))["output"]

    await until("output", printed)
    same((await tools.call("process", action="poll", session_id=id))["status"], "running")
    assert id in json.dumps(await tools.call("process", action="list"))
    same((await tools.call("process", action="wait", session_id=id, timeout=1))["status"], "timeout")
    # The same as a resource.
    uri = f"farshell://process/{id}/log"
    resources = (await client.list_resources()).resources
    assert uri in {str(resource.uri) for resource in resources}, resources
    content = (await client.read_resource(uri)).contents[0]
    assert "line 1" in content.text and "line 2" in content.text, content
    templates = (await client.list_resource_templates()).resource_templates
    same([template.uri_template for template in templates], ["farshell://process/{session_id}/log"])
    for wrong in ("farshell://process/proc_none/log", "farshell://else", "file:///etc/passwd"):
        try:
            await client.read_resource(wrong)
        except Exception as error:
            assert "wrong" not in str(error)
        else:
            raise AssertionError(f"{wrong} can be read")
    await tools.call("process", action="kill", session_id=id)
    same(await running(tools, f"sleep 600.{MARK}"), 0)
    # Input.
    id = (await tools.sh("read a; read b; echo got $a $b; cat", background=True))["session_id"]
    await tools.call("process", action="write", session_id=id, data="x\n")
    await tools.call("process", action="submit", session_id=id, data="y")
    await tools.call("process", action="close", session_id=id)
    same((await tools.call("process", action="wait", session_id=id, timeout=60))["exit_code"], 0)
    assert "got x y" in (await tools.call("process", action="log", session_id=id))["output"]


async def mistakes(tools):
    for name, arguments in (
        ("terminal", {}),
        ("terminal", {"command": 1}),
        ("terminal", {"command": "true", "colour": "red"}),
        ("process", {"action": "dance"}),
        ("read_file", {"path": "x", "offset": 0}),
    ):
        assert (await tools.fails(name, **arguments))["error"], (name, arguments)
    same((await tools.sh("false"))["exit_code"], 1)


async def progress():
    async with connected() as client:
        tools = await Tools.of(client)
        heard = []

        async def hear(done, total, message):
            heard.append((done, message))

        command = "for i in 1 2 3 4 5 6 7 8; do echo tick $i; sleep 0.3; done"
        await tools.raw("terminal", {"command": command}, progress_callback=hear)
        assert len(heard) >= 2, heard
        numbers = [done for done, _ in heard]
        assert numbers == sorted(set(numbers)), heard
        assert any("tick" in message for _, message in heard), heard


async def cancellation():
    async with connected() as client:
        tools = await Tools.of(client)
        await tools.sh(f"sleep 601.{MARK}", background=True)
        with anyio.fail_after(PATIENCE):
            with anyio.CancelScope() as scope:

                async def hear(done, total, message):
                    if "begun" in message:
                        scope.cancel()

                command = f"echo begun; sleep 602.{MARK} & sleep 603.{MARK}"
                await client.call_tool("terminal", {"command": command}, progress_callback=hear)
        assert scope.cancelled_caught

        async def killed():
            return await running(tools, f"sleep 603.{MARK}") == 0 and await running(tools, f"sleep 602.{MARK}") == 0

        await until("the end of what was cancelled", killed)
        # A script goes with what it called.
        with anyio.fail_after(PATIENCE):
            with anyio.CancelScope() as scope:

                async def hear_script(done, total, message):
                    if "begun" in message:
                        scope.cancel()

                code = f"from farshell_tools import terminal\nimport threading, time\n"
                code += f"threading.Thread(target=terminal, args=('sleep 607.{MARK}',)).start()\n"
                code += f"while '607' not in terminal('pgrep -xf \"sleep 607.{MARK}\" && echo 607', session='b')['output']: time.sleep(0.1)\n"
                code += "while True: print('begun'); time.sleep(0.1)"
                await client.call_tool("execute_code", {"code": code}, progress_callback=hear_script)
        assert scope.cancelled_caught

        async def script_killed():
            return await running(tools, f"sleep 607.{MARK}") == 0

        await until("the end of what the script called", script_killed)
        # Nothing else was.
        same(await running(tools, f"sleep 601.{MARK}"), 1)
        same((await tools.sh("echo still here"))["output"].strip(), "still here")


async def waits():
    """What a client does before it disappears."""
    async with connected() as client:
        await client.call_tool("terminal", {"command": f"sleep 604.{MARK}", "background": True})
        await client.call_tool("terminal", {"command": f"sleep 605.{MARK}", "session": "gone"})


async def gone():
    """A client that disappears takes what it waits for with it, and nothing else."""
    async with connected() as client:
        tools = await Tools.of(client)
        other = await anyio.open_process([sys.executable, __file__, "waits"])

        async def begun():
            return await running(tools, f"sleep 605.{MARK}") == 1

        async def killed():
            return await running(tools, f"sleep 605.{MARK}") == 0

        try:
            await until("its command", begun)
        finally:
            other.kill()
            await other.wait()
        await until("the end of its command", killed)
        same(await running(tools, f"sleep 604.{MARK}"), 1)


async def approvals():
    """Answered by elicitation."""
    questions, answers = [], []

    async def elicit(context, params):
        questions.append(params)
        return answers.pop(0)

    def accept(answer):
        return ElicitResult(action="accept", content={"answer": answer})

    async with connected(elicit) as client:
        tools = await Tools.of(client)
        room = (await tools.sh("mktemp -d"))["output"].strip()
        risky = f"mkdir -p {room}/x; git -C {room}/x init -q; git -C {room}/x reset --hard; echo done"
        for no in (accept("deny"), ElicitResult(action="decline"), ElicitResult(action="cancel"), accept("perhaps")):
            answers.append(no)
            denied = await tools.fails("terminal", command=risky)
            same(denied["error_kind"], "denied")
        same((await tools.sh(f"ls {room}"))["output"], "")
        answers.append(accept("once"))
        ran = await tools.sh(risky)
        assert ran["output"].endswith("done") and ran["exit_code"] == 0, ran
        same(len(questions), 5)
        question = questions[0]
        assert "reset --hard" in question.message, question
        assert {"once", "session", "deny"} <= set(question.requested_schema["properties"]["answer"]["enum"])
        # For the session: asked once more, and then not again.
        answers.append(accept("session"))
        await tools.sh(risky)
        await tools.sh(risky)
        same(len(questions), 6)
        # What no mode allows is not asked.
        await tools.fails("terminal", command="mkfs.ext4 /dev/sda")
        same(len(questions), 6)
        # What a script calls is asked while it waits, and so is a script that can't be understood.
        again = f"git -C {room}/x reset --hard; echo again"
        code = f"from farshell_tools import terminal\nfor i in range(2): print(terminal({again!r}).get('error_kind'))"
        answers.extend([accept("deny"), accept("once")])
        same((await tools.call("execute_code", code=code))["output"], "denied\nNone")
        same(len(questions), 8)
        answers.append(accept("once"))
        same((await tools.call("execute_code", code="import subprocess\nprint('asked')"))["output"], "asked")
        assert "import subprocess" in questions[8].message, questions[8]
    audit = subprocess.run([PROGRAM, "audit", "--json"], capture_output=True, text=True, check=True).stdout
    assert '"mcp"' in audit and "reset --hard" in audit, audit


async def approvals_elsewhere():
    """A client that can't ask: somebody answers in another terminal."""
    async with connected() as client:
        tools = await Tools.of(client)
        room = (await tools.sh("mktemp -d"))["output"].strip()
        risky = f"git -C {room} init -q; git -C {room} reset --hard; echo done"
        told = anyio.Event()

        async def hear(done, total, message):
            if "farshell approve" in message:
                id = message.split("`farshell approve ")[1].split("`")[0]
                told.set()
                await anyio.run_process([PROGRAM, "approve", id])

        with anyio.fail_after(PATIENCE):
            ran = await tools.raw("terminal", {"command": risky}, progress_callback=hear)
        assert told.is_set() and ran.structured_content["output"].endswith("done"), ran


async def many():
    """Clients and calls at once."""
    async with connected(task="one") as one, connected(task="two") as two:
        tools = [await Tools.of(one), await Tools.of(two)]
        outputs = {}

        async def call(number):
            command = f"sleep 0.2; echo {number}"
            ran = await tools[number % 2].sh(command, session=f"s{number}")
            outputs[number] = ran["output"].strip()

        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(call, number)
        same(outputs, {number: str(number) for number in range(12)})


STORIES = [every_tool, progress, cancellation, waits, gone, approvals, approvals_elsewhere, many]

if __name__ == "__main__":
    story = {story.__name__: story for story in STORIES}[sys.argv[1]]
    anyio.run(story)
