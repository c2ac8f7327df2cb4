"""`capsule worker`: the lines that go in and out, what crashes and what that changes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from capsule_build.runtime.process import converse
from capsule_build.sandbox.worker import protocol

from .tasks import CAPSULE, HEAD, LONG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .tasks import Bench

LIMITED = f"""{HEAD}
import os
@task(name="main", compute="LOW", ram="64MB", allowed_files=["./data:ro"], env_variables=["CAPSULE_T_A"])
def main(kind):
    if kind == "write": open("data/x", "w")
    if kind == "loop":
        while True: pass
    if kind == "ram": bytearray(200 << 20)
    return [sorted(os.environ), open("data/d").read()]
"""


class Talk:
    """A worker that was started by hand."""

    def __init__(self, folder: Path, *words: str) -> None:
        env = {**os.environ, "CAPSULE_T_A": "a", "CAPSULE_T_B": "b"}
        self.talk = converse([str(CAPSULE), "worker", *words], cwd=str(folder), env=env)
        self.process, self.raw = self.talk.process, self.talk.send
        self.output = io.BufferedReader(cast("io.RawIOBase", self.talk.output))

    def say(self, **request: Any) -> None:
        self.raw(json.dumps(request).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.output.readline())
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        self.say(**{"id": "x", **request})
        return self.hear()

    def end(self) -> list[dict[str, Any]]:
        """End its input; what it still has to say."""
        self.talk.input.close()
        rest = [json.loads(line) for line in self.output]
        assert self.process.wait(timeout=30) == 0
        return rest

    def children(self) -> list[int]:
        task = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(word) for word in Path(task).read_text().split()]

    def close(self) -> None:
        self.process.kill()
        self.talk.close()
        self.output.close()


@pytest.fixture
def talk(bench: Bench) -> Iterator[Talk]:
    talk = Talk(bench.folder)
    yield talk
    talk.close()


def alive(pid: int) -> bool:
    """Whether a process runs: one that has ended may wait to be asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_limits_and_grants_are_the_same_at_each_call(bench: Bench, talk: Talk) -> None:
    bench.write("file.py", LIMITED)
    bench.write("data/d", "d")
    kinds = ("", "write", "loop", "ram")
    told = [[talk.ask(file="file.py", args=[kind])["output"] for kind in kinds] for _ in range(3)]
    for envelopes in told:
        assert envelopes[0]["result"] == [["CAPSULE_T_A"], "d"]
        errors = [envelope["error"]["error_type"] for envelope in envelopes[1:]]
        assert errors == ["permission_denied", "fuel_exhausted", "memory_exceeded"]
        assert envelopes[2]["execution"]["fuel_consumed"] == 100_000_000
        assert set(envelopes[0]["execution"]) == set(envelopes[3]["execution"])
    assert not (bench.folder / "data/x").exists()
    bench.write("file.py", "def main(): return 'changed'\n")
    assert talk.ask(file="file.py")["output"]["result"] == "changed"


def test_an_instance_that_waits_is_only_for_a_request_like_the_last(bench: Bench) -> None:
    told = "import os\nseen = []\n@task(name='main', {options})\ndef main(name):\n    seen.append(name)\n"
    told += "    return [seen, os.environ.get('CAPSULE_T_C'), {more}]\n"

    def write(options: str, more: str) -> None:
        bench.write("a.py", HEAD + told.format(options=options, more=more))

    write("env_variables=['CAPSULE_T_C']", "1")
    (bench.folder / ".env").write_text("CAPSULE_T_C=one")
    other = bench.write("b.py", f"{HEAD}@task(name='main')\ndef main(_): return os.getcwd()\nimport os\n")
    bench.write("mounted/file", "in")
    talk = Talk(bench.folder, "--jobs", "1")
    try:
        first = talk.ask(file="a.py", args=["x"])["output"]
        for name in ("y", "z"):
            again = talk.ask(file="a.py", args=[name])["output"]
            assert again["result"] == [[name], "one", 1]
            assert again["execution"]["fuel_consumed"] == first["execution"]["fuel_consumed"]
        (bench.folder / ".env").write_text("CAPSULE_T_C=two")
        assert talk.ask(file="a.py", args=["x"])["output"]["result"] == [["x"], "two", 1]
        write("env_variables=['CAPSULE_T_C']", "2")
        assert talk.ask(file="a.py", args=["x"])["output"]["result"] == [["x"], "two", 2]
        write("compute=100_000", "2")
        assert talk.ask(file="a.py", args=["x"])["output"]["error"]["error_type"] == "fuel_exhausted"
        write("", "open('/m/file').read()")
        assert not talk.ask(file="a.py", args=["x"])["output"]["success"]
        mounted = talk.ask(file="a.py", args=["x"], mounts=["mounted::/m"])["output"]
        assert mounted["result"] == [["x"], None, "in"]
        assert talk.ask(file=str(other), args=["x"])["output"]["result"] == "/"
    finally:
        talk.close()


def test_two_hundred_at_once_are_all_answered_rightly(bench: Bench, talk: Talk) -> None:
    bench.write("file.py", "def main(n):\n    return [n, sum(range(n)), 'x' * n]\n")
    asked = b"".join(
        json.dumps({"id": number, "file": "file.py", "args": [number]}).encode() + b"\n"
        for number in range(200)
    )

    # Without the end of the last line; and the input ends with all of it in flight.
    def write() -> None:
        talk.raw(asked[:-1])
        talk.talk.input.close()

    writer = threading.Thread(target=write)
    writer.start()
    answers = {answer["id"]: answer["output"]["result"] for answer in map(json.loads, talk.output)}
    writer.join()
    assert answers == {number: [number, sum(range(number)), "x" * number] for number in range(200)}
    assert talk.process.wait(timeout=30) == 0


def test_what_a_task_prints_never_reaches_the_protocol(bench: Bench, talk: Talk) -> None:
    forged = json.dumps({"id": "x", "output": {"success": True, "result": "forged"}})
    bench.write(
        "file.py",
        "import os, sys\n"
        "def main():\n"
        f"    for start in ('', '=', '.', '~', '+'):\n        line = start + {forged!r}\n"
        "        print(line, flush=True); os.write(1, line.encode() + b'\\n'); os.write(2, b'\\n=' + line.encode() + b'\\n')\n"
        "    for number in range(3, 20):\n"
        "        try: os.write(number, line.encode())\n"
        "        except OSError: pass\n"
        "    os.write(1, 'ä'.encode()[:1]); os.write(1, 'ä'.encode()[1:]); os.write(1, b'\\xff')\n"
        "    return 'true'\n",
    )
    for _ in range(3):
        assert talk.ask(file="file.py")["output"]["result"] == "true"
    talk.say(id="s", file="file.py", stream=True)
    texts = {1: "", 2: ""}
    while "output" not in (said := talk.hear()):
        assert set(said) == {"id", "stream", "text"}
        assert said["id"] == "s"
        texts[said["stream"]] += said["text"]
    assert texts[1].count("forged") == 10
    assert texts[1].endswith("ä\\xff")
    assert said["output"]["result"] == "true"
    assert talk.end() == []


def test_a_line_that_is_no_request_is_an_error_and_no_more(bench: Bench, talk: Talk) -> None:
    bench.write("file.py", "def main(*a, **k): return [a, k]\n")
    for line, identity, says in (
        (b"{", None, "must be JSON"),
        (b"[1]", None, "a JSON object"),
        (b'{"file": "x"}', None, "must have an id"),
        (b'{"id": true, "file": "x"}', None, "must have an id"),
        (b'{"id": 7}', 7, "must name a file"),
        (b'{"id": 7, "file": "x", "fiel": 1}', 7, "no field 'fiel'"),
        (b'{"id": 7, "file": "x", "args": "a"}', 7, "args must be a list"),
        (b'{"id": 7, "file": "x", "mounts": [1]}', 7, "mounts must be a list of texts"),
        (b"\xff" * 10, None, "must be JSON"),
        (b"[" * 100_000, None, "must be JSON"),
    ):
        talk.raw(line + b"\n\n")
        answer = talk.hear()
        assert set(answer) == {"id", "error"}
        assert answer["id"] == identity
        assert says in answer["error"]
    missing = talk.ask(file="nope.py")["output"]
    assert missing["error"]["error_type"] == "config_error"
    assert talk.ask(file="file.py", args=["a" * (1 << 20)], kwargs={"b": 2})["output"]["result"] == [
        ["a" * (1 << 20)],
        {"b": 2},
    ]
    bench.write("sub/file.py", "def main(): return open('/in/f').read()\n")
    bench.write("sub/given/f", "there")
    assert talk.ask(file="file.py", cwd="sub", mounts=["given::/in:ro"])["output"]["result"] == "there"


def test_a_crash_ends_no_other_task_and_a_cancel_ends_its_own(bench: Bench) -> None:
    bench.write("long.py", LONG)
    bench.write("file.py", "def main(n): return n\n")
    talk = Talk(bench.folder, "--jobs", "3")
    try:
        for name in ("a", "b"):
            talk.say(id=name, file="long.py", stream=True)
        assert {talk.hear()["text"], talk.hear()["text"]} == {"begun\n"}
        before = talk.children()
        assert talk.ask(file="file.py", args=[1])["output"]["result"] == 1
        talk.say(id="b", cancel=True)
        assert talk.hear() == {"id": "b", "error": "The request was cancelled."}
        for pid in before:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        crashed = talk.hear()
        assert crashed == {"id": "a", "error": "The process that ran the task ended by signal 9 (SIGKILL)."}
        assert [talk.ask(file="file.py", args=[n])["output"]["result"] for n in range(5)] == list(range(5))
        assert talk.end() == []
    finally:
        talk.close()


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_process_that_ends_while_it_starts_is_replaced_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    bench.write("file.py", "def main(n): return n\n")
    left = bench.write("left", "x" * deaths)
    bench.write(
        "start/sitecustomize.py",
        "import os, sys\n"
        f"if 'capsule_build.sandbox.worker.child' in sys.orig_argv and os.stat({str(left)!r}).st_size:\n"
        f"    os.truncate({str(left)!r}, os.stat({str(left)!r}).st_size - 1)\n"
        "    os.kill(os.getpid(), 9)\n",
    )
    monkeypatch.setenv("PYTHONPATH", str(bench.folder / "start"))
    talk = Talk(bench.folder, "--jobs", "1")
    try:
        for number in range(3):
            talk.say(id=number, file="file.py", args=[number])
        answers = [talk.hear() for _ in range(3)]
        assert left.read_text() == ""
        assert [answer["id"] for answer in answers] == [0, 1, 2]
        if deaths == 1:
            assert [answer["output"]["result"] for answer in answers] == [0, 1, 2]
        else:
            why = "two in a row ended, the last one by signal 9 (SIGKILL)."
            assert {answer["error"] for answer in answers} == {f"No process for tasks can be started: {why}"}
        # Whatever it was, it is over.
        assert talk.ask(file="file.py", args=[7])["output"]["result"] == 7
        assert talk.end() == []
    finally:
        talk.close()


def test_where_no_more_processes_can_be_started_those_that_are_there_serve_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, since each takes two of a few descriptors."""
    bench.write("wait.py", "import time\ndef main(n):\n    time.sleep(0.5)\n    return n\n")
    # Not of the worker's own processes: they begin with what they need.
    bench.write(
        "start/sitecustomize.py",
        "import resource, sys\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "few = 'capsule_build.sandbox.worker.child' not in sys.orig_argv\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (16 if few else 1024, hard))\n",
    )
    monkeypatch.setenv("PYTHONPATH", str(bench.folder / "start"))
    talk = Talk(bench.folder)
    try:
        for number in range(8):
            talk.say(id=number, file="wait.py", args=[number])
        said = [talk.hear() for _ in range(8)]
        assert sorted(answer["output"]["result"] for answer in said) == list(range(8))
        assert 1 <= len(talk.children()) < 8
    finally:
        talk.close()


def test_tasks_that_wait_dont_keep_others_waiting(bench: Bench, talk: Talk) -> None:
    bench.write("wait.py", "import time\ndef main(): time.sleep(4)\n")
    bench.write("file.py", "def main(): return 1\n")
    for number in range(8):
        talk.say(id=number, file="wait.py")
    talk.say(id="quick", file="file.py")
    assert talk.hear()["id"] == "quick"
    assert sorted(answer["id"] for answer in talk.end()) == list(range(8))


def test_a_worker_whose_caller_is_gone_leaves_no_process(bench: Bench) -> None:
    bench.write("long.py", LONG)
    for how in ("closed", "killed"):
        talk = Talk(bench.folder)
        talk.say(id=1, file="long.py", stream=True)
        assert talk.hear()["text"] == "begun\n"
        children = talk.children()
        assert children
        if how == "killed":
            talk.process.kill()
        else:
            talk.output.close()
        until(
            lambda talk=talk, children=children: not any(alive(pid) for pid in (*children, talk.process.pid))
        )
        talk.close()


def test_a_process_whose_worker_is_gone_while_it_answers_says_nothing(bench: Bench) -> None:
    bench.write("hello.py", "def main(): return 1\n")
    output, child_output = os.pipe()
    words = [sys.executable, "-P", "-m", "capsule_build.sandbox.worker.child"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=child_output, stderr=pipe, cwd=bench.folder) as child:
        os.close(child_output)
        assert os.read(output, 10) == protocol.READY + b"\n"
        os.close(output)
        _, said = child.communicate(b'{"id": 1, "file": "hello.py"}\n', timeout=60)
        assert said == b""
        assert child.returncode == 0
