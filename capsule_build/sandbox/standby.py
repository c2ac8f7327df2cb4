"""An instance that waits for the next request, made while there is none.

It has run nothing of any task: it is as new as one that is made when the request comes. It has the limits,
the variables and the file of the last request; for a request that differs in one of them, it is ended and
another one made. Tasks with folders get none: a folder is opened, and checked, when its request is there.
"""

from __future__ import annotations

from .instance import Instance, Setup

TYPE_CHECKING = False

if TYPE_CHECKING:
    from .machine import Machine


class Standby:
    """One instance, or none."""

    def __init__(self) -> None:
        self._last: tuple[Machine, Setup] | None = None
        self._instance: Instance | None = None

    def take(self, machine: Machine, setup: Setup) -> Instance:
        """Return an instance for a request: the one that waits, if it was made for such a one."""
        last, instance = self._last, self._instance
        self._last, self._instance = (machine, setup), None
        if instance is not None:
            if last is not None and last[0] is machine and _same(last[1], setup):
                instance.setup = setup
                return instance
            instance.dismiss()
        return Instance(machine, setup)

    def renew(self) -> None:
        """Have one ready for a request like the last, if there is none yet."""
        if self._last is None or self._instance is not None:
            return
        machine, setup = self._last
        if setup.folders:
            return
        self._instance = Instance(
            machine,
            Setup(
                setup.fuel,
                setup.memory,
                None,
                (),
                setup.environment,
                _ignore,
                _refuse,
                preparation=setup.preparation,
            ),
        )
        self._instance.begin()


def _same(one: Setup, other: Setup) -> bool:
    return (
        not other.folders
        and one.preparation == other.preparation
        and (one.fuel, one.memory) == (other.fuel, other.memory)
        and one.environment == other.environment
    )


def _ignore(_number: int, _data: bytes) -> None:
    """Hear nothing: it prints nothing before it has its request."""


def _refuse(_request: bytes, _instance: Instance) -> bytes:
    return b'{"error": "nothing runs yet", "kind": "value"}'
