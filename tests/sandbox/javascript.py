"""Files of JavaScript and TypeScript in a test."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tasks import Bench

HEAD = 'import { task } from "@capsule-run/sdk";\n'


def script(
    bench: Bench, body: str, *args: Any, options: str = "", head: str = "", **more: Any
) -> dict[str, Any]:
    """Run a task `main(...args)` with a body, in this process."""
    indented = "".join(f"  {line}\n" for line in dedent(body).strip().splitlines())
    text = f'{HEAD}{head}export const main = task({{ name: "main", {options} }}, async (...args) => {{\n{indented}}});\n'
    bench.write("file.mjs", text)
    return bench.run("file.mjs", *args, **more)
