"""A run of `capsule-build` in a test: what came of it, and what each refusal has to be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

NAME = "tiny-v1-linux-x86_64-glibc.tar.gz"


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


def assert_one_message(ran: Ran, code: int, message: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert ran.err.count("error:") == 1
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert "itself failed" not in ran.err
