"""Runs a script of execute_code, and lets it call tools.

The script's standard output is this process's own. So is its standard error, and messages to the server go between
what it prints there: each is cut into pieces that are written at once (a write of up to 4096 bytes to a pipe is never
mixed with another), and each piece begins with a mark that only the server and this process know. Nothing is copied on
the way out, and nothing is lost if the script kills itself. Answers come in by what was standard input, one line of
JSON each.

`channel` is that input; whoever runs this text has opened it.
"""

import sys

# Nothing that is needed here is taken from the directory in which the script runs.
in_directory = sys.path[:1] == [""]
if in_directory:
    del sys.path[0]

import builtins
import json
import linecache
import os
import select
import shlex
import threading
import time
import traceback
import types

NAME = "<execute_code>"
# With the mark and its header, a piece stays below what a pipe takes at once.
PIECE = 4000
# The server takes no longer message.
LONGEST = 16 << 20
SHOWN = 2000


def identity(fd):
    """What a descriptor stands for, None if for nothing."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Server:
    """The way to the server and back. Any thread may call; whoever waits reads for all."""

    def __init__(self, channel):
        self.process = os.getpid()
        self.channel = channel
        self.incoming, self.outgoing = channel.fileno(), os.dup(2)
        self.known = {fd: identity(fd) for fd in (self.incoming, self.outgoing)}
        self.buffer, self.searched = bytearray(), 0
        self.sending = threading.Lock()
        self.changed = threading.Condition()
        self.answers, self.calls, self.reading = {}, 0, False
        first = json.loads(self.line())
        self.mark, self.code = first["mark"].encode(), first["code"]

    def ready(self, fd, event):
        """Waits for a descriptor that somebody made non-blocking."""
        poll = select.poll()
        poll.register(fd, event)
        poll.poll()

    def check(self, fd):
        # A script that closes all descriptors may have opened a file of its own under the same number.
        if identity(fd) != self.known[fd]:
            raise ConnectionError("the script has closed the descriptors by which tools are called")

    def line(self):
        while True:
            end = self.buffer.find(b"\n", self.searched)
            if end >= 0:
                line = bytes(self.buffer[:end])
                del self.buffer[: end + 1]
                self.searched = 0
                return line
            self.searched = len(self.buffer)
            self.check(self.incoming)
            try:
                piece = os.read(self.incoming, 1 << 16)
            except BlockingIOError:
                self.ready(self.incoming, select.POLLIN)
                continue
            if not piece:
                raise ConnectionError("Farshell no longer answers calls of tools")
            self.buffer += piece

    def send(self, message):
        # Text that is no Unicode, and numbers that are none, are errors here and not there.
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, default=os.fspath).encode()
        if len(text) > LONGEST:
            raise ValueError(f"a call of a tool has at most {LONGEST} bytes, and this one has {len(text)}")
        with self.sending:
            for at in range(0, len(text), PIECE):
                piece = text[at : at + PIECE]
                place = (at == 0) + 2 * (at + PIECE >= len(text))
                self.write(self.mark + b"%d%04x" % (place, len(piece)) + piece)

    def write(self, piece):
        self.check(self.outgoing)
        while True:
            try:
                os.write(self.outgoing, piece)
                return
            except BlockingIOError:
                self.ready(self.outgoing, select.POLLOUT)

    def answer(self, call):
        with self.changed:
            while call not in self.answers:
                if self.reading:
                    self.changed.wait()
                    continue
                self.reading = True
                self.changed.release()
                try:
                    line = self.line()
                finally:
                    self.changed.acquire()
                    self.reading = False
                    self.changed.notify_all()
                found = json.loads(line)
                self.answers[found["id"]] = found["result"]
            return self.answers.pop(call)

    def call(self, tool, **arguments):
        if os.getpid() != self.process:
            raise RuntimeError(f"{tool} can't be called from a child process: use threads, or return what it needs")
        with self.changed:
            self.calls += 1
            call = self.calls
        given = {name: value for name, value in arguments.items() if value is not None}
        self.send({"call": {"id": call, "tool": tool, "arguments": given}})
        return self.answer(call)


def tools(server):
    """What a script imports."""

    def terminal(command, timeout=None, workdir=None, stdin=None, session=None):
        """Runs a command of the shell to its end. Gives output, exit_code, cwd, error, …"""
        return server.call(
            "terminal", command=command, timeout=timeout, workdir=workdir, stdin=stdin, session=session
        )

    def read_file(path, offset=None, limit=None):
        """Gives content (lines as NUMBER|text) and total_lines of a text file."""
        return server.call("read_file", path=path, offset=offset, limit=limit)

    def write_file(path, content):
        """Writes a whole file."""
        return server.call("write_file", path=path, content=content)

    def patch(path=None, old_string=None, new_string=None, replace_all=None, mode=None, patch=None):
        """Changes a file, or with mode="patch" the files that a V4A patch names."""
        return server.call(
            "patch",
            path=path,
            old_string=old_string,
            new_string=new_string,
            replace_all=replace_all,
            mode=mode,
            patch=patch,
        )

    def search_files(
        pattern, target=None, path=None, file_glob=None, limit=None, offset=None, output_mode=None, context=None
    ):
        """Finds lines (target="content") or files by name (target="files")."""
        return server.call(
            "search_files",
            pattern=pattern,
            target=target,
            path=path,
            file_glob=file_glob,
            limit=limit,
            offset=offset,
            output_mode=output_mode,
            context=context,
        )

    def json_parse(text):
        """JSON as programs print it: control characters in strings, other lines before and behind it."""
        decoder = json.JSONDecoder(strict=False)
        try:
            return decoder.decode(text)
        except ValueError as error:
            problem = error
        at = 0
        for line in text.splitlines(keepends=True):
            if line.lstrip()[:1] in ("{", "["):
                try:
                    return decoder.raw_decode(text, at + len(line) - len(line.lstrip()))[0]
                except ValueError:
                    pass
            at += len(line)
        raise problem

    def shell_quote(text):
        """One word for a command of terminal()."""
        return shlex.quote(os.fspath(text) if hasattr(text, "__fspath__") else str(text))

    def retry(function, max_attempts=3, delay=2):
        """Calls it until it raises nothing, and raises what it does the last time. Each pause is twice the last."""
        for attempt in range(1, max_attempts + 1):
            try:
                return function()
            except Exception:
                if attempt >= max_attempts:
                    raise
            time.sleep(delay * 2 ** (attempt - 1))

    offered = (terminal, read_file, write_file, patch, search_files, json_parse, shell_quote, retry)
    module = types.ModuleType("farshell_tools", "Farshell's tools, for a script of execute_code.")
    for function in offered:
        function.__module__, function.__qualname__ = module.__name__, function.__name__
        setattr(module, function.__name__, function)
    module.__all__ = [function.__name__ for function in offered]
    return module


def raised(server, error):
    """An exception that the script did not catch, as Python would show it: without what is ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    try:
        summary = traceback.format_exception_only(type(error), error)[-1].strip()
        # Text that is no Unicode, in an error about that.
        summary = summary.encode(errors="backslashreplace").decode()
        if os.getpid() == server.process:
            server.send({"raised": summary[:SHOWN]})
    except Exception:
        # It is printed all the same.
        pass
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(type(error), error, trace)
    else:
        sys.excepthook(type(error), error, trace)


def run(server):
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for stream in (sys.stdout, sys.stderr):
        # What was printed has arrived before a command that the script starts prints, and before it is killed.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    module = tools(server)
    sys.modules["farshell_tools"] = sys.modules["hermes_tools"] = module
    script = types.ModuleType("__main__")
    script.__builtins__ = builtins
    sys.modules["__main__"] = script
    sys.argv = [NAME]
    linecache.cache[NAME] = (len(server.code), None, server.code.splitlines(True), NAME)
    if in_directory:
        sys.path.insert(0, "")
    server.send({"ready": sys.version.split()[0]})
    try:
        exec(compile(server.code, NAME, "exec", dont_inherit=True), script.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        raised(server, error)
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)


run(Server(channel))
