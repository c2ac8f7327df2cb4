"""`NamedTuple`, for what is imported on the way to a task.

A warm `capsule run` has some 25 ms in all. Importing `typing` takes 2 of them, and each class that is made by
its `NamedTuple` another 0.3, for the code that it generates. `Record` is `NamedTuple` for type checkers, and
is made from the annotations alone.
"""

from __future__ import annotations

# As `typing` has it.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:

    class Record(tuple):
        """A tuple whose items have the names, and the defaults, that the class gives them."""

        __slots__ = ()

        def __init_subclass__(cls) -> None:
            cls._fields = tuple(cls.__annotations__)
            cls._defaults = {name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__}
            for index, name in enumerate(cls._fields):
                setattr(cls, name, property(lambda self, index=index: self[index]))

        def __new__(cls, *values, **named):  # noqa: D102 (the class says it)
            rest = cls._fields[len(values) :]
            if len(values) > len(cls._fields) or not named.keys() <= set(rest):
                raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}, each once")
            try:
                values += tuple(named[name] if name in named else cls._defaults[name] for name in rest)
            except KeyError as error:
                raise TypeError(f"{cls.__name__} needs {error}") from None
            return tuple.__new__(cls, values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._asdict().items())})"


__all__ = ["Record"]
