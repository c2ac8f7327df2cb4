"""Folders and hosts that a task was granted: they work, as far as they were granted."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .tasks import HEAD, Bench, Web, error_of

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "allowed_hosts=['127.0.0.1']"


def test_a_folder_to_read_is_read_and_nothing_else(bench: Bench) -> None:
    bench.write("data/a.txt", "a")
    bench.write("top.txt", "top")
    (bench.folder / "data" / "out").symlink_to("../top.txt")
    options = "allowed_files=['./data:ro']"
    read = bench.task(
        "import os\nreturn [open('./data/a.txt').read(), open('/data/a.txt').read()]", options=options
    )
    assert read["result"] == ["a", "a"]
    for body in ("open('data/b', 'w')", "open('data/../top.txt')", "open('data/out')"):
        assert error_of(bench.task(body, options=options))[0] == "permission_denied"
    assert error_of(bench.task("open('/etc/passwd')", options=options))[0] == "task_error"
    assert sorted(path.name for path in (bench.folder / "data").iterdir()) == ["a.txt", "out"]


def test_what_is_not_granted_is_not_there(bench: Bench) -> None:
    (bench.folder / "data").mkdir()
    body = """
import os
def kind(call, *words):
    try:
        return call(*words)
    except OSError as error:
        return type(error).__name__
return [os.getcwd(), os.path.exists('/'), kind(os.listdir, '/'), kind(open, '/etc/passwd'), kind(open, 'x', 'w')]
"""
    missing = "FileNotFoundError"
    for options in ("", "allowed_files=['./data']"):
        assert bench.task(body, options=options)["result"] == ["/", False, missing, missing, missing]


def test_a_folder_to_write_is_written(bench: Bench) -> None:
    (bench.folder / "a" / "b").mkdir(parents=True)
    body = """
import os, pathlib, shutil
os.makedirs('a/b/c/d')
pathlib.Path('a/b/c/d/x').write_text('x' * 100000)
os.rename('a/b/c/d/x', 'a/b/y')
shutil.rmtree('a/b/c')
os.symlink('y', 'a/b/link')
return [os.listdir('/a/b'), len(open('a/b/link').read()), os.getcwd()]
"""
    names, size, working = bench.task(body, options="allowed_files=['./a/b']")["result"]
    assert (sorted(names), size, working) == (["link", "y"], 100_000, "/")
    assert (bench.folder / "a" / "b" / "y").stat().st_size == 100_000


@pytest.mark.parametrize(("path", "says"), [("./nope", "no folder './nope'"), ("./file.py", "not a folder")])
def test_a_folder_that_cannot_be_given_is_told(bench: Bench, path: str, says: str) -> None:
    kind, message = error_of(bench.task("return 1", options=f"allowed_files=['{path}']"))
    assert kind == "config_error"
    assert message.startswith("file.py, allowed_files of the task 'main': ")
    assert says in message


def test_a_mount_is_given_to_the_entry_task_alone(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("mounted")
    bench.write(
        "file.py",
        f"""{HEAD}
@task
def inner():
    return open('/in/x').read()

@task(name='main')
def main():
    return [open('/in/x').read(), inner()["success"]]
""",
    )
    assert bench.run("file.py", mounts=[f"{other}::/in:ro"])["result"] == ["mounted", False]
    assert error_of(bench.task("open('/in/x', 'w')", mounts=[f"{other}::/in:ro"]))[0] == "permission_denied"


def test_a_mount_with_a_mistyped_mode_is_refused(bench: Bench) -> None:
    (bench.folder / "data").mkdir()
    bench.write("file.py", "def main(): open('/d:r/x', 'w')\n")
    assert "behind the colon stands ro or rw" in bench.refused("file.py", mounts=["data::/d:r"])
    assert error_of(bench.run("file.py", mounts=["data::/d:r:read-only"]))[0] == "permission_denied"
    assert not list((bench.folder / "data").iterdir())


def test_an_address_that_a_star_does_not_stand_for_says_so(bench: Bench) -> None:
    body = "from capsule import http\nhttp.get('http://127.0.0.1:9/')"
    kind, message = error_of(bench.task(body, options="allowed_hosts=['*']"))
    assert kind == "permission_denied"
    assert "the address 127.0.0.1 isn't public: '*' doesn't stand for it" in message


def test_a_listed_server_answers_and_its_request_is_in_the_envelope(bench: Bench, web: Web) -> None:
    body = f"from capsule import http\nr = http.get('{web.url}/x')\nreturn [r.status_code, r.ok(), r.json(), r.text]"
    envelope = bench.task(body, options=LOCAL)
    assert envelope["result"] == [200, True, {"hello": "world"}, '{"hello": "world"}']
    assert envelope["execution"]["host_requests"] == [{"method": "GET", "url": f"{web.url}/x", "status": 200}]


def test_all_methods_bodies_and_headers_go_through(bench: Bench, web: Web) -> None:
    body = f"""
from capsule import http
found = []
for method in ("get", "post", "put", "delete", "patch", "head"):
    more = dict(body="b\\u00fc") if method in ("post", "put", "patch") else {{}}
    r = getattr(http, method)("{web.url}/m", headers={{"X-A": "1"}}, **more)
    found.append([r.headers["X-Method"], r.text])
r = http.post("{web.url}/m", json_data={{"a": 1}})
found.append([http.get("{web.url}/404").ok(), r.json()])
return found
"""
    plain = '{"hello": "world"}'
    assert bench.task(body, options=LOCAL)["result"] == [
        ["GET", plain],
        ["POST", "bü"],
        ["PUT", "bü"],
        ["DELETE", plain],
        ["PATCH", "bü"],
        ["HEAD", ""],
        [False, {"a": 1}],
    ]


def test_urllib_goes_through_the_host(bench: Bench, web: Web) -> None:
    body = f"""
import json, urllib.error
from urllib.request import Request, urlopen
with urlopen("{web.url}/x", timeout=5) as response:
    first = [response.status, json.loads(response.read().decode("utf-8")), response.headers["X-Method"]]
posted = urlopen(Request("{web.url}/x", data=b"abc", headers={{"Content-Type": "text/plain"}})).read().decode()
try: urlopen("{web.url}/404")
except urllib.error.HTTPError as error: missing = [error.code, error.read().decode()]
try: urlopen("http://not.listed/")
except PermissionError as error: denied = str(error)
return [first, posted, missing, denied]
"""
    first, posted, missing, denied = bench.task(body, options=LOCAL)["result"]
    assert first == [200, {"hello": "world"}, "GET"]
    assert posted == "abc"
    assert missing == [404, "not here"]
    assert denied.startswith("the host 'not.listed' is not among")


def test_a_task_without_hosts_makes_no_request(bench: Bench, web: Web) -> None:
    kind, message = error_of(bench.task(f"from capsule import http\nhttp.get('{web.url}')"))
    assert (kind, "no allowed_hosts" in message) == ("permission_denied", True)


def test_a_redirect_within_the_list_is_followed_and_each_hop_recorded(bench: Bench, web: Web) -> None:
    body = f"from capsule import http\nr = http.post('{web.url}/to?url=/x', body='b')\nreturn [r.url, r.headers['X-Method']]"
    envelope = bench.task(body, options=LOCAL)
    assert envelope["result"] == [f"{web.url}/x", "GET"]
    assert [entry["status"] for entry in envelope["execution"]["host_requests"]] == [302, 200]


def test_credentials_do_not_follow_a_redirect_to_another_host(bench: Bench, web: Web) -> None:
    target = f"http://localhost:{web.port}/elsewhere"
    body = f"from capsule import http\nhttp.get('{web.url}/to?url={target}', headers={{'Authorization': 's', 'X-A': '1'}})"
    assert bench.task(body, options="allowed_hosts=['127.0.0.1', 'localhost']")["success"]
    headers = next(headers for _, path, headers, _ in web.asked if path == "/elsewhere")
    assert "Authorization" not in headers
    assert headers["X-A"] == "1"


def test_a_name_of_this_machine_needs_its_address_named(bench: Bench, web: Web) -> None:
    body = f"from capsule import http\nreturn http.get('http://localhost:{web.port}/').status_code"
    assert error_of(bench.task(body, options="allowed_hosts=['*']"))[0] == "permission_denied"
    assert error_of(bench.task(body, options="allowed_hosts=['*.localhost']"))[0] == "permission_denied"
    assert bench.task(body, options="allowed_hosts=['localhost']")["result"] == 200


def test_an_answer_that_does_not_end_is_ended_with_the_task(bench: Bench, web: Web) -> None:
    begin = time.monotonic()
    envelope = bench.task(
        f"from capsule import http\nhttp.get('{web.url}/slow')", options=f"timeout='700ms', {LOCAL}"
    )
    assert error_of(envelope)[0] == "timeout"
    assert time.monotonic() - begin < 2


def test_a_request_may_have_a_time_of_its_own(bench: Bench, web: Web) -> None:
    body = f"from urllib.request import urlopen\ntry: urlopen('{web.url}/slow', timeout=0.5).read()\nexcept OSError as e: return str(e)"
    assert "too long" in bench.task(body, options=LOCAL)["result"]


def test_an_answer_that_is_too_large_is_refused(bench: Bench, web: Web) -> None:
    kind, message = error_of(
        bench.task(f"from capsule import http\nhttp.get('{web.url}/big?mb=70')", options=LOCAL)
    )
    assert (kind, "more than 67108864 bytes" in message) == ("task_error", True)


def test_a_server_that_is_not_there_is_an_error_of_the_connection(bench: Bench) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        kind, message = error_of(
            bench.task(f"from capsule import http\nhttp.get('http://127.0.0.1:{port}/')", options=LOCAL)
        )
    assert kind == "task_error"
    assert "refused" in message


def test_requests_are_counted(bench: Bench, web: Web) -> None:
    body = f"from capsule import http\nfor i in range(1100): http.head('{web.url}/n')"
    envelope = bench.task(body, options=LOCAL + ", compute='HIGH'")
    assert error_of(envelope)[0] == "permission_denied"
    assert len(envelope["execution"]["host_requests"]) == 1000
    assert len(json.dumps(envelope)) < 200_000


def test_a_header_that_drips_in_is_ended_with_the_requests_time(bench: Bench, web: Web) -> None:
    body = f"from urllib.request import urlopen\ntry: urlopen('{web.url}/drip', timeout=0.5)\nexcept OSError as e: return str(e)"
    begin = time.monotonic()
    assert "too long" in bench.task(body, options=LOCAL)["result"]
    assert time.monotonic() - begin < 2


def test_tls_is_verified(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    secure = Web(context)
    body = f"from capsule import http\nreturn http.get('https://HOST:{secure.port}/').json()"
    options = "allowed_hosts=['localhost', '127.0.0.1']"
    kind, message = error_of(bench.task(body.replace("HOST", "localhost"), options=options))
    assert (kind, "CERTIFICATE_VERIFY_FAILED" in message) == ("task_error", True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert bench.task(body.replace("HOST", "localhost"), options=options)["result"] == {"hello": "world"}
    kind, message = error_of(bench.task(body.replace("HOST", "127.0.0.1"), options=options))
    assert (kind, "CERTIFICATE_VERIFY_FAILED" in message) == ("task_error", True)


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a certificate for a name, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    return folder / "certificate.pem", folder / "key.pem"
