"""`run_python` and `Session`: values, state, files, failures, memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import capsule
from capsule_build.runtime.errors import UsageError

from .sessions import fails, go, resident

if TYPE_CHECKING:
    from pathlib import Path


def test_a_piece_of_code_gives_what_it_prints_and_its_last_value() -> None:
    async def use() -> None:
        assert await capsule.run_python('print("Hello")\nx = 5 + 3\nx * 2') == "Hello\n16"
        assert await capsule.run_python("x = 1") == ""
        # Nobody asks whether that could be kept.
        assert await capsule.run_python("numbers = (i for i in range(3)); next(numbers)") == "0"
        assert await capsule.run_python("print('a', end='')\n'b'") == "a\n'b'"
        with pytest.raises(capsule.SessionError, match=r"'return' outside of a function.*line 1"):
            await capsule.run_python("return 5")
        with pytest.raises(capsule.SessionError) as caught:
            await capsule.run_python("print('before')\nwhile True: pass", compute="LOW")
        assert (caught.value.error_type, caught.value.printed) == ("fuel_exhausted", "before\n")
        with pytest.raises(UsageError, match="must be LOW"):
            await capsule.run_python("1", compute="SOME")

    go(use())


def test_state_is_kept_and_a_failure_takes_back_its_own_changes_alone() -> None:
    async def use() -> None:
        async with capsule.Session("python", timeout="20s") as session:
            await session.run("x = 1\nitems = [1]\nsame = items")
            assert await session.run("x += 1; x") == "2"
            for code, says in (
                (
                    "x = 50; items.append(2); open('f', 'w').write('f'); 1/0",
                    "ZeroDivisionError: division by zero (<run 3>, line 1)",
                ),
                ("x = 50\nimport sys\nsys.exit(3)", "SystemExit: 3 (<run 3>, line 3)"),
                (
                    "x = 50\nif 1:\n    return x",
                    "SyntaxError: 'return' outside of a function: a run gives the value of its last expression (<run 3>, line 3)",
                ),
            ):
                assert await fails(session, code) == ("task_error", says)
            kind, _ = await fails(session, "x = 50\nbytearray(1 << 40)")
            assert kind in ("task_error", "memory_exceeded")
            assert (
                await session.run("import os; [x, items, same is items, os.listdir('.')]")
                == "[2, [1], True, []]"
            )
            session.reset()
            assert (await fails(session, "x"))[1] == "NameError: name 'x' is not defined (<run 1>, line 1)"

    go(use())


def test_functions_classes_and_modules_are_kept_and_the_rest_is_named() -> None:
    async def use() -> None:
        async with capsule.Session() as session:
            await session.run(
                "import math\nfrom dataclasses import dataclass\nn = 10\n"
                "@dataclass\nclass P:\n    a: int\n    def twice(self): return P(self.a * 2)\n"
                "def f(k=n): return k + n\np = P(4)\ng = lambda: f() + math.floor(2.5)"
            )
            assert (
                await session.run("n = 20; [f(), g(), p.twice(), isinstance(p, P)]")
                == "[30, 32, P(a=8), True]"
            )
            said = await session.run("numbers = (i for i in range(3)); y = 1")
            assert said == "(These can't be kept for the next run: numbers.)"
            assert await session.run("[y, f()]") == "[1, 30]"

    go(use())


def test_a_run_can_be_cancelled_at_any_time() -> None:
    async def use() -> None:
        async with capsule.Session(timeout="5m", compute=10**15) as session:
            await session.run("x = 1")
            for delay in (0, 0.001, 0.003, 0.01, 0.03, 0.3):
                run = asyncio.create_task(session.run("x = 2\nwhile True: pass"))
                await asyncio.sleep(delay)
                run.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await run
                # It waits for the one before.
                assert await asyncio.wait_for(session.run("x"), 20) == "1"

    go(use())


def test_calls_that_wait_for_one_session_keep_no_other_waiting() -> None:
    """However many threads there are, and whichever of the calls are given up."""

    async def use() -> None:
        async with capsule.Session(timeout="20s") as busy, capsule.Session() as other:
            assert await other.run("1") == "1"
            calls = [asyncio.create_task(busy.run("while True: pass"))]
            calls += [asyncio.create_task(busy.run(f"print({n})")) for n in range(1500)]
            await asyncio.sleep(0.1)
            assert await asyncio.wait_for(other.run("2"), timeout=5) == "2"
            # A call that is cancelled twice, the first and the last one, and most of them.
            given_up = {0, 1, 50, 1500, *range(100, 1480)}
            for n in (1, *sorted(given_up, reverse=True)):
                calls[n].cancel()
            done = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=30)
            for n, said in enumerate(done):
                assert isinstance(said, asyncio.CancelledError) if n in given_up else said == str(n - 1)

    go(use())


def test_files_go_in_and_out_and_no_further(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b")

    async def use() -> None:
        async with capsule.Session() as session:
            session.import_file(tmp_path / "in.csv")
            session.import_file(tmp_path / "in.csv", "sub/again.csv")
            await session.run("open('out', 'w').write(open('in.csv').read() + open('sub/again.csv').read())")
            session.export_file("out", tmp_path / "out")
            assert (tmp_path / "out").read_text() == "a,ba,b"
            session.delete_file("in.csv")
            assert await session.run("import os; sorted(os.listdir('/workspace'))") == "['out', 'sub']"
            for name in ("../x", "/etc/passwd", "", "in.csv", "sub"):
                with pytest.raises(UsageError):
                    session.export_file(name, tmp_path / "stolen")
            secret = tmp_path / "secret"
            secret.write_text("secret")
            await session.run(
                "import os\nfor target in ('../../../../../etc/passwd', '/etc/passwd', 'out'):\n"
                "    try: os.symlink(target, 'link' + str(len(target)))\n    except OSError: pass"
            )
            for length in (26, 11, 3):
                with pytest.raises(UsageError):
                    session.export_file(f"link{length}", tmp_path / "stolen")
            assert not (tmp_path / "stolen").exists()
            assert "FileNotFoundError" in (await fails(session, "open('/etc/passwd')"))[1]
            session.reset()
            assert await session.run("import os; os.listdir('.')") == "[]"

    go(use())


def test_five_hundred_runs_keep_their_memory() -> None:
    async def use() -> None:
        async with capsule.Session() as session:
            await session.run("x = 0")
            for _ in range(60):
                await session.run("x += 1")
            before = resident()
            for _ in range(440):
                await session.run("x += 1")
            assert resident() - before < 8 << 20
            assert await session.run("x") == "500"

    go(use())


def test_a_language_that_there_isnt_is_said() -> None:
    with pytest.raises(UsageError, match="no sessions of 'perl'"):
        capsule.Session("perl")


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    async def use() -> None:
        session = capsule.Session()
        session.write_file("a", "ü")
        session.close()
        session.close()
        (tmp_path / "x").touch()
        for act in (
            lambda: session.write_file("a", b"x"),
            lambda: session.read_file("a"),
            lambda: session.import_file(tmp_path / "x"),
            lambda: session.export_file("a", tmp_path / "y"),
            lambda: session.delete_file("a"),
            session.list_files,
            session.reset,
        ):
            with pytest.raises(UsageError, match=r"^This session is closed\."):
                act()
        for run in (session.run, session.run_last):
            with pytest.raises(UsageError, match=r"^This session is closed\."):
                await run("1")

    go(use())


def test_ram_that_no_run_can_start_in_says_how_much_is_needed() -> None:
    async def use() -> None:
        too_few = "16777216 bytes are too few, and a Python task needs at least 29 MB."
        async with capsule.Session(ram="16MB") as session:
            assert await fails(session, "1") == ("config_error", f"ram: {too_few}")

    go(use())


def test_a_run_is_not_tried_again() -> None:
    with pytest.raises(UsageError, match="isn't tried again"):
        capsule.Session("python", max_retries=1)
