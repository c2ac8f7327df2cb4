"""The command `capsule`: a module a command, or for a few that belong together.

`entry` is what starts, and it imports next to nothing: `run` and `exec` are read by hand in `arguments` and
done in `execute`. All else, and the help of these two, is Typer's, in `app`.
"""
