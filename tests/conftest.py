"""What all tests share: Hypothesis's profiles, what a Ctrl-C does, and what is no garbage."""

from __future__ import annotations

import gc
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# A deadline for each example would test what else the machine does; pytest's own limit ends what hangs.
settings.register_profile("any machine", deadline=None)
# make check asks for this one; make test tries all examples.
settings.register_profile("quick", settings.get_profile("any machine"), max_examples=20)
settings.load_profile("any machine")

# A shell starts what runs in its background with SIGINT ignored, and so would be all that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave out of every search for garbage what stays to the end: modules, and thousands of tests."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
