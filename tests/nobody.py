"""Work of a user who has no rights but everybody's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534
"""The user and the group of this number own nothing."""


def as_nobody(work: Callable[[], str]) -> str:
    """Do something without root's rights, and return what it returns.

    Where this is root, a process does it that has become another user for good, and for which folders of
    root's alone (pytest's own, say) are out of reach. Who isn't root does it here, having no such rights.

    Raises:
        AssertionError: It failed in that process; the message has its error.
    """
    if os.geteuid() != 0:
        return work()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            # In this order: who is no longer root can't leave groups.
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = work()
            status = 0
        except BaseException as error:
            said = repr(error)
        finally:
            os.write(writing, said.encode())
            # Nothing of the tests' own must be done twice.
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read().decode()
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise AssertionError(said or f"The process ended with {code}.")
    return said
