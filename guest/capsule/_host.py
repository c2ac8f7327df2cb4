"""What the host can be asked. It answers by what this task was granted, whatever it is asked."""

import base64
import json

import wit_world

_ERRORS = {
    "permission": PermissionError,
    "timeout": TimeoutError,
    "connection": ConnectionError,
    "value": ValueError,
}


def ask(request):
    """Ask the host and return its answer.

    Raises:
        PermissionError: The task wasn't granted it.
        OSError, ValueError, RuntimeError: It failed.
    """
    answer = json.loads(wit_world.host(json.dumps(request)))
    if "error" in answer:
        raise _ERRORS.get(answer["kind"], RuntimeError)(answer["error"])
    return answer["answer"]


def http(method, url, headers, body, timeout=None):
    """Make a request and return its answer: status, reason, url, headers, body."""
    answer = ask(
        {
            "op": "http",
            "method": method,
            "url": url,
            "headers": [[str(name), str(value)] for name, value in headers],
            "body": None if body is None else base64.b64encode(body).decode(),
            "timeout": timeout,
        }
    )
    answer["body"] = base64.b64decode(answer["body"])
    return answer


def content(found, path):
    """Return the bytes of a data file that the host found."""
    if found["kind"] != "file":
        raise FileNotFoundError(path)
    return base64.b64decode(found["data"])


def data(path):
    """Return the bytes of a data file, by the path that its package has here."""
    return content(ask({"op": "data", "package": None, "path": path}) or {"kind": "none"}, path)
