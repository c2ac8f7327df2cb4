"""Steps over the network: each has an end, and says which service failed and whether another try makes sense.

sigstore's clients of Fulcio and Rekor wait for ever. Here each call runs beside the caller, who waits for a
time and then goes on without it; the sockets get the same limit, so that what was left behind ends too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter

from ..runtime.errors import CapsuleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from requests import PreparedRequest, Response, Session

T = TypeVar("T")

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class ServiceError(CapsuleError):
    """A service that signing needs doesn't answer, or answers wrongly: not what was signed is at fault."""

    def __init__(self, message: str, *, hint: str = "Nothing was written. Try again later.") -> None:
        super().__init__(message, hint=hint)


def within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """Return what `call` returns, or raise what it raises.

    Args:
        seconds: How long it may take, altogether.
        what: The step in the words of the message, as `Rekor at http://...`.
        call: The step. One that takes longer is left to itself in a thread that doesn't hold the process.

    Raises:
        ServiceError: It took longer.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def step() -> None:
        try:
            results.append(call())
        except BaseException as error:  # handed over to the caller, whatever it is
            errors.append(error)

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    thread.join(min(seconds, threading.TIMEOUT_MAX))
    if errors:
        raise errors[0]
    if not results:
        raise ServiceError(f"{what} didn't answer within {seconds:g} s.")
    return results[0]


class _Limited(HTTPAdapter):
    """Gives each request a time limit for connecting and for every read."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        """Send a request; the caller's own limit counts where it has one."""
        if not args and options.get("timeout") is None:
            options["timeout"] = self._seconds
        return super().send(request, *args, **options)


def limit(session: Session, url: str, seconds: float) -> None:
    """Give all requests of a session a time limit, and keep proxies away from loopback.

    Args:
        session: The session.
        url: The service that it talks to.
        seconds: The limit for connecting, and for each read.
    """
    for scheme in ("https://", "http://"):
        session.mount(scheme, _Limited(seconds))
    if urlsplit(url).hostname in LOOPBACK:
        session.trust_env = False


def require_safe(url: str, what: str) -> None:
    """Refuse a service that a secret would be sent to in clear.

    Raises:
        UsageError: It is neither https nor on this machine, or no URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError(f"{what} is at {url!a}, which is no URL.") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise UsageError(
            f"{what} is at {url}, where an identity token would go in clear.",
            hint="Give it an https URL in the trust configuration. http is for this machine alone.",
        )
