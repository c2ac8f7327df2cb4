"""What all tests share: how Hypothesis looks for examples."""

from __future__ import annotations

from hypothesis import settings

# A deadline for each example would test what else the machine does; pytest's own limit ends what hangs.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
