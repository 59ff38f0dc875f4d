"""Runs a function that a model wrote, and says what it returned. Nothing here knows of recipe or of atroposlib.

The function runs in a process of its own inside bubblewrap: no network, no files but the interpreter's (read-only) and
an empty folder that stays so, no environment, no other processes to see and none to start, limits on time and memory.
Only what it returned for each input comes back, and only if these are integers; whether they are right is decided here,
so there is no verdict that the function could print, no comparison that it could patch, and no exit status that it
could fake.

What it does not stop: a fault of the kernel or of bubblewrap, and finding out how long something takes. A virtual
machine does more.
"""

import asyncio
import errno
import json
import os
import platform
import shutil
import signal
import struct
import sys
import tempfile
from typing import Callable, List, Optional, Tuple

RUNNER = """
import json, os, resource, sys
out = os.fdopen(os.dup(1), "w")
null = os.open("/dev/null", os.O_RDWR)
for fd in (1, 2):
    os.dup2(null, fd)
job = json.load(sys.stdin)
os.dup2(null, 0)
space = job["megabytes"] << 20
cpu = job["seconds"]
limits = {"MSGQUEUE": (0, 0), "MEMLOCK": (0, 0), "CPU": (cpu, cpu), "AS": (space, space), "FSIZE": (0, 0),
          "CORE": (0, 0), "NPROC": (0, 0), "NOFILE": (64, 64)}
for name, pair in limits.items():
    if hasattr(resource, "RLIMIT_" + name):  # macOS has fewer
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), pair)
scope = {}
exec(compile(job["program"], "program", "exec"), scope)
results = [scope["f"](x) for x in job["inputs"]]
out.write(json.dumps([r if type(r) is int else None for r in results]))
out.flush()
os._exit(0)
"""

MAX_RESULT = 1 << 16  # bytes


class NoSandbox(RuntimeError):
    pass


class TooMuch(Exception):
    """A function's process has written more than MAX_RESULT bytes."""


# What no function needs and what has the most faults: new processes and threads, other namespaces, other processes'
# memory. And memory that RLIMIT_AS does not count, as it stays when it is unmapped: System V segments, semaphores and
# messages, POSIX queues, memfd.
DENIED = {
    "x86_64": (
        0xC000003E,
        [56, 57, 58, 101, 165, 248, 249, 250, 272, 298, 308, 310, 311, 321, 323, 425, 435]
        + [29, 30, 31, 64, 65, 68, 69, 220, 240, 319, 447],
    ),
    "aarch64": (
        0xC00000B7,
        [40, 97, 117, 217, 218, 219, 220, 241, 268, 270, 271, 280, 282, 425, 435]
        + [180, 186, 189, 190, 192, 193, 194, 195, 196, 279, 447],
    ),
}


def seccomp() -> Optional[bytes]:
    """The system calls above answered with EPERM, as a program for the kernel; None on another processor."""
    if platform.machine() not in DENIED:
        return None
    arch, numbers = DENIED[platform.machine()]
    load, equal, above, ret = 0x20, 0x15, 0x35, 0x06
    n = len(numbers)
    program = [(load, 0, 0, 4), (equal, 0, n + 4, arch), (load, 0, 0, 0)]
    program.append((above, n + 1, 0, 0x40000000))  # the x32 calls of x86_64
    program += [(equal, n - i, 0, number) for i, number in enumerate(numbers)]
    program += [(ret, 0, 0, 0x7FFF0000), (ret, 0, 0, 0x00050000 | errno.EPERM), (ret, 0, 0, 0x80000000)]
    return b"".join(struct.pack("=HBBI", *line) for line in program)


def bubblewrap(path: str) -> List[str]:
    """The command line before the interpreter."""
    command = [path, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for name in sorted(os.environ):
        command += ["--unsetenv", name]  # --clearenv is younger than some of the versions in use
    seen = set()
    for folder in [
        "/usr",
        "/lib",
        "/lib64",
        "/lib32",
        "/bin",
        sys.base_prefix,
        os.path.dirname(os.path.realpath(sys.executable)),
    ]:
        if folder in seen or not os.path.exists(folder) or any(folder.startswith(s + "/") for s in seen):
            continue
        seen.add(folder)
        if os.path.islink(folder):  # /lib -> usr/lib
            command += ["--symlink", os.readlink(folder), folder]
        else:
            command += ["--ro-bind", folder, folder]
    command += [
        "--ro-bind-try",
        "/etc/ld.so.cache",
        "/etc/ld.so.cache",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--chdir",
        "/tmp",
    ]
    # Files, links and folders in these would be memory that no limit counts: nothing is made there.
    for folder in ["/tmp", "/dev", "/"]:
        command += ["--remount-ro", folder]
    return command


def first_to_go() -> None:
    """When the machine's memory runs out, the kernel ends this program, and not the trainer or another completion."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:  # not Linux
        pass


class Sandbox:
    """Sandbox("bubblewrap") after `await probe()`; Sandbox("none") gives limits on time and memory, and nothing
    else."""

    def __init__(self, kind: str = "bubblewrap"):
        if kind not in ("bubblewrap", "none"):
            raise ValueError(f'sandbox is "{kind}"; want "bubblewrap" or "none"')
        self.kind = kind
        self.wrap: List[str] = []
        self.filter: Optional[bytes] = None
        if kind == "bubblewrap":
            path = shutil.which("bwrap")
            if path is None:
                raise NoSandbox(self.remedy("bwrap is not installed"))
            self.wrap, self.filter = bubblewrap(path), seccomp()

    def remedy(self, why: str) -> str:
        return (
            f"refused: code written by a model would run without a sandbox: {why}. Install bubblewrap (apt install "
            "bubblewrap, dnf install bubblewrap) and, inside a container, allow it user namespaces; or write "
            'sandbox = "none" in the block\'s config, if the machine holds nothing that the code must not reach'
        )

    async def probe(self) -> None:
        """Raise NoSandbox unless a function runs in it and is kept from the rest of the machine."""
        results, why = await self._call("def f(x):\n    return x + 1\n", [1, 2], 10, 512)
        if results != [2, 3]:
            raise NoSandbox(self.remedy(why or "a first function did not run in it"))
        if self.kind == "none":
            return
        home = os.path.expanduser("~")
        with tempfile.NamedTemporaryFile(dir=home if os.access(home, os.W_OK) else None) as secret:
            seen = f"int(os.path.exists({secret.name!r})) + 2 * int(len(os.listdir('/')) > 12)"
            look = f"import os\ndef f(x):\n    return {seen}\n"
            results, why = await self._call(look, [1], 10, 512)
        if results is None or results[0] % 2:
            raise NoSandbox(self.remedy(why or "a function in it saw a file outside of it"))

    async def judge(
        self, program: str, inputs: List[int], want: Callable[[int], int], seconds: int, megabytes: int
    ) -> str:
        """The outcome of a program that defines f: right, wrong, failed, or endless when it used up a limit."""
        results, why = await self._call(program, inputs, seconds, megabytes)
        if results is None:
            return "endless" if why == "endless" else "failed"
        return "right" if all(r is not None and r == want(x) for r, x in zip(results, inputs, strict=True)) else "wrong"

    async def _call(
        self, program: str, inputs: List[int], seconds: int, megabytes: int
    ) -> Tuple[Optional[List[Optional[int]]], str]:
        """What f returned for each input, None where that was no integer; or None and the reason."""
        job = json.dumps({"program": program, "inputs": inputs, "seconds": seconds, "megabytes": megabytes}).encode()
        with tempfile.TemporaryDirectory() as folder:
            status, data, words = await self._run(job, folder, 5 * seconds + 5)
        if status in (-signal.SIGKILL, -signal.SIGXCPU, 128 + signal.SIGKILL, 128 + signal.SIGXCPU):
            return None, "endless"
        if status != 0:
            return None, words.strip()[-500:] or f"exit status {status}"
        try:
            results = json.loads(data)
        except ValueError:  # cut off, not JSON, or a number of more digits than are read
            return None, "its result cannot be read"
        if not isinstance(results, list) or len(results) != len(inputs):
            return None, "it did not return one result for each input"
        return [r if type(r) is int else None for r in results], ""

    async def _run(self, job: bytes, folder: str, patience: float) -> Tuple[int, bytes, str]:
        command, fds = list(self.wrap), []
        if self.filter is not None:
            reader, writer = os.pipe()
            os.write(writer, self.filter)
            os.close(writer)
            fds = [reader]
            command += ["--seccomp", str(reader)]
        command += [os.path.realpath(sys.executable), "-I", "-S", "-c", RUNNER]
        try:
            child = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                cwd=folder, env={}, pass_fds=fds, start_new_session=True, preexec_fn=first_to_go,
            )  # fmt: skip
        finally:
            for fd in fds:
                os.close(fd)
        try:
            return await asyncio.wait_for(talk(child, job), patience)
        except asyncio.TimeoutError:
            return -signal.SIGKILL, b"", ""
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)  # the program and its children
            except ProcessLookupError:
                pass
            # Otherwise this waits for pipes that are full, or that an escaped program holds open.
            child._transport.close()
            await child.wait()


async def talk(child, job: bytes) -> Tuple[int, bytes, str]:
    async def give() -> None:
        try:
            child.stdin.write(job)
            await child.stdin.drain()
            child.stdin.close()
        except (BrokenPipeError, ConnectionResetError):  # it ended without reading
            pass

    try:
        _, data, words = await asyncio.gather(give(), capped(child.stdout), capped(child.stderr))
    except TooMuch:  # it would wait for somebody to read on
        return 1, b"", "it returned too much"
    return await child.wait(), data, words.decode(errors="replace")


async def capped(stream) -> bytes:
    """The stream up to its end; raises TooMuch at the limit."""
    data = b""
    while part := await stream.read(MAX_RESULT):
        data += part
        if len(data) > MAX_RESULT:
            raise TooMuch
    return data
