"""Pieces of code that are run one after another, each in a new instance, with what the last one left.

`session` holds the state and the files; `python_run` is the task that each run is, inside of the sandbox.
"""
