"""Tasks in JavaScript and TypeScript.

A file and the modules that it imports become one text (`bundling`, by esbuild), which is run by a guest that
is QuickJS (`guest`, `making`). All else is as for Python's tasks.
"""
