"""The Python examples of capsule-run 0.8.10's own package description, unchanged."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import capsule
from capsule_build.runtime.process import run
from capsule_build.sandbox.project import load_project
from capsule_build.sandbox.running import machine
from capsule_build.sandbox.source import load_source

from .tasks import Bench, last_line

if TYPE_CHECKING:
    import pytest

HELLO = """
from capsule import task

@task(name="main", compute="LOW", ram="64MB")
def main() -> str:
    return "Hello from Capsule!"
"""

EXECUTES = """
from capsule import task

@task(name="main", compute="LOW", ram="64MB")
def main(code: str) -> str:
    return exec(code)
"""

ANALYZES = '''
from capsule import task

@task(name="analyze_data", compute="MEDIUM", ram="512MB", timeout="30s", max_retries=1)
def analyze_data(dataset: list) -> dict:
    """Process data in an isolated, resource-controlled environment."""
    return {"processed": len(dataset), "status": "complete"}
'''

PROJECT = """
[workflow]
name = "My AI Workflow"
version = "1.0.0"
entrypoint = "src/main.py"  # Run `capsule run` without specifying a file

[tasks]
default_compute = "MEDIUM"
default_ram = "256MB"
default_timeout = "30s"
"""

FILES = """
from capsule import task

@task(name="main", allowed_files=[
    {"path": "./data", "mode": "read-only"},
    {"path": "./output", "mode": "read-write"},
])
def main() -> str:
    with open("./data/input.txt") as f:
        content = f.read()
    with open("./output/result.txt", "w") as f:
        f.write(content)
    return content
"""

HOSTS = """
from capsule import task
from urllib.request import urlopen
import json

@task(name="main", allowed_hosts=["api.openai.com", "*.anthropic.com"])
def main() -> dict:
    with urlopen("https://api.openai.com/v1/models") as response:
        return json.loads(response.read().decode("utf-8"))
"""

VARIABLES = """
from capsule import task
import os

@task(name="main", env_variables=["API_KEY"])
def main() -> dict:
    api_key = os.environ.get("API_KEY")
    return {"api_key": api_key}
"""

PROGRAM = """
import asyncio
from capsule import run

async def program():
    result = await run(
       file="./hello.wasm", # or `hello.py`
       args=[]
    )

    print(f"Task completed: {result['result']}")

asyncio.run(program())
"""


def test_getting_started_and_production(bench: Bench) -> None:
    bench.write("hello.py", HELLO)
    assert last_line(bench.command("run", "hello.py"))["result"] == "Hello from Capsule!"
    assert bench.command("build", "hello.py", "--export").code == 0
    assert last_line(bench.command("exec", "hello.wasm"))["result"] == "Hello from Capsule!"
    program = bench.write("program.py", PROGRAM)
    said = run([sys.executable, str(program)], cwd=bench.folder).stdout
    assert said == b"Task completed: Hello from Capsule!\n"


def test_a_file_named_capsule_that_imports_capsule(bench: Bench) -> None:
    bench.write("capsule.py", EXECUTES)
    for code in ("print('said')", "x = 1"):
        envelope = asyncio.run(capsule.run(file="./capsule.py", args=[code], cwd=str(bench.folder)))
        assert (envelope["success"], envelope["result"]) == (True, None)
    assert last_line(bench.command("run", "capsule.py", "print(5)"))["success"]


def test_how_it_works(bench: Bench) -> None:
    bench.write("main.py", ANALYZES)
    envelope = bench.run("main.py", [1, 2, 3, 4, 5])
    assert envelope["result"] == {"processed": 5, "status": "complete"}
    assert envelope["execution"]["task_name"] == "analyze_data"


def test_project_configuration(bench: Bench) -> None:
    bench.write("capsule.toml", PROJECT)
    bench.write("src/main.py", HELLO)
    assert last_line(bench.command("run"))["result"] == "Hello from Capsule!"


def test_file_access(bench: Bench) -> None:
    bench.write("main.py", FILES)
    bench.write("data/input.txt", "content")
    (bench.folder / "output").mkdir()
    assert bench.run("main.py")["result"] == "content"
    assert (bench.folder / "output" / "result.txt").read_text() == "content"


def test_network_access(bench: Bench) -> None:
    # That host is out of reach of tests: the file is read, and gets what it asks for. `test_grants` makes requests.
    path = bench.write("main.py", HOSTS)
    file = load_source(str(path), load_project(str(bench.folder)), machine(lambda _text: None))
    assert file.tasks["main"].hosts == ("api.openai.com", "*.anthropic.com")


def test_environment_variables(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("main.py", VARIABLES)
    monkeypatch.setenv("API_KEY", "key")
    assert bench.run("main.py")["result"] == {"api_key": "key"}
    monkeypatch.delenv("API_KEY")
    Path(bench.folder, ".env").write_text("API_KEY=from the file\n")
    assert bench.run("main.py")["result"] == {"api_key": "from the file"}
