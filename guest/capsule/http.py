"""HTTP by way of the host, to the hosts that the task was granted."""

import json as _json

from . import _host


class Response:
    """An answer."""

    def __init__(self, answer):
        self.status_code = answer["status"]
        self.headers = dict(answer["headers"])
        self.url = answer["url"]
        self.content = answer["body"]

    @property
    def text(self):
        """The body as text, in the encoding that it names, else UTF-8."""
        for name, value in self.headers.items():
            if name.lower() == "content-type" and "charset=" in value.lower():
                charset = value.lower().partition("charset=")[2].partition(";")[0].strip(" \"'")
                try:
                    return self.content.decode(charset, "replace")
                except LookupError:
                    break
        return self.content.decode("utf-8", "replace")

    def json(self):
        """The body, read as JSON."""
        return _json.loads(self.content)

    def ok(self):
        """Whether the status is one of success (200 to 299)."""
        return 200 <= self.status_code < 300

    def __repr__(self):
        return f"<Response [{self.status_code}]>"


def request(method, url, headers=None, body=None, json_data=None, timeout=None):
    """Make a request. The body is text, bytes or, as `json_data`, a value."""
    sent = dict(headers or {})
    if json_data is not None:
        body = _json.dumps(json_data)
        sent.setdefault("Content-Type", "application/json")
    if isinstance(body, str):
        body = body.encode()
    return Response(_host.http(method, url, sent.items(), body, timeout))


def get(url, headers=None):
    """GET."""
    return request("GET", url, headers)


def post(url, body=None, json_data=None, headers=None):
    """POST."""
    return request("POST", url, headers, body, json_data)


def put(url, body=None, json_data=None, headers=None):
    """PUT."""
    return request("PUT", url, headers, body, json_data)


def delete(url, headers=None):
    """DELETE."""
    return request("DELETE", url, headers)


def patch(url, body=None, json_data=None, headers=None):
    """PATCH."""
    return request("PATCH", url, headers, body, json_data)


def head(url, headers=None):
    """HEAD."""
    return request("HEAD", url, headers)
