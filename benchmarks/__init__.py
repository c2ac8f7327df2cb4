"""What the project promises in numbers, measured side by side with what a user would do instead.

Each module with a function `measure(bench)` is one benchmark, named after the module; `python -m benchmarks`
runs them. A figure is a ratio of medians of runs that alternate, so that what else the machine does falls on
both sides.
"""
