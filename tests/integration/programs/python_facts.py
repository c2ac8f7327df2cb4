"""Prints facts about the Python that runs it, as JSON: python_facts.py INSTALL_ROOT NAME..."""

import importlib
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

ROOT = sys.argv[1]


def itself():
    return {
        "version": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "base_executable": sys._base_executable,
        "exe": str(Path("/proc/self/exe").readlink()),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "environment": {name: os.environ[name] for name in ("PWD", "SHLVL", "_") if name in os.environ},
    }


def extensions():
    folder = next(path for path in sys.path if path.endswith("lib-dynload"))
    names = sorted({name.split(".")[0] for name in os.listdir(folder)} | set(sys.builtin_module_names))
    failed = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = repr(error)
    return {"imported": [name for name in names if name not in failed], "failed": failed}


def threads():
    done = []

    def descend(depth):
        return depth if depth == 0 else descend(depth - 1)

    def work():
        descend(500)
        done.append(sum(json.loads(json.dumps(list(range(1000))))))

    started = [threading.Thread(target=work) for _ in range(50)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return done == [499500] * 50


def time_zone():
    import datetime
    import zoneinfo

    summer = datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    return {"offset": str(summer.utcoffset()), "known": len(zoneinfo.available_timezones())}


def text():
    import locale

    try:
        locale.setlocale(locale.LC_ALL, "")
        chosen = True
    except locale.Error:
        chosen = False
    return {
        "file_system": sys.getfilesystemencoding(),
        "output": sys.stdout.encoding,
        "preferred": locale.getpreferredencoding(),
        "round": os.fsdecode(os.fsencode("ärger")),
        "chosen": chosen,
    }


def codecs():
    from encodings.aliases import aliases

    wrong = []
    sample = {
        "shift_jis": "日本",
        "gb18030": "汉字",
        "koi8_r": "мир",
        "big5": "漢",
        "euc_kr": "한",
        "cp437": "é",
    }
    for name in sorted(set(aliases.values()) - {"mbcs", "oem"}):
        codec = importlib.import_module("encodings." + name).getregentry()
        if codec._is_text_encoding and name != "undefined":
            word = sample.get(name, "abc")
            if word.encode(name).decode(name) != word:
                wrong.append(name)
    return wrong


def names():
    import pwd

    return {
        "localhost": sorted({item[4][0] for item in socket.getaddrinfo("localhost", 80, socket.AF_INET)}),
        "hosts": socket.gethostbyname("capsule.test") if os.path.exists("/etc/hosts-of-test") else None,
        "root": pwd.getpwuid(0).pw_name if os.path.exists("/etc/passwd") else None,
    }


def tags():
    from pip._internal.utils.compatibility_tags import get_supported

    return [tag.platform for tag in get_supported()[:4]]


def build_variables():
    # The user's own folder is no trace: it is asked of the environment.
    values = {name: value for name, value in sysconfig.get_config_vars().items() if name != "userbase"}
    old = re.compile(
        r"/root/|/home/|pyenv|/tmp/(?!agentcompass-capsules/)|(?<![\w.])/(?:build|install|tools)/|(?<=-[IL])/install/"
    )
    return {
        "traces": {
            name: value for name, value in values.items() if isinstance(value, str) and old.search(value)
        },
        "compilers": [values["CC"], values["CXX"], values["AR"], values["LDSHARED"].split()[0]],
        "include": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    }


def configuration_script():
    script = os.path.join(sys.base_prefix, "bin", "python3-config")
    done = subprocess.run([script, "--includes", "--prefix"], check=False, capture_output=True, text=True)
    return {"code": done.returncode, "words": done.stdout.split(), "error": done.stderr}


def libraries():
    with open("/proc/self/maps") as maps:
        mapped = {line.split(maxsplit=5)[5].strip() for line in maps if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in mapped if path.startswith("/"))


def bytecode():
    """Files of the standard library without bytecode of the kind that is never checked."""
    library = os.path.dirname(os.__file__)
    missing = []
    for path in Path(library).rglob("*.py"):
        cached = Path(importlib.util.cache_from_source(str(path)))
        if not cached.is_file() or cached.read_bytes()[4:8] != b"\1\0\0\0":
            missing.append(str(path))
    return missing


FACTS = {
    "self": itself,
    "extensions": extensions,
    "threads": threads,
    "time_zone": time_zone,
    "text": text,
    "codecs": codecs,
    "names": names,
    "tags": tags,
    "build_variables": build_variables,
    "configuration_script": configuration_script,
    "bytecode": bytecode,
    "libraries": libraries,
}

print(json.dumps({name: FACTS[name]() for name in sys.argv[2:]}))
