"""Makes an unpacked CPython a part of its capsule. It is run by that CPython, in the build.

    finish_python.py ROOT SERIES ZONEINFO

ROOT is the install root, SERIES as in 3.12, ZONEINFO a folder of time zones. Bytecode comes last.
"""

from __future__ import annotations

import ast
import compileall
import os
import py_compile
import re
import shutil
import sys
import zipfile
from pathlib import Path

from build_traces import Cleaner

_EXTERNALLY_MANAGED = """[externally-managed]
Error=This Python belongs to a runtime capsule, whose files never change.
 Make a venv ('python -m venv FOLDER') and install with its pip, or run
 the install command by 'capsule-exec --setup-root FOLDER'.
"""
_PIP = """#!{python}
import sys
from pip._internal.cli.main import main

sys.exit(main())
"""
_TEST_FOLDERS = ("test", "tests", "idle_test")


def main() -> None:
    """Do all of it."""
    root, series, zoneinfo = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    prefix = root / "runtime/python"
    program = prefix / f"bin/python{series}"
    library = prefix / f"lib/python{series}"
    remove_unneeded(prefix, library)
    unpack_pip(library)
    old = clean_build_variables(prefix, library)
    clean_pkg_config(prefix, Cleaner(old, str(prefix)))
    write_commands(root, prefix, program, library)
    fall_back_to_own_certificates(library)
    shutil.copytree(zoneinfo, prefix / "share/zoneinfo", ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    (library / "EXTERNALLY-MANAGED").write_text(_EXTERNALLY_MANAGED)
    refuse_traces(prefix, old)
    compile_all(library)


def remove_unneeded(prefix: Path, library: Path) -> None:
    """Remove CPython's own tests, static libraries, manuals, and old bytecode."""
    for folder in (library, *(path for path in library.iterdir() if path.is_dir())):
        for name in _TEST_FOLDERS:
            shutil.rmtree(folder / name, ignore_errors=True)
    shutil.rmtree(prefix / "share/man", ignore_errors=True)
    for cache in sorted(prefix.rglob("__pycache__")):
        shutil.rmtree(cache)
    for archive in prefix.rglob("*.a"):
        archive.unlink()
    # Terminfo has entries that differ by case alone, which a bundle can't hold: the older spelling goes.
    for folder, folders, files in os.walk(prefix):
        spelled: dict[str, str] = {}
        for name in sorted((*folders, *files), reverse=True):
            if spelled.setdefault(name.casefold(), name) != name:
                twin = Path(folder, name)
                shutil.rmtree(twin) if twin.is_dir() and not twin.is_symlink() else twin.unlink()
                if name in folders:
                    folders.remove(name)


def unpack_pip(library: Path) -> None:
    """Put pip where it belongs, out of the wheel that CPython carries for venvs, if there is none."""
    packages = library / "site-packages"
    if (packages / "pip").is_dir():
        return
    wheels = sorted((library / "ensurepip/_bundled").glob("pip-*.whl"))
    if not wheels:
        sys.exit("this CPython has no pip, and no wheel of it in ensurepip")
    packages.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(packages)


def clean_build_variables(prefix: Path, library: Path) -> str:
    """Rewrite `sysconfig`'s data; returns the prefix that CPython was built for."""
    old = ""
    for path in sorted(library.glob("_sysconfigdata_*.py")):
        text = path.read_text(encoding="utf-8")
        variables = ast.literal_eval(text.partition("build_time_vars =")[2].strip())
        old = str(variables["prefix"])
        cleaner = Cleaner(old, str(prefix))
        cleaned = {
            name: cleaner.variable(name, value) if isinstance(value, str) else value
            for name, value in sorted(variables.items())
        }
        cleaned.update(_places(prefix, library))
        # Where an image has no time zones, these are found.
        cleaned["TZPATH"] = f"{cleaned.get('TZPATH', '')}:{prefix}/share/zoneinfo".lstrip(":")
        body = "".join(f"    {name!r}: {value!r},\n" for name, value in cleaned.items())
        path.write_text(
            "# system configuration generated and used by the sysconfig module\n"
            f"build_time_vars = {{\n{body}}}\n",
            encoding="utf-8",
        )
    if not old:
        sys.exit(f"{library} has no _sysconfigdata module: is this CPython complete?")
    return old


def _places(prefix: Path, library: Path) -> dict[str, str]:
    """The variables that say where CPython's own parts lie."""
    include = f"{prefix}/include/{library.name}"
    places = {
        "prefix": prefix,
        "exec_prefix": prefix,
        "BINDIR": f"{prefix}/bin",
        "LIBDIR": f"{prefix}/lib",
        "LIBPC": f"{prefix}/lib/pkgconfig",
        "LIBDEST": library,
        "BINLIBDEST": library,
        "DESTSHARED": library / "lib-dynload",
        "INCLUDEDIR": f"{prefix}/include",
        "CONFINCLUDEDIR": f"{prefix}/include",
        "INCLUDEPY": include,
        "CONFINCLUDEPY": include,
        "MANDIR": f"{prefix}/share/man",
        "datarootdir": f"{prefix}/share",
    }
    configuration = next(iter(sorted(library.glob("config-*"))), None)
    if configuration is not None:
        places["LIBPL"] = configuration
    return {name: str(place) for name, place in places.items()}


def clean_pkg_config(prefix: Path, cleaner: Cleaner) -> None:
    """Rewrite the pkg-config files."""
    for path in sorted(prefix.glob("lib/pkgconfig/*.pc")):
        if path.is_symlink():
            continue
        lines = []
        for line in path.read_text(encoding="utf-8").splitlines():
            key, mark, value = re.match(r"([\w.]*)([:=]?)(.*)", line).groups()
            lines.append(
                f"{key}{mark}{' ' if mark == ':' else ''}{cleaner.value(value.strip())}" if mark else line
            )
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_commands(root: Path, prefix: Path, program: Path, library: Path) -> None:
    """Give bin/ the commands that a Python has, each naming this one by its absolute path.

    pip is a tool of the capsule, so it is started by the capsule's exec wrapper, as `bin/python` is.
    """
    folder = prefix / "bin"
    for configuration in library.glob("config-*"):
        script = configuration / "python-config.py"
        if script.exists():
            # The shell version needs a shell and seven programs of the image; this one says the same.
            (folder / f"{program.name}-config").write_bytes(script.read_bytes())
        # What is left there describes the build of CPython itself.
        shutil.rmtree(configuration)
        configuration.mkdir()
        (configuration / "README").write_text("The files of CPython's own build are not part of a capsule.\n")
    for name in ("pip", "pip3", f"pip{program.name.removeprefix('python')}"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(_PIP.format(python=root / "bin/python"))
    for path in sorted(folder.iterdir()):
        if not path.is_symlink():
            if not path.name.startswith("pip"):
                _name_program(path, program)
            path.chmod(0o755)
    for name, target in (
        ("python", program.name),
        ("python3", program.name),
        ("python3-config", f"{program.name}-config"),
    ):
        (folder / name).unlink(missing_ok=True)
        if (folder / target).exists():
            (folder / name).symlink_to(target)


def _name_program(path: Path, program: Path) -> None:
    """Rewrite a script's first line, if it is one that starts Python."""
    content = path.read_bytes()
    if not content.startswith(b"#!"):
        return
    # Relocatable scripts start /bin/sh, which starts the Python beside them.
    trampoline = re.match(rb"#!/bin/sh\n'''exec' [^\n]*python[^\n]*\n' '''\n", content)
    if trampoline is None and b"python" not in content.partition(b"\n")[0]:
        return
    rest = content[trampoline.end() :] if trampoline else content.partition(b"\n")[2]
    path.write_bytes(b"#!" + os.fsencode(program) + b"\n" + rest)


def fall_back_to_own_certificates(library: Path) -> None:
    """Let `ssl` fall back to other places than OpenSSL's, and to the capsule's own certificates."""
    shutil.copyfile(Path(__file__).with_name("capsule_certificates.py"), library / "_capsule_certificates.py")
    with (library / "ssl.py").open("a", encoding="utf-8") as stream:
        stream.write(
            "\n\nimport _capsule_certificates; _capsule_certificates.install(sys.modules[__name__])\n"
        )


def refuse_traces(prefix: Path, old: str) -> None:
    """End the build if a text file still names a folder of the prefix that CPython was built for."""
    if old in {"/", "/usr", "/usr/local"}:
        return
    trace = re.compile(rb"(?<![\w.-])" + re.escape(os.fsencode(old)) + rb"/(?:bin|include|lib|share)\b")
    for path in sorted(prefix.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if b"\0" not in content[:1024] and trace.search(content):
                sys.exit(f"{path} names the prefix that this CPython was built for, {old}")


def compile_all(library: Path) -> None:
    """Write the bytecode: nothing keeps root from writing it later, and its bytes would then be anybody's.

    Unchecked hashes make it hold whatever times the files have. One process compiles all, in one order.
    """
    done = compileall.compile_dir(
        library,
        quiet=1,
        force=True,
        workers=1,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not done:
        sys.exit("not all of the standard library compiles")


if __name__ == "__main__":
    main()
