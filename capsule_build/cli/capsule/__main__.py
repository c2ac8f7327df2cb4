#!python
"""The program `capsule`, as it is installed: an entry point's script may import `re`, which takes 3 ms."""

from capsule_build.cli.capsule.entry import main

main()
