"""`capsule worker`: a process that stays, and runs tasks for a program, one after another or many at once.

`pool` is that process. It runs no task itself: each runs in a process of its own (`child`), which has no
other task at the time, so that what ends one ends no other. `client` is the other end, for Python.
"""
