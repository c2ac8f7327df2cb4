"""The command `capsule` and the import package, from outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest

import capsule
from capsule_build.runtime.errors import UsageError
from capsule_build.runtime.process import run, start

from .tasks import CAPSULE, HEAD, Bench, last_line

LIMITED = """
import helper
@task(name="main", compute="LOW", ram="64MB", timeout="10s", allowed_files=["./data:ro"], env_variables=["CAPSULE_T_A"])
def main(kind="ok"):
    import os
    if kind == "write": open("data/x", "w")
    if kind == "loop":
        while True: pass
    if kind == "ram": return len(bytearray(200 << 20))
    return [helper.VALUE, open("data/d").read(), sorted(os.environ)]
"""


def test_exit_code_and_json_alone(bench: Bench) -> None:
    bench.write(
        "file.py",
        "import sys\ndef main(*args):\n    print('printed')\n    print('e', file=sys.stderr)\n    return list(args)\n",
    )
    plain = bench.command("run", "file.py", "a", "-5", "--", "--json")
    assert plain.stdout.splitlines()[0] == b"printed"
    assert last_line(plain)["result"] == ["a", "-5", "--json"]
    alone = bench.command("run", "--json", "file.py")
    assert json.loads(alone.stdout)["result"] == []
    assert alone.stderr == b"printed\ne\n"
    assert (plain.code, alone.code) == (0, 0)
    bench.write("file.py", "def main():\n    print('no end', end='')\n    raise ValueError('x')\n")
    failed = bench.command("run", "file.py")
    assert failed.code == 1
    assert failed.stdout.splitlines()[0] == b"no end"
    assert last_line(failed)["error"] == {
        "error_type": "task_error",
        "message": "ValueError: x (file.py, line 3)",
    }


def test_verbose_tells_each_tasks_life(bench: Bench) -> None:
    bench.write(
        "file.py", f"{HEAD}@task\ndef part():\n    1/0\n@task(name='main')\ndef main():\n    part()\n"
    )
    said = bench.command("run", "--verbose", "file.py").stderr.decode().splitlines()
    told = [line for line in said if line.startswith(("main:", "part:"))]
    assert told == [
        "main: pending",
        "main: running",
        "part: pending",
        "part: running",
        "part: failed",
        "main: completed",
    ]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run", "nope.py"], 2, "There is no file nope.py."),
        (["exec", "hello.wasm"], 2, "no file hello.wasm. 'capsule build hello.py --export' makes it."),
        (["exec", "nope.wasm"], 2, "no file nope.wasm. 'capsule build FILE --export' makes one"),
        (["run"], 2, "No file was named"),
        (["run", "--bad", "x.py"], 2, "No such option: --bad"),
        (["run", "--mount"], 2, "requires an argument"),
        (["run", "--mount", "", "hello.py"], 2, "must be HOST"),
        (["run", "--packages", "nope", "hello.py"], 2, "is not a folder"),
        (["run", "notes.txt"], 2, "neither a Python file"),
        (["exec", "hello.py"], 2, "is no packed file"),
        (["exec", "broken.wasm"], 5, "is no packed task"),
        (["exec", "broken.wasm", "--packages", "nope"], 2, "No such option: --packages"),
        (["build", "hello.py", "--output", ""], 2, "names no folder"),
        (["build", "nope.py"], 2, "can't be read"),
        (["build", "notes.txt"], 2, "no Python file"),
        (["nope"], 2, "No such command"),
    ],
)
def test_wrong_usage_is_told_without_a_traceback(
    bench: Bench, words: list[str], code: int, says: str
) -> None:
    bench.write("hello.py", "def main(): return 1\n")
    bench.write("notes.txt", "x")
    bench.write("broken.wasm", "x")
    result = bench.command(*words)
    assert result.code == code
    said = " ".join((result.stdout + result.stderr).decode().split())
    assert says in said
    assert "Traceback" not in said


def test_people_read_errors_and_machines_get_envelopes(bench: Bench) -> None:
    bench.write("folder.py", f"{HEAD}@task(name='main', allowed_files=['./none'])\ndef main(): pass\n")
    for words, says in (
        (["exec", "x.py"], "error: x.py is no packed file (.wasm).\n'capsule run' runs a source file; "),
        (["run", "folder.py"], "error: folder.py, allowed_files of the task 'main': there is no "),
    ):
        bench.write("x.py", "")
        plain = bench.command(*words)
        assert (plain.code, plain.stdout) == (2, b"")
        said = plain.stderr.decode()
        assert said.startswith(says), said
        alone = bench.command(words[0], "--json", *words[1:])
        error = json.loads(alone.stdout)["error"]
        assert (alone.code, alone.stderr, error["error_type"]) == (2, b"", "config_error")
        assert said == f"error: {error['message']}\n"
    # A command line that can't be read asks for nothing, not for --json either.
    unread = bench.command("run", "--json", "--mem", "3", "x.py")
    assert (unread.code, unread.stdout) == (2, b"")
    assert unread.stderr.startswith(b"error: No such option: --mem")
    bench.write("fails.py", f"{HEAD}@task(name='main', compute='LOW')\ndef main():\n    while True: pass\n")
    plain = bench.command("run", "fails.py")
    assert plain.code == 1
    said = plain.stderr.decode()
    assert said == f"error: {last_line(plain)['error']['message']}\n"
    assert said.endswith('Give it more: compute="HIGH" (50000000000), or any number.\n')
    assert bench.command("run", "--json", "fails.py").stderr == b""


def test_a_packed_file_of_another_source_is_not_overwritten(bench: Bench) -> None:
    bench.write("hello.py", "def main(): return 'py'\n")
    bench.write("hello.ts", "export const main = () => 'ts';\n")
    for _ in range(2):
        assert bench.command("build", "hello.py", "--export").code == 0
    kept = (bench.folder / "hello.wasm").read_bytes()
    refused = bench.command("build", "hello.ts", "--export")
    assert refused.code == 2
    said = " ".join(refused.stderr.decode().split())
    assert "hello.wasm was packed from hello.py" in said
    assert "Export hello.ts into another folder (--output DIR)" in said
    assert bench.command("build", "hello.ts").code == 0
    assert (bench.folder / "hello.wasm").read_bytes() == kept
    (bench.folder / "hello.wasm").write_bytes(b"\0asm\1\0\0\0 somebody's own")
    refused = bench.command("build", "hello.py", "--export")
    assert refused.code == 2
    assert "hello.wasm is no packed task" in " ".join(refused.stderr.decode().split())


def test_help_lists_the_options_that_are_read_by_hand(bench: Bench) -> None:
    for command in ("run", "exec"):
        said = bench.command(command, "--help", env={"COLUMNS": "200"}).stdout.decode()
        assert all(
            option in said for option in ("--json", "--verbose", "--mount", "--args-file", "--shared-compute")
        )


def test_arguments_can_come_from_a_file(bench: Bench) -> None:
    bench.write("file.py", "def main(*args):\n    return args\n")
    bench.write("args.json", json.dumps(["x" * 10_000, {"a": 1}]))
    assert last_line(bench.command("run", "file.py", "--args-file", "args.json", "b"))["result"] == [
        "x" * 10_000,
        {"a": 1},
        "b",
    ]
    bench.write("args.json", "{}")
    assert bench.command("run", "file.py", "--args-file=args.json").code == 2


def test_run_and_exec_have_the_same_limits_and_grants_each_time(bench: Bench) -> None:
    bench.write("file.py", HEAD + LIMITED)
    bench.write("helper.py", "VALUE = 'helped'\n")
    bench.write("data/d", "d")
    built = bench.command("build", "file.py", "--export", "--json")
    assert json.loads(built.stdout)["modules"] == ["helper.py"]
    env = {"CAPSULE_T_A": "a", "CAPSULE_T_B": "b"}
    (bench.folder / "helper.py").rename(bench.folder / "helper_was.py")
    found = []
    for turn in range(2):
        for kind in ("ok", "write", "loop", "ram"):
            both = []
            for command, file in (("exec", "file.wasm"), ("run", "file.py")):
                if command == "run":
                    (bench.folder / "helper_was.py").rename(bench.folder / "helper.py")
                envelope = last_line(bench.command(command, file, kind, env=env))
                if command == "run":
                    (bench.folder / "helper.py").rename(bench.folder / "helper_was.py")
                if kind != "loop":
                    envelope["execution"]["fuel_consumed"] = 0
                envelope["execution"]["duration_ms"] = 0
                both.append(envelope)
            assert both[0] == both[1], turn
            found.append(both[0]["result"] or both[0]["error"]["error_type"])
    assert (
        found
        == [["helped", "d", ["CAPSULE_T_A"]], "permission_denied", "fuel_exhausted", "memory_exceeded"] * 2
    )


def test_the_same_source_gives_the_same_packed_bytes(bench: Bench) -> None:
    bench.write("file.py", "import helper\ndef main(): return helper.VALUE\n")
    bench.write("helper.py", "VALUE = 5\n")
    digests = {json.loads(bench.command("build", "file.py", "--json").stdout)["sha256"] for _ in range(2)}
    assert len(digests) == 1


def test_a_packed_file_with_a_changed_byte_is_refused(bench: Bench) -> None:
    bench.write("file.py", "def main(): return 1\n")
    bench.command("build", "file.py", "--export")
    whole = (bench.folder / "file.wasm").read_bytes()
    for place in (0, 9, 12, 30, 60, len(whole) // 2, len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 1
        (bench.folder / "file.wasm").write_bytes(changed)
        result = bench.command("exec", "--json", "file.wasm")
        assert result.code == 5, place
        assert last_line(result)["error"]["error_type"] == "config_error"


def test_a_packed_policy_is_held_to_the_same_rules(bench: Bench) -> None:
    from capsule_build.sandbox.artifact import pack, read_artifact
    from capsule_build.sandbox.guests import guest_of
    from capsule_build.sandbox.modules import Modules
    from capsule_build.sandbox.options import Folder, Policy
    from capsule_build.sandbox.source import TaskFile

    source = "def main(): return open('/etc/passwd').read()\n"
    for folder in ("../..", "/etc", "/"):
        policy = Policy("main", "main", True, folders=(Folder(folder, True),))
        file = TaskFile("x.py", source, {"main": policy}, "main", Modules(()))
        data = pack(file, {}, {}, guest=guest_of("python"))
        with pytest.raises(Exception, match="working folder"):
            read_artifact(data, "x.wasm")


def test_ctrl_c_ends_it_at_once_and_says_so(bench: Bench) -> None:
    bench.write(
        "file.py",
        f"{HEAD}@task(name='main', compute='HIGH')\ndef main():\n    print('begun')\n    while True: pass\n",
    )
    log = bench.folder / "log"
    # Where this is ignored, as in what a shell runs in the background, the program would ignore it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("wb") as output:
        process = start([str(CAPSULE), "run", str(bench.folder / "file.py")], output=output)
        while b"begun" not in log.read_bytes():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130
    assert b"Interrupted." in log.read_bytes()
    assert b"Traceback" not in log.read_bytes()


def test_a_reader_that_goes_away_is_no_traceback(bench: Bench) -> None:
    bench.write("file.py", "def main():\n    for i in range(10000): print('x' * 1000)\n")
    result = run(["sh", "-c", f"{CAPSULE} run file.py | head -c 10"], cwd=bench.folder)
    assert result.stdout == b"x" * 10
    assert b"Traceback" not in result.stderr


def test_the_fast_path_loads_neither_typer_nor_rich_nor_wasmtimes_own_bindings(bench: Bench) -> None:
    bench.write("file.py", "def main(): return 1\n")
    program = (
        "import sys, os\n"
        "from capsule_build.cli.capsule.arguments import read_arguments\n"
        "from capsule_build.cli.capsule.execute import execute\n"
        "assert execute(read_arguments(['run', 'file.py'])) == 0\n"
        "print(sorted({'typer', 'rich', 'click', 'wasmtime', 'pathlib', 'dataclasses', 'inspect', 'asyncio', 'ssl',\n"
        "              'http', 'socket', 'subprocess', 'tempfile', 'ast', 'typing', 're', 'json', 'contextlib',\n"
        "              'enum', 'collections', 'functools', 'hashlib'} & set(sys.modules)))\n"
    )
    # Once, to keep what the syntax says; and without what a .pth file of this environment may import.
    bench.command("run", "file.py")
    paths = f"import sys; sys.path[:0] = {[str(Path(capsule.__file__).parents[1]), site_packages()]!r}\n"
    result = run([sys.executable, "-S", "-c", paths + program], cwd=bench.folder)
    assert result.stdout.splitlines()[-1] == b"[]"


def site_packages() -> str:
    """Where the packages of this environment are."""
    return sysconfig.get_path("purelib")


def test_run_from_a_program(bench: Bench) -> None:
    bench.write(
        "file.py", f"{HEAD}@task(name='main')\ndef main(a, b=0):\n    print('said')\n    return [a, b]\n"
    )
    heard: list[tuple[int, bytes]] = []

    async def ask() -> list[dict[str, object]]:
        calls = [
            capsule.run(
                file="./file.py",
                args=[number],
                cwd=str(bench.folder),
                kwargs={"b": 2},
                on_output=lambda n, d: heard.append((n, d)),
            )
            for number in range(20)
        ]
        return list(await asyncio.gather(*calls))

    envelopes = asyncio.run(ask())
    assert [envelope["result"] for envelope in envelopes] == [[number, 2] for number in range(20)]
    assert heard == [(1, b"said\n")] * 20
    for wrong, says in (
        ({"args": "Ada"}, "args must be a list, and not 'Ada'"),
        ({"args": {"name": "Ada"}}, "args must be a list"),
        ({"mounts": "x"}, "mounts must be a list, and not 'x'"),
        ({"mounts": [1]}, "mounts must be a list of texts"),
        ({"packages": b"x"}, "packages must be a list"),
        ({"kwargs": ["name"]}, "kwargs must be a mapping"),
    ):
        for worker in (False, True):
            with pytest.raises(UsageError, match=says):
                asyncio.run(capsule.run(file="hello.py", cwd=str(bench.folder), worker=worker, **wrong))
    missing = asyncio.run(capsule.run(file="nope.py", cwd=str(bench.folder)))
    assert missing["error"]["error_type"] == "config_error"


def test_outside_of_a_sandbox_a_task_is_its_function() -> None:
    @capsule.task(name="x", compute="LOW", ram="64MB", timeout="1s")
    def double(number: int) -> int:
        return number * 2

    @capsule.task
    def plain() -> int:
        return 1

    assert (double(4), plain()) == (8, 1)


def test_many_tasks_at_once_are_right(bench: Bench) -> None:
    bench.write("file.py", "def main(n):\n    return sum(range(n))\n")
    results: dict[int, object] = {}

    def work(number: int) -> None:
        results[number] = Bench(bench.folder).run("file.py", number)["result"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: sum(range(number)) for number in range(60)}


def test_tasks_at_once_have_each_their_own_grants(bench: Bench) -> None:
    for number in range(24):
        bench.write(f"data{number}/own", str(number))
        listed = f"allowed_files=['data{number}:ro']"
        body = f"import os\n    return [open('data{number}/own').read(), sum(os.path.exists(f'data{{n}}/own') for n in range(24))]"
        bench.write(f"file{number}.py", f"{HEAD}@task(name='main', {listed})\ndef main():\n    {body}\n")
    results: dict[int, object] = {}

    def work(number: int) -> None:
        results[number] = Bench(bench.folder).run(f"file{number}.py")["result"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [str(number), 1] for number in range(24)}


def test_tasks_that_hang_in_the_system_are_few_and_end(bench: Bench) -> None:
    bench.write(
        "file.py",
        f"{HEAD}@task(name='main', timeout='150ms')\ndef main():\n    import capsule_asyncio\n    capsule_asyncio._sleep(8)\n",
    )
    bench.write("fine.py", "def main(): return 1\n")
    bench.run("fine.py")
    # One that is stopped on its way to the call hangs in nothing.
    for _ in range(25):
        assert bench.run("file.py")["error"]["error_type"] in {"timeout", "wasm_error"}
    refused = bench.run("fine.py")
    assert refused["error"]["error_type"] == "wasm_error"
    assert "still wait in calls of the system" in refused["error"]["message"]
    end = time.monotonic() + 20
    while not bench.run("fine.py")["success"]:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_request_to_the_host_and_a_result_have_their_bounds(bench: Bench) -> None:
    asked = bench.task("import wit_world\nwit_world.host('x' * (65 << 20))", options="compute='HIGH'")
    assert asked["error"]["error_type"] == "wasm_error"
    assert "more than 67108864 bytes" in asked["error"]["message"]


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("calls", [2_500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_thousands_of_calls_leave_memory_flat(bench: Bench, calls: int) -> None:
    bench.write(
        "file.py",
        f"{HEAD}@task(name='main', env_variables=['HOME'])\ndef main(n):\n    print(n)\n    return n\n",
    )
    for number in range(300):
        assert bench.run("file.py", number)["result"] == number
    before, handles = resident(), len(list(Path("/proc/self/fd").iterdir()))
    for number in range(calls):
        assert bench.run("file.py", number)["result"] == number
    assert resident() - before < 8 << 20
    assert len(list(Path("/proc/self/fd").iterdir())) == handles
