"""What all tests share: how Hypothesis looks for examples, and what a Ctrl-C does."""

from __future__ import annotations

import signal

from hypothesis import settings

# A deadline for each example would test what else the machine does; pytest's own limit ends what hangs.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# A shell starts what runs in its background with SIGINT ignored, and so would be all that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
