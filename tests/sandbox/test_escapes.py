"""Attempts of Python tasks to get more than was granted (see `attempts`): each fails, and for its reason."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from .attempts import DENIED, FAILED, SECRET, Attempt, assert_held, furnish
from .tasks import HEAD

if TYPE_CHECKING:
    from .tasks import Bench, Web

NOT_THERE = r"FileNotFoundError|PermissionError|Errno 76|Errno 44|Errno 63"

ATTEMPTS = (
    # Files.
    Attempt("an absolute path", "return open('/etc/passwd').read()", FAILED, "FileNotFoundError"),
    Attempt("the folder above", "return open('data/../secret.txt').read()", DENIED, "not permitted"),
    Attempt("far above", "return open('/data/../../../../../../etc/passwd').read()", DENIED, "not permitted"),
    Attempt("the working folder", "return open('secret.txt').read()", FAILED, "FileNotFoundError"),
    Attempt("listing the root", "import os\nreturn os.listdir('/')", FAILED, NOT_THERE),
    Attempt("writing what is read-only", "open('input/new', 'w')", DENIED, "not permitted"),
    Attempt("changing what is read-only", "open('input/in.txt', 'a').write('x')", DENIED, "not permitted"),
    Attempt("removing what is read-only", "import os\nos.remove('input/in.txt')", DENIED, "not permitted"),
    Attempt("renaming out of what is read-only", "import os\nos.rename('input/in.txt', 'data/x')", DENIED, "."),
    Attempt("truncating what is read-only", "import os\nos.truncate('input/in.txt', 0)", DENIED, "."),
    Attempt("times of what is read-only", "import os\nos.utime('input/in.txt', (0, 0))", DENIED, "."),
    Attempt("making a folder in what is read-only", "import os\nos.mkdir('input/x')", DENIED, "."),
    Attempt("a symlink to a file outside", "return open('data/out.txt').read()", DENIED, "not permitted"),
    Attempt("a symlink to a folder outside", "import os\nreturn os.listdir('data/up')", DENIED, "not permitted"),
    Attempt("writing through a symlink", "open('data/up/new', 'w')", DENIED, "not permitted"),
    Attempt(
        "making a symlink to outside",
        "import os\nos.symlink('/etc/passwd', 'data/mine')\nreturn open('data/mine').read()",
        DENIED,
        "not permitted",
    ),
    Attempt(
        "making a symlink that climbs",
        "import os\nos.symlink('../secret.txt', 'data/mine')\nreturn open('data/mine').read()",
        DENIED,
        "not permitted",
    ),
    Attempt("a hard link from what is read-only", "import os\nos.link('input/in.txt', 'data/l')", DENIED, "."),
    Attempt("renaming out of a folder", "import os\nos.rename('data/d.txt', 'data/../moved')", DENIED, "."),
    Attempt("/proc", "return open('/proc/self/environ').read()", FAILED, "FileNotFoundError"),
    Attempt("a descriptor's path", "return open('/proc/self/fd/3').read()", FAILED, "FileNotFoundError"),
    Attempt("devices", "return open('/dev/mem', 'rb').read(1)", FAILED, "FileNotFoundError"),
    Attempt(
        "other descriptors",
        """
        import os
        found = []
        for number in range(3, 100):
            try: found.append(os.read(number, 100).decode('latin-1'))
            except OSError: pass
        return found
        """,
        None,
        [],
    ),
    Attempt("standard input", "import sys\nreturn sys.stdin.read()", None, ""),
    Attempt("changing to another folder", "import os\nos.chdir('..')\nreturn open('secret.txt').read()", FAILED, "."),
    Attempt("leaving the root", "import os\nos.chroot('/')", FAILED, "chroot"),
    Attempt(
        "a race of symlinks",
        """
        import os
        for turn in range(300):
            for target in ('../secret.txt', 'd.txt'):
                try: os.unlink('data/race')
                except OSError: pass
                os.symlink(target, 'data/race')
                try:
                    if 'secret' in open('data/race').read(): return 'escaped'
                except OSError: pass
        return 'held'
        """,
        None,
        "held",
    ),
    # Variables, processes, memory.
    Attempt("variables", "import os\nreturn sorted(os.environ)", None, ["CAPSULE_T_GIVEN"]),
    Attempt("a variable by name", "import os\nreturn os.getenv('CAPSULE_T_SECRET')", None, None),
    Attempt("a process", "import subprocess\nsubprocess.run(['/bin/sh'])", FAILED, "processes"),
    Attempt("a shell", "import os\nos.system('id')", FAILED, "system"),
    Attempt("exec", "import os\nos.execv('/bin/sh', ['sh'])", FAILED, "."),
    Attempt("a signal to the host", "import os\nos.kill(1, 9)", FAILED, "kill"),
    Attempt("C by ctypes", "import ctypes\nctypes.CDLL('libc.so.6')", FAILED, "."),
    Attempt("memory without end", "x = [bytearray(1 << 20) for i in range(10**6)]", "memory_exceeded", "."),
    Attempt("recursion without end", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", "fuel_exhausted", "100000000"),
    Attempt("compute without end", "while True: pass", "fuel_exhausted", "100000000"),
    # Hosts.
    Attempt("a socket", "import socket\nsocket.socket().connect(('127.0.0.1', PORT))", DENIED, "."),
    Attempt("a socket that listens", "import socket\nsocket.socket().bind(('127.0.0.1', 0))", DENIED, "."),
    Attempt("a name by DNS", "import socket\nreturn socket.gethostbyname('localhost')", FAILED, "gaierror|OSError|."),
    Attempt("http.client", "import http.client\nhttp.client.HTTPConnection('127.0.0.1', PORT).request('GET', '/')", FAILED, "."),
    Attempt("a host that isn't listed", "return get('http://example.org/')", DENIED, "not among the task's"),
    Attempt("an address", "return get('http://127.0.0.1:PORT/')", DENIED, "not among the task's"),
    Attempt("another address", "return get('http://127.0.0.2:PORT/')", DENIED, "not among"),
    Attempt("the metadata of a cloud", "return get('http://169.254.169.254/')", DENIED, "not among"),
    Attempt("a suffix that looks right", "return get('http://good.test.evil.test/')", DENIED, "not among"),
    Attempt("a user's name", "return get('http://good.test@127.0.0.1:PORT/')", FAILED, "user's name"),
    Attempt("a backslash", "return get('http://good.test\\\\@127.0.0.1/')", FAILED, "no URL"),
    Attempt("a file by URL", "return get('file:///etc/passwd')", FAILED, "scheme"),
    Attempt("a file by urllib", "import urllib.request as u\nreturn u.urlopen('file:///etc/passwd').read()", FAILED, "."),
    *(
        Attempt(f"loopback as {host} with {options}", f"return get('http://{host}:PORT/')", DENIED, "isn't public|not among", options)
        for host, options in (
            ("localhost", "allowed_hosts=['*']"),
            ("127.1", "allowed_hosts=['*']"),
            ("2130706433", "allowed_hosts=['*']"),
            ("0x7f000001", "allowed_hosts=['*']"),
            ("0177.0.0.1", "allowed_hosts=['*']"),
            ("0", "allowed_hosts=['*']"),
            ("[::1]", "allowed_hosts=['*']"),
            ("[::ffff:127.0.0.1]", "allowed_hosts=['*']"),
            ("127.1", "allowed_hosts=['127.1']"),
        )
    ),
    Attempt("a header that names the host", "return get('http://127.0.0.1:PORT/', {'Host': 'x'}).status_code", None, 200, "allowed_hosts=['127.0.0.1']", ("/",)),
    Attempt("a line in a header", "get('http://127.0.0.1:PORT/', {'A': 'b\\r\\nX: y'})", FAILED, "ValueError", "allowed_hosts=['127.0.0.1']"),
    Attempt("a line in a URL", "get('http://127.0.0.1:PORT/\\r\\nX: y')", FAILED, "no URL", "allowed_hosts=['127.0.0.1']"),
    Attempt("a redirect to what isn't listed", "get('http://127.0.0.1:PORT/to?url=http://localhost:PORT/')", DENIED, "'localhost' is not among", "allowed_hosts=['127.0.0.1']"),
    Attempt("a redirect to a file", "get('http://127.0.0.1:PORT/to?url=file:///etc/passwd')", FAILED, "scheme", "allowed_hosts=['127.0.0.1']"),
    Attempt("redirects without end", "get('http://127.0.0.1:PORT/to-itself')", FAILED, "more than 10 redirects", "allowed_hosts=['127.0.0.1']"),
    # The host function, asked directly.
    Attempt("an operation that doesn't exist", "return ask(op='shell', command='id')", FAILED, "no such operation"),
    Attempt("no operation", "return ask()", FAILED, "no such request"),
    Attempt("what is no object", "import wit_world\nreturn wit_world.host('[1]')", None, re.compile('no such request')),
    Attempt("what is no JSON", "import wit_world\nreturn wit_world.host('}{')", None, re.compile('"kind": "value"')),
    Attempt("nesting in a request", "import wit_world\nreturn wit_world.host('[' * 100000)", None, re.compile('"kind"')),
    Attempt("grants in a request for a task", "return ask(op='task', name='helper', args=[], kwargs={}, allowed_files=['/'], compute='HIGH', policy={'folders': [['/', True]]})['result']", None, []),
    Attempt("a task that the file doesn't have", "return ask(op='task', name='other', args=[], kwargs={})", FAILED, "no task 'other'"),
    Attempt("a task made at run time", "import capsule\nf = capsule.task(name='made', allowed_files=['/'])(lambda: 1)\nreturn f()", FAILED, "no task 'made'"),
    Attempt("a task with changed options", "import capsule\ncapsule.task(name='helper', allowed_hosts=['*'])(helper)\nreturn ask(op='task', name='helper', args=[], kwargs={})['result']", None, []),
    Attempt("arguments of another kind", "return ask(op='task', name=['helper'], args={}, kwargs=[])", FAILED, "by its name"),
    Attempt("hosts in a request", "return ask(op='http', method='GET', url='http://127.0.0.1:PORT/', headers=[], body=None, timeout=None, hosts=['*'], allowed_hosts=['*'])", DENIED, "not among"),
    Attempt("a method that is none", "return ask(op='http', method='GET / HTTP/1.1\\r\\nX: y\\r\\n\\r\\n', url='http://good.test/', headers=[], body=None, timeout=None)", FAILED, "method"),
    Attempt("a module by a path", "return ask(op='module', name='../secret')", None, None),
    Attempt("a module that wasn't named", "return ask(op='module', name='private')", None, None),
    Attempt("a module that was renamed to", "import importlib\nreturn importlib.import_module('priv' + 'ate').KEY", FAILED, "No module named 'private'"),
    Attempt("data by a path", "return ask(op='data', package='pkg', path='../secret.txt')", None, None),
    Attempt("data by an absolute path", "return ask(op='data', package=None, path='/etc/passwd')", None, None),
    Attempt("data of no package", "return ask(op='data', package='.', path='secret.txt')", None, None),
    Attempt("data of the working folder", "return ask(op='data', package=None, path='secret.txt')", None, None),
    Attempt("the guest's own host function", "import capsule._host as h\nh._ERRORS.clear()\nreturn h.http('GET', 'http://127.0.0.1:PORT/', [], None)", FAILED, "not among"),
    Attempt("a forged answer", "import capsule_guest\ncapsule_guest._as_error = lambda *a: {'type': 'made up', 'message': 5}\nraise ValueError", "wasm_error", "isn't one"),
    Attempt("a forged envelope", "print('{\"success\": true, \"result\": 5}')\nraise ValueError('real')", FAILED, "real"),
)  # fmt: skip


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 60


@pytest.fixture
def ground(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    furnish(bench, monkeypatch)
    bench.write("private.py", f"KEY = '{SECRET}'")
    bench.write("pkg/__init__.py", "")
    return bench


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_an_attempt_to_get_out_fails_for_its_reason(ground: Bench, web: Web, attempt: Attempt) -> None:
    body = dedent(attempt.body).replace("PORT", str(web.port)).strip().replace("\n", "\n    ")
    options = attempt.options or "allowed_hosts=['good.test']"
    source = f"""{HEAD}
import pkg
from capsule.http import get
from capsule import _host

def ask(**request):
    return _host.ask(request)

@task
def helper():
    import os
    found = []
    for name in ("/data/d.txt", "/secret.txt", "/etc/passwd"):
        try: found.append(open(name).read())
        except OSError: pass
    return found + list(os.environ)

@task(name="main", compute="LOW", ram="64MB", timeout="20s", env_variables=["CAPSULE_T_GIVEN"],
      allowed_files=["./data", "./input:ro"], {options})
def main():
    {body}
"""
    (ground.folder / "file.py").write_text(source)
    assert_held(attempt, ground, "file.py", web)


def test_a_header_that_names_the_host_is_not_sent(ground: Bench, web: Web) -> None:
    body = f"from capsule.http import get\nget('{web.url}/headers', {{'Host': 'x', 'Connection': 'y', 'A': 'b'}})"
    envelope = ground.task(body, options="allowed_hosts=['127.0.0.1']")
    assert envelope["success"]
    headers = next(headers for _, path, headers, _ in web.asked if path == "/headers")
    assert headers["Host"] == f"127.0.0.1:{web.port}"
    assert headers["A"] == "b"


def test_one_task_sees_nothing_of_another(bench: Bench) -> None:
    body = "import builtins, sys\nfound = getattr(builtins, 'left', None)\nbuiltins.left = 1\nsys.modules['left'] = 1\nreturn found"
    assert [bench.task(body)["result"] for _ in range(3)] == [None, None, None]


def test_a_nested_task_has_not_its_callers_grants(ground: Bench) -> None:
    ground.write(
        "file.py",
        HEAD
        + """
@task
def inner():
    import os
    try: return open('/data/d.txt').read()
    except OSError as error: return [type(error).__name__, len(os.environ)]

@task(name="main", allowed_files=["data"], env_variables=["CAPSULE_T_GIVEN"])
def main():
    return [open('/data/d.txt').read(), inner()["result"]]
""",
    )
    assert ground.run("file.py")["result"] == ["d", ["FileNotFoundError", 0]]


def test_a_folder_that_becomes_a_symlink_after_the_check_changes_nothing(ground: Bench) -> None:
    from capsule_build.sandbox.grants import close_folders, open_folders
    from capsule_build.sandbox.options import Folder

    opened = open_folders([Folder("data", True)], (), working=str(ground.folder))
    try:
        (ground.folder / "data").rename(ground.folder / "was")
        (ground.folder / "data").symlink_to("/etc")
        assert Path(f"/proc/self/fd/{opened[0].handle}").readlink() == ground.folder / "was"
    finally:
        close_folders(opened)
