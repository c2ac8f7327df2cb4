"""Programs are started from lists, and what they said is in the error."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

from capsule_build.runtime import process
from capsule_build.runtime.process import CommandError, OutputError, ProgramMissingError, quote, run, start

pytestmark = pytest.mark.slow


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", code]


def wait_for(path: Path) -> str:
    """What a started program writes into a file, once it has."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text.strip()
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


def assert_ends(pid: int) -> None:
    """Wait until a process has ended; one that its new parent hasn't waited for yet has, too."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return
        if status.rpartition(")")[2].split()[0] in {"Z", "X"}:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still runs")


def test_output_and_errors_are_kept_apart_byte_for_byte() -> None:
    result = run(["/bin/sh", "-c", r"printf 'a\377\n'; printf b >&2"])
    assert (result.code, result.stdout, result.stderr) == (0, b"a\xff\n", b"b")
    assert result.text == "a\\xff\n"
    assert result.error_text == "b"


def test_a_failing_program_says_itself_why() -> None:
    with pytest.raises(CommandError, match=r"failed with status 3:\nno such thing$") as raised:
        run(["/bin/sh", "-c", "echo fine; echo no such thing >&2; exit 3"])
    assert raised.value.result is not None
    assert raised.value.result.code == 3


def test_what_a_failing_program_printed_stands_in_for_a_missing_error() -> None:
    with pytest.raises(CommandError, match=r"status 1:\nonly this$"):
        run(["/bin/sh", "-c", "echo only this; exit 1"])


def test_a_status_other_than_0_can_be_allowed() -> None:
    assert run(["/bin/sh", "-c", "exit 3"], check=False).code == 3


def test_a_signal_is_a_negative_status() -> None:
    assert run(["/bin/sh", "-c", "kill -9 $$"], check=False).code == -signal.SIGKILL


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ProgramMissingError, match="'no-such-program-at-all' is not installed"):
        run(["no-such-program-at-all"])
    with pytest.raises(ProgramMissingError, match="'no-such-program-at-all' is not installed"):
        start(["no-such-program-at-all"])


def test_a_program_that_can_not_be_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    with pytest.raises(ProgramMissingError, match="can't be started: Permission denied"):
        run([str(tmp_path / "plain")])


def test_without_input_there_is_none() -> None:
    ours, other = os.pipe()
    os.write(other, b"what somebody types")
    os.close(other)
    terminal = os.dup(0)
    os.dup2(ours, 0)
    try:
        assert run(["cat"], timeout=10).stdout == b""
    finally:
        os.dup2(terminal, 0)
        os.close(terminal)
        os.close(ours)


def test_input_is_bytes_or_a_file(tmp_path: Path) -> None:
    assert run(["cat"], stdin=b"bytes").stdout == b"bytes"
    (tmp_path / "file").write_bytes(b"a file's")
    with (tmp_path / "file").open("rb") as stream:
        assert run(["cat"], stdin=stream).stdout == b"a file's"


def test_nothing_is_taken_for_shell() -> None:
    assert run(["printf", "%s", "$HOME; *"]).stdout == b"$HOME; *"


def test_the_environment_is_the_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKS", "yes")
    assert b"LEAKS" not in run(["/usr/bin/env"], env={"ONLY": "this"}).stdout
    assert b"LEAKS=yes" in run(["/usr/bin/env"]).stdout
    assert run(["/bin/pwd", "-P"], cwd=tmp_path).text.strip() == str(tmp_path.resolve())


def test_a_program_that_takes_too_long_ends_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/child; wait"
    began = time.monotonic()
    with pytest.raises(CommandError, match=r"didn't end within 0\.3 s") as raised:
        run(["/bin/sh", "-c", script], timeout=0.3)
    assert time.monotonic() - began < 10
    assert raised.value.result is None
    assert_ends(int(wait_for(tmp_path / "child")))


def test_a_long_error_is_cut_at_its_front() -> None:
    with pytest.raises(CommandError) as raised:
        run(python("import sys; sys.stderr.write('x' * 100000 + 'the end'); sys.exit(1)"))
    assert raised.value.message.endswith("the end")
    assert len(raised.value.message) < 5000


def wait_until_it_waits() -> None:
    """Return when the main thread waits for a program's output: an interrupt finds it there."""
    main = threading.main_thread().ident
    assert main is not None
    while "collect" not in (frame.name for frame in traceback.extract_stack(sys._current_frames()[main])):
        time.sleep(0.01)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_an_interrupt_ends_the_program(tmp_path: Path, timeout: float | None) -> None:
    def interrupt() -> None:
        wait_for(tmp_path / "pid")
        wait_until_it_waits()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(["/bin/sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"], timeout=timeout)
    thread.join()
    assert not Path(f"/proc/{wait_for(tmp_path / 'pid')}").exists(), "it runs, or nobody waited for it"


def test_an_interrupt_ends_the_children_of_a_program_with_a_time_limit(tmp_path: Path) -> None:
    def interrupt() -> None:
        wait_for(tmp_path / "child")
        wait_until_it_waits()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(["/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path}/child; wait"], timeout=60)
    thread.join()
    assert_ends(int(wait_for(tmp_path / "child")))


def test_a_daemon_has_a_session_of_its_own(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        daemon = start(python("import os; print(os.getsid(0) == os.getpid(), flush=True)"), output=out)
    assert daemon.wait(10) == 0
    assert (tmp_path / "out").read_text() == "True\n"


def test_a_command_line_can_be_pasted() -> None:
    assert quote(["echo", "a b", "it's"]) == """echo 'a b' 'it'"'"'s'"""


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_what_a_program_leaves_in_the_background_is_not_waited_for(
    tmp_path: Path, timeout: float | None
) -> None:
    begun = time.monotonic()
    line = 'sleep 50 & echo $! >"$0"; (sleep 1; echo late)& echo said; echo loud >&2; exit 3'
    result = run(["/bin/sh", "-c", line, str(tmp_path / "pid")], timeout=timeout, check=False)
    assert time.monotonic() - begun < 20
    assert (result.code, result.stdout, result.stderr) == (3, b"said\nlate\n", b"loud\n")
    # It may be a service that was to be started.
    os.kill(int(wait_for(tmp_path / "pid")), signal.SIGKILL)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_program_that_prints_without_end_is_stopped(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    monkeypatch.setattr(process, "MOST_BYTES", 1 << 20)
    with pytest.raises(OutputError, match="printed more than 1 MiB, and was stopped"):
        run(["/bin/sh", "-c", "while :; do echo 'y or n?'; done"], timeout=timeout)


def test_much_goes_in_and_out_at_once() -> None:
    data = os.urandom(5 << 20)
    result = run(["/bin/sh", "-c", "tee /dev/stderr"], stdin=data)
    assert result.stdout == data
    assert result.stderr == data
    # What isn't read doesn't hold it, whether it ends or goes on.
    assert run(["/bin/sh", "-c", "exec <&-; echo fine"], stdin=data).stdout == b"fine\n"
    assert run(["/bin/sh", "-c", "exec >&- 2>&-; cat >/dev/null; exit 4"], stdin=data, check=False).code == 4


def test_a_program_that_closes_its_output_still_has_its_time() -> None:
    with pytest.raises(CommandError, match="didn't end within 1 s"):
        run(["/bin/sh", "-c", "exec >&- 2>&-; sleep 50"], timeout=1)
