"""`urllib` by way of the host, which alone can reach a network, and decides where to."""

import email.message
import io
import urllib.error
import urllib.request
import urllib.response

from capsule import _host


def _open(_handler, request):
    body = request.data
    if body is not None and not isinstance(body, bytes | bytearray):
        body = body.read() if hasattr(body, "read") else b"".join(body)
    headers = list({**request.unredirected_hdrs, **request.headers}.items())
    try:
        answer = _host.http(request.get_method(), request.full_url, headers, body, _seconds(request.timeout))
    except PermissionError:
        raise
    except OSError as error:
        raise urllib.error.URLError(error) from error
    message = email.message.Message()
    for name, value in answer["headers"]:
        message[name] = value
    response = urllib.response.addinfourl(
        io.BytesIO(answer["body"]), message, answer["url"], answer["status"]
    )
    response.msg = response.reason = answer["reason"]
    return response


def _seconds(timeout) -> float | None:
    return float(timeout) if isinstance(timeout, int | float) else None


def install() -> None:
    """Let the handler of http carry both schemes to the host."""
    handler = urllib.request.HTTPHandler
    handler.http_open = _open
    handler.https_open = _open
    handler.https_request = handler.http_request
