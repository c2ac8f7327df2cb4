"""Makes venvs in all the ways that people do: python_venvs.py INSTALL_ROOT WHEELS."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT, WHEELS = sys.argv[1:]
PYTHON = f"{ROOT}/bin/python"
UV = f"{ROOT}/bin/uv"
ASK = """
import json, sys
print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))
"""
TAGS = """
from pip._internal.utils.compatibility_tags import get_supported
import json
print(json.dumps([tag.platform for tag in get_supported()[:4]]))
"""
IMPORT = "import markupsafe._speedups as module; print(module.__file__)"


def run(*argv, **more):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **more.pop("env", {})}
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=environment, **more)
    if done.returncode:
        sys.exit(f"{argv} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def described(folder):
    settings = dict(line.split(" = ", 1) for line in Path(folder, "pyvenv.cfg").read_text().splitlines())
    return {"home": settings["home"], "says": json.loads(run(f"{folder}/bin/python", "-c", ASK))}


def install(*installer):
    run(*installer, "install", "--no-index", "--find-links", WHEELS, "markupsafe")


found = {}
# A file of that name in a folder above tells a Python that it is in a venv.
for folder in ("/tmp", os.path.dirname(ROOT)):
    Path(folder, "pyvenv.cfg").write_text("home = /nowhere\n")

run(PYTHON, "-m", "venv", "/tmp/plain")
found["plain"] = described("/tmp/plain")
found["tags"] = json.loads(run("/tmp/plain/bin/python", "-c", TAGS))
install("/tmp/plain/bin/pip")
found["extension"] = run("/tmp/plain/bin/python", "-c", IMPORT).strip()

os.mkdir("/tmp/elsewhere")
os.symlink(PYTHON, "/tmp/elsewhere/python")
run("/tmp/elsewhere/python", "-m", "venv", "--without-pip", "/tmp/linked")
found["linked"] = described("/tmp/linked")

run(PYTHON, "-m", "venv", "--without-pip", "--copies", "/tmp/copied")
found["copied"] = described("/tmp/copied")

run("/tmp/plain/bin/python", "-m", "venv", "--without-pip", "/tmp/nested")
found["nested"] = described("/tmp/nested")

if os.path.exists(UV):
    setup = (f"{ROOT}/bin/capsule-exec", "--setup-root", "/tmp/setup", "--")
    offline = {"UV_OFFLINE": "1"}
    run(*setup, "uv", "venv", "/tmp/by-uv", env=offline)
    found["by-uv"] = described("/tmp/by-uv")
    install(*setup, "uv", "pip")
    found["uv-extension"] = run("/tmp/setup/bin/python", "-c", IMPORT).strip()
    found["uv-run"] = json.loads(run(*setup, "uv", "run", "--no-project", "python", "-c", ASK, env=offline))

print(json.dumps(found))
