"""Container engines behind one small protocol."""

from .protocol import (
    LABEL,
    BuildError,
    ContainerError,
    ContainerSpec,
    ContainerTimeoutError,
    Engine,
    EngineInfo,
    ImageError,
    Outcome,
    container,
)
from .select import ENGINES, select_engine

__all__ = [
    "ENGINES",
    "LABEL",
    "BuildError",
    "ContainerError",
    "ContainerSpec",
    "ContainerTimeoutError",
    "Engine",
    "EngineInfo",
    "ImageError",
    "Outcome",
    "container",
    "select_engine",
]
