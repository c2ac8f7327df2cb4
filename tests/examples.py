"""How many examples Hypothesis tries where a test wants another number than the profile's."""

from __future__ import annotations

from hypothesis import settings

_USUAL = settings.get_profile("any machine").max_examples


def examples(count: int) -> int:
    """Return `count`, or the share of it that the profile takes of the usual number."""
    return max(1, count * settings().max_examples // _USUAL)
