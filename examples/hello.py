"""A task: `capsule run examples/hello.py Ada`. docs/tasks.md says what its limits mean."""

from capsule import task


@task(name="main", compute="LOW", ram="64MB", timeout="5s")
def main(name: str = "Capsule") -> str:
    """Greet somebody."""
    return f"Hello from {name}!"
