"""Pieces of code that are run one after another, each in a new instance, with what the last one left.

`session` has the runs in order, `files` the folder that they work in, `call` one of them from its start to
its end. `python` is how that language keeps its variables: in the sandbox, a run is a task of the guest's own
`capsule_session`.
"""
