"""Tasks as users write them: results, limits, nesting, errors."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from capsule_build.sandbox import machine

from .tasks import HEAD, Bench, error_of, last_line

FIELDS = {"task_name", "duration_ms", "retries", "fuel_consumed", "ram_used", "host_requests"}


def test_a_first_task_gives_its_result_and_an_envelope(bench: Bench) -> None:
    bench.write(
        "hello.py",
        f"{HEAD}@task(name='main', compute='LOW', ram='64MB')\ndef main() -> str:\n    return 'Hello from Capsule!'\n",
    )
    result = bench.command("run", "hello.py")
    envelope = last_line(result)
    assert result.code == 0
    assert envelope["result"] == "Hello from Capsule!"
    assert (envelope["success"], envelope["error"]) == (True, None)
    execution = envelope["execution"]
    assert set(execution) == FIELDS
    assert execution["task_name"] == "main"
    assert execution["retries"] == 0
    assert 100_000 < execution["fuel_consumed"] < 50_000_000
    assert 8 << 20 < execution["ram_used"] < 32 << 20
    assert execution["host_requests"] == []


def test_low_compute_ends_at_exactly_its_fuel(bench: Bench) -> None:
    envelope = bench.task("for i in range(10**8): pass", options="compute='LOW'")
    assert error_of(envelope)[0] == "fuel_exhausted"
    assert envelope["execution"]["fuel_consumed"] == 100_000_000


def test_an_exact_number_of_units_is_exact(bench: Bench) -> None:
    envelope = bench.task("for i in range(10**8): pass", options="compute='7654321'")
    assert envelope["execution"]["fuel_consumed"] == 7_654_321


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "import time; time.sleep(3)",
        "import asyncio; asyncio.run(asyncio.sleep(3))",
        "import select; select.select([], [], [], 3)",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
        "sorted(range(10**8), key=lambda item: -item)",
        "9 ** 9 ** 9",
        "'x' * 10**6 in ('x' * 10**6 + 'y') * 900 + 'xz' * 10**6 * 100",
        "return endless()",
        "import capsule_asyncio; capsule_asyncio._sleep(3)",
    ],
)
def test_a_timeout_ends_whatever_is_going_on(bench: Bench, body: str) -> None:
    indented = body.replace("; ", "\n    ")
    source = f"@task(name='main', timeout='500ms', compute='HIGH')\ndef main():\n    {indented}\n"
    endless = "@task(compute='HIGH')\ndef endless():\n    while True: pass\n"
    bench.write("file.py", HEAD + endless + source)
    bench.run("file.py")  # the guest is loaded, and the file read
    took: list[float] = []
    # Again where the machine was busy with something else.
    while len(took) < 4 and (not took or took[-1] >= 0.6):
        begin = time.monotonic()
        envelope = bench.run("file.py")
        took.append(time.monotonic() - begin)
        assert error_of(envelope)[0] == "timeout"
    assert 0.45 < took[-1] < 0.6
    assert envelope["execution"]["duration_ms"] < 600


def test_too_much_memory_is_told_as_that(bench: Bench) -> None:
    kind, message = error_of(bench.task("x = bytearray(200 << 20)", options="ram='64MB'"))
    assert kind == "memory_exceeded"
    assert "67108864 bytes" in message
    assert message.endswith(' Give it more: ram="128MB".')
    envelope = bench.task("return len(bytearray(10 << 20))", options="ram='64MB'")
    assert envelope["result"] == 10 << 20
    assert 20 << 20 < envelope["execution"]["ram_used"] <= 64 << 20


def test_memory_that_grows_by_little_is_bounded_too(bench: Bench) -> None:
    envelope = bench.task("x = []\nwhile True: x.append('y' * 1000)", options="ram='48MB', compute='HIGH'")
    assert error_of(envelope)[0] == "memory_exceeded"


def test_ram_that_no_task_can_start_in_says_how_much_is_needed(bench: Bench) -> None:
    bench.write("small.py", f"{HEAD}\n@task(name='main', ram='16MB')\ndef main(): return 1\n")
    assert bench.refused("small.py") == "small.py, line 4: ram='16MB': a Python task needs at least 29 MB."
    assert bench.task("return 1", options=f"ram={machine.START_BYTES}")["result"] == 1
    bench.write("plain.py", "def main(): return 1\n")
    bench.write("capsule.toml", "[tasks]\ndefault_ram = 65536\n")
    assert bench.refused("plain.py") == "plain.py: ram=65536: a Python task needs at least 29 MB."


def test_a_task_sees_the_variables_that_it_lists(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULE_T_SECRET", "no")
    monkeypatch.setenv("CAPSULE_T_KEY", "yes ü")
    bench.write(".env", "CAPSULE_T_FILE=of the file\n")
    body = "import os\nreturn dict(os.environ)"
    assert bench.task(body)["result"] == {}
    listed = bench.task(body, options="env_variables=['CAPSULE_T_KEY', 'CAPSULE_T_FILE', 'CAPSULE_T_NONE']")
    assert listed["result"] == {"CAPSULE_T_KEY": "yes ü", "CAPSULE_T_FILE": "of the file"}


def test_a_nested_task_gives_its_envelope(bench: Bench) -> None:
    bench.write(
        "file.py",
        HEAD
        + """
@task(compute="LOW")
def add(a, b=0):
    return a + b

@task(max_retries=2)
def bad():
    raise ValueError("no")

@task(name="main")
def main():
    return [add(5, 1), add(5, b=2), bad()]
""",
    )
    envelope = bench.run("file.py")
    first, second, third = envelope["result"]
    assert (first["success"], first["result"], second["result"]) == (True, 6, 7)
    assert set(first["execution"]) == FIELDS
    assert first["execution"]["task_name"] == "add"
    assert (third["success"], third["error"]["error_type"]) == (False, "task_error")
    assert third["error"]["message"] == "ValueError: no (file.py, line 9)"
    assert third["execution"]["retries"] == 2
    assert bench.events[:3] == [("main", "pending"), ("main", "running"), ("add", "pending")]
    assert bench.events[-1] == ("main", "completed")


def test_a_nested_task_has_its_own_limits(bench: Bench) -> None:
    bench.write(
        "file.py",
        HEAD
        + """
@task(compute="LOW", ram="32MB")
def small(kind):
    if kind == "fuel":
        for i in range(10**8): pass
    return len(bytearray(100 << 20))

@task(name="main", compute="HIGH")
def main():
    mine = bytearray(100 << 20)
    for i in range(10**6): pass
    return [small("fuel")["error"]["error_type"], small("ram")["error"]["error_type"]]
""",
    )
    assert bench.run("file.py")["result"] == ["fuel_exhausted", "memory_exceeded"]


def test_tasks_call_each_other_only_so_deep(bench: Bench) -> None:
    bench.write(
        "file.py", f"{HEAD}@task(name='main')\ndef main(n=100):\n    return main(n - 1) if n else 'end'\n"
    )
    level, depth = bench.run("file.py"), 0
    while level["success"]:
        level, depth = level["result"], depth + 1
    assert depth == 32
    assert error_of(level) == ("task_error", "Tasks call each other more than 32 deep.")


def test_one_budget_of_compute_when_asked(bench: Bench) -> None:
    source = """
@task(name="part", compute="HIGH")
def part():
    for i in range(10**8): pass

@task(name="main", compute="LOW")
def main():
    return part()["error"]["error_type"]
"""
    bench.write("file.py", HEAD + source.replace("HIGH", "200000000"))
    apart = bench.run("file.py")
    assert apart["result"] == "fuel_exhausted"
    shared = bench.run("file.py", shared_compute=True)
    assert error_of(shared)[0] == "fuel_exhausted"
    assert shared["execution"]["fuel_consumed"] == 100_000_000


def test_retries_are_those_that_were_used(bench: Bench) -> None:
    (bench.folder / "data").mkdir()
    body = """
import os
open("data/" + str(len(os.listdir("data"))), "w").close()
if len(os.listdir("data")) < 3: raise ValueError("not yet")
return len(os.listdir("data"))
"""
    envelope = bench.task(body, options="max_retries=5, allowed_files=['data']")
    assert (envelope["result"], envelope["execution"]["retries"]) == (3, 2)


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("import sys; sys.exit(3)", "task_error", r"SystemExit\(3\)"),
        ("import os; os._exit(3)", "task_error", "status"),
        ("import nope", "task_error", "ModuleNotFoundError: No module named 'nope'"),
        ("def f(): f()\nf()", "task_error", "RecursionError"),
        ("import threading; threading.Thread(target=print).start()", "task_error", "can't start new thread"),
        ("import os; os.fork()", "task_error", "'os' has no attribute 'fork'"),
        ("import subprocess; subprocess.run(['ls'])", "task_error", "does not support processes"),
        ("return {1, 2}", "task_error", "set is not JSON serializable"),
        ("return float('nan')", "task_error", "ValueError"),
        ("raise KeyboardInterrupt", "task_error", "KeyboardInterrupt"),
        ("1/0", "task_error", r"ZeroDivisionError: division by zero \(file.py, line 4\)"),
        ("import os; os.abort()", "wasm_error", "."),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "task_error", "E"),
    ],
)
def test_failures_say_what_they_are(bench: Bench, body: str, kind: str, says: str) -> None:
    import re

    said = error_of(bench.task(body))
    assert said[0] == kind, said
    assert re.search(says, said[1]), said


def test_deep_c_recursion_ends_the_task_alone(bench: Bench) -> None:
    body = (
        "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor i in range(10**6): x = [x]\nreturn repr(x)[:1]"
    )
    assert error_of(bench.task(body, options="compute='HIGH'"))[0] in {"task_error", "wasm_error"}
    assert bench.task("return 1")["result"] == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def main(:\n", r"bad.py, line 1: SyntaxError"),
        ("x = 1\n", "no task 'main', no function main.* It has no tasks"),
        (HEAD + "@task\ndef a(): ...\n@task\ndef b(): ...\n", "It has the tasks a, b"),
        (HEAD + "@task(ram='x')\ndef main(): ...\n", "bad.py, line 3: ram='x': it must be a size"),
        (HEAD + "@task(cpu=1)\ndef main(): ...\n", "line 2: @task has no option 'cpu'"),
        (HEAD + "@task(ram=f())\ndef main(): ...\n", "'ram' of @task must be a literal"),
        (HEAD + "@task(**x)\ndef main(): ...\n", "must be written out"),
        (HEAD + "@task(name='a')\ndef f(): ...\n@task(name='a')\ndef g(): ...\n", "two tasks 'a'"),
        (HEAD + "R = '1MB'\nR = '2MB'\n@task(ram=R)\ndef main(): ...\n", "must be a literal"),
        ("(" * 5000 + ")" * 5000, "bad.py"),
        ("x = " + "-" * 100_000 + "1\n", "bad.py"),
    ],
)
def test_a_file_that_says_wrong_things_is_refused_before_it_runs(
    bench: Bench, source: str, says: str
) -> None:
    import re

    bench.write("bad.py", source)
    assert re.search(says, bench.refused("bad.py"))


def test_options_may_be_constants_of_the_module(bench: Bench) -> None:
    bench.write(
        "file.py", f"{HEAD}UNITS = '5000000'\n@task(compute=UNITS)\ndef main():\n    while True: pass\n"
    )
    assert bench.run("file.py")["execution"]["fuel_consumed"] == 5_000_000


@pytest.mark.parametrize(
    "source",
    [
        "def main():\n    return 7\n",
        "async def main():\n    import asyncio\n    await asyncio.sleep(0.01)\n    return 7\n",
        "import capsule\n@capsule.task\ndef only():\n    return 7\n",
        "import capsule as c\n@c.task('other')\ndef main():\n    return 7\n",
        "from capsule import task as t\nif True:\n    @t(name='main')\n    def f():\n        return 7\n",
        "import asyncio\nasync def f():\n    return 7\ndef main():\n    return asyncio.run(f())\n",
        "from capsule import task\n@task(name='main')\ndef f():\n    return 7\ndef main():\n    return 8\n",
    ],
)
def test_the_entry_point_is_found(bench: Bench, source: str) -> None:
    bench.write("file.py", source)
    assert bench.run("file.py")["result"] == 7


def test_defaults_of_the_project_count_and_a_tasks_own_options_override_them(bench: Bench) -> None:
    bench.write("capsule.toml", "[workflow]\nentrypoint = 'file.py'\n[tasks]\ndefault_compute = '6000000'\n")
    bench.write("file.py", "def main():\n    while True: pass\n")
    assert last_line(bench.command("run"))["execution"]["fuel_consumed"] == 6_000_000
    envelope = bench.task("while True: pass", options="compute='5000000'")
    assert envelope["execution"]["fuel_consumed"] == 5_000_000


def test_a_helper_that_is_edited_is_seen_by_every_file(bench: Bench) -> None:
    for name in ("one.py", "two.py"):
        bench.write(name, "import helper\ndef main():\n    return helper.VALUE\n")
    for value in (1, 2):
        bench.write("helper.py", f"VALUE = {value}\n")
        assert [bench.run(name)["result"] for name in ("one.py", "two.py")] == [value, value]


def test_packages_come_from_a_folder_and_their_data_with_them(bench: Bench) -> None:
    bench.write("lib/tool/__init__.py", "from .part import VALUE\n")
    bench.write(
        "lib/tool/part.py",
        "import importlib.resources as r\nVALUE = r.files('tool').joinpath('d.txt').read_text()\n",
    )
    bench.write("lib/tool/d.txt", "data")
    bench.write("lib/fast/__init__.py", "from . import core\n")
    (bench.folder / "lib/fast/core.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    packages: dict[str, Any] = {"packages": [str(bench.folder / "lib")]}
    assert bench.task("import tool\nreturn tool.VALUE", **packages)["result"] == "data"
    said = bench.task("import pkgutil, tool\nreturn pkgutil.get_data('tool', 'd.txt').decode()", **packages)
    assert said["result"] == "data"
    kind, message = error_of(bench.task("import fast", **packages))
    assert kind == "task_error"
    assert "'fast' needs the C extension core.cpython-311-x86_64-linux-gnu.so, which can't work" in message
    assert error_of(bench.task("import tool"))[1].startswith("ModuleNotFoundError")


def test_the_standard_library_is_there(bench: Bench) -> None:
    names = (
        "argparse array ast base64 bisect calendar collections.abc configparser contextlib copy csv dataclasses "
        "datetime decimal difflib email.message enum fnmatch fractions functools glob gzip hashlib heapq hmac html "
        "http.client inspect io itertools json logging.handlers math numbers operator pathlib pickle pprint queue "
        "random re sched secrets shelve shlex shutil statistics string struct tarfile tempfile textwrap timeit "
        "tokenize tomllib traceback types typing unicodedata unittest.mock urllib.parse uuid warnings weakref wave "
        "xml.etree.ElementTree zipfile zipimport zlib zoneinfo"
    )
    body = f"import importlib\nreturn [n for n in {names.split()!r} if not importlib.import_module(n)]"
    assert bench.task(body, options="compute='HIGH'")["result"] == []


def test_random_numbers_differ_between_runs(bench: Bench) -> None:
    """All instances begin with one memory, and so with the state that the generators in it had."""
    body = """
        import email.utils, os, random, secrets, string, tempfile, uuid
        names = tempfile._get_candidate_names()
        return [random.random(), random.Random().random(), random.SystemRandom().random(), secrets.token_hex(),
                os.urandom(16).hex(), str(uuid.uuid4()), uuid.uuid1().clock_seq + (uuid.getnode() << 14),
                next(names) + next(names), email.utils.make_msgid(domain='x').split('.')[2],
                ''.join(random.choices(string.ascii_letters, k=20))]
    """
    runs = [bench.task(body)["result"] for _ in range(3)]
    assert [len(set(drawn)) for drawn in zip(*runs, strict=True)] == [3] * 10


def test_a_large_result_is_exact_and_its_task_ran_once(bench: Bench) -> None:
    (bench.folder / "data").mkdir()
    body = "open('data/count', 'a').write('x')\nreturn 'y' * (100 << 20)"
    envelope = bench.task(body, options="compute='HIGH', allowed_files=['data'], max_retries=3")
    assert envelope["success"], envelope["error"]
    assert envelope["result"] == "y" * (100 << 20)
    assert (bench.folder / "data" / "count").read_text() == "x"


def test_a_result_that_is_no_json_ran_once(bench: Bench) -> None:
    (bench.folder / "data").mkdir()
    envelope = bench.task(
        "open('data/count', 'a').write('x')\nreturn object()", options="allowed_files=['data']"
    )
    assert error_of(envelope)[0] == "task_error"
    assert (bench.folder / "data" / "count").read_text() == "x"


@pytest.mark.parametrize(
    "value",
    [
        {"error": {"type": "timeout", "message": "no"}},
        {
            "success": False,
            "result": None,
            "error": {"error_type": "timeout", "message": "x"},
            "execution": {},
        },
        {"result": 1},
        '{"error": "x"}',
        None,
        [],
        "",
        "\ud800 lone, \0 and \u2028",
    ],
)
def test_a_result_that_looks_like_an_envelope_is_a_result(bench: Bench, value: object) -> None:
    envelope = bench.task(f"import json\nreturn json.loads({json.dumps(value)!r})")
    assert envelope["success"]
    assert envelope["result"] == value


def test_a_hundred_megabytes_of_prints_are_exact(bench: Bench) -> None:
    body = "import sys\nfor i in range(100): sys.stdout.write(str(i % 10) * (1 << 20))\nprint('e', file=sys.stderr)"
    envelope = bench.task(body, options="compute='HIGH'")
    assert envelope["success"]
    assert bench.printed[1] == b"".join(str(i % 10).encode() * (1 << 20) for i in range(100))
    assert bench.printed[2] == b"e\n"
