"""Hand-made bad bundles, each with the one rule that it breaks."""

from . import contents, headers, packing
from .making import CASES

__all__ = ["CASES", "contents", "headers", "packing"]
