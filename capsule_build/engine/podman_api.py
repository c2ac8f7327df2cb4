"""Podman's REST API, one call at a time, with its errors turned into the project's own.

The `podman` package's convenience calls keep a build's whole log and a whole archive in memory, and report a
failed upload as a mere `False`. So its API client is used.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import requests
import urllib3
from podman import PodmanClient
from podman.errors import APIError, PodmanError

from .protocol import ContainerError, EngineLostError, ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CALL_SECONDS: Final = 600.0


class GoneError(ContainerError):
    """What should be removed, or was looked for, isn't there."""


class PodmanApi:
    """The API at an address.

    Raises:
        PodmanError: The address is of no kind that the package knows.
        ValueError: It is no address.
    """

    def __init__(self, address: str) -> None:
        self._client = PodmanClient(base_url=address)

    def close(self) -> None:
        """End the connections."""
        self._client.close()  # type: ignore[no-untyped-call]  # the package leaves it so

    def introduce(self, timeout: float) -> dict[str, Any]:
        """Return what the service says about itself.

        Raises:
            PodmanError, requests.RequestException: It doesn't answer, or answers with an error.
            ValueError: What answers doesn't speak JSON.
        """
        response = self._client.api.get("/info", timeout=timeout)
        response.raise_for_status()
        said: dict[str, Any] = response.json()
        return said

    def wait(self, container: str, timeout: float) -> int | None:
        """Wait until a container ends and return its exit status; None: it didn't in that many seconds."""
        what = "Podman can't wait for the container"
        try:
            response = self._client.api.post(f"/containers/{container}/wait", timeout=timeout)
        except APIError as error:
            if _timed_out(error):
                return None
            raise _lost(what, error) from error
        with _translated(what, ContainerError):
            response.raise_for_status()
        return int(response.text)

    def call(
        self,
        what: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        missing: type[ContainerError | ImageError] = ContainerError,
    ) -> Any:
        """Call the API and return its answer once it has been read.

        Args:
            what: What couldn't be done, as the start of a sentence.
            method: The HTTP method.
            path: The path below `/libpod`.
            params: The query.
            data: The body: text, or an iterator that is sent as it comes.
            headers: Further headers.
            missing: The error for a thing that isn't there.
        """
        with _translated(what, ContainerError, missing=missing):
            response = self._send(
                method, path, params=params, data=data, headers=headers, timeout=CALL_SECONDS
            )
            response.raise_for_status()
        return response

    @contextlib.contextmanager
    def streamed(
        self,
        what: str,
        method: str,
        path: str,
        *,
        refused: type[ContainerError | ImageError] = ContainerError,
        timeout: Any = CALL_SECONDS,
        **arguments: Any,
    ) -> Iterator[Any]:
        """Call the API for an answer that is read as it comes; the connection is closed behind the block."""
        with _translated(what, refused):
            response = self._send(method, path, stream=True, timeout=timeout, **arguments)
            try:
                response.raise_for_status()
                yield response
            finally:
                response.close()

    def _send(self, method: str, path: str, **arguments: Any) -> Any:
        # Only POST and PUT take a body.
        if arguments.get("data") is None:
            arguments.pop("data", None)
        return getattr(self._client.api, method.lower())(path, **arguments)


def joined(frames: bytes) -> bytes:
    """Join the frames of an output: 8 bytes of head, of which the last 4 are the length, then the bytes."""
    found, at = bytearray(), 0
    while at + 8 <= len(frames):
        length = int.from_bytes(frames[at + 4 : at + 8], "big")
        found += frames[at + 8 : at + 8 + length]
        at += 8 + length
    return bytes(found)


def cause(error: BaseException) -> str:
    """Return what an error of the client is about: what the service said, or why it couldn't be asked."""
    if isinstance(error, APIError) and error.response is not None:
        return str(error.explanation or error)
    root: BaseException = error
    while root.__cause__ is not None or root.__context__ is not None:
        root = root.__cause__ or root.__context__ or root
    return str(root) or str(error)


def _timed_out(error: BaseException) -> bool:
    here: BaseException | None = error
    while here is not None:
        if isinstance(here, requests.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
            return True
        here = here.__cause__ or here.__context__
    return False


def _lost(what: str, error: BaseException) -> EngineLostError:
    return EngineLostError(
        f"{what}: its service stopped answering ({cause(error)}).", hint="See whether 'podman info' works."
    )


@contextlib.contextmanager
def _translated(
    what: str,
    refused: type[ContainerError | ImageError],
    *,
    missing: type[ContainerError | ImageError] | None = None,
) -> Iterator[None]:
    """Turn the client's errors into the project's own."""
    try:
        yield
    except APIError as error:
        if error.response is None:
            raise _lost(what, error) from error
        kind = (
            missing
            if missing is not None and error.response.status_code == requests.codes.not_found
            else refused
        )
        raise kind(f"{what}: {cause(error)}") from error
    except (PodmanError, requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _lost(what, error) from error
