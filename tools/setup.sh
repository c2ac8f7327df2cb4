#!/bin/sh
# Sets up what is missing for working on the project: a virtual environment in .venv, with the project in it.
#
#   tools/setup.sh            what builds need, and tasks in the sandbox
#   tools/setup.sh --dev      the linters and the unit tests, too
#   tools/setup.sh --tests    what all tests need, too: compilers, a fuzzer, tools for ELF files
#
# On Debian, as root, missing packages are installed after saying so. Elsewhere it says what to install.
set -eu
cd "$(dirname "$0")/.."

# need COMMAND PACKAGE...: remember packages of commands that aren't there.
missing=
need() {
    command -v "$1" >/dev/null 2>&1 && return
    shift
    missing="$missing $*"
}

# ensurepip is what Debian leaves out of python3 without python3-venv.
python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3 python3-venv"
need gpgv gpgv
if [ "${1:-}" = --tests ]; then
    need gcc gcc libc6-dev
    need g++ g++
    need musl-gcc musl-tools
    # The fuzzers' and sanitizers' runtime is a package of its own.
    if ! command -v clang >/dev/null 2>&1 || ! [ -e "$(clang --print-file-name=libclang_rt.fuzzer-$(uname -m).a)" ]; then
        missing="$missing clang libclang-rt-dev"
    fi
    need objcopy binutils
    need make make
    need git git
    need xz xz-utils
    need setcap libcap2-bin
    need patchelf patchelf
    need file file
    need unshare util-linux
fi
if [ -n "$missing" ]; then
    if [ -f /etc/debian_version ] && [ "$(id -u)" = 0 ]; then
        echo "Installing Debian packages:$missing"
        # An index that is a few minutes old would do, but a fresh machine has none.
        apt-get update -qq
        # shellcheck disable=SC2086 # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "Missing:$missing (Debian's names). Install them, or run this as root on Debian." >&2
        exit 1
    fi
fi

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or newer is needed; this is $(python3 --version)." >&2
    exit 1
}
# What a checkout makes itself, a wheel has ready: the sandbox's Python. All of dev's packages hold these, too.
case "${1:-}" in
    '') extra=guest stamps=.venv/.set-up ;;
    *) extra=dev stamps='.venv/.set-up .venv/.set-up-dev' ;;
esac
for stamp in $stamps; do
    if [ ! -f "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
        # Where only the second stamp is missing, the environment is there, and lacks what is for developers.
        case "$stamp" in
            *-dev) echo "Adding linters and test tools to .venv" ;;
            *) echo "Setting up .venv: one to two minutes, most of them for downloads" ;;
        esac
        [ -x .venv/bin/python ] || python3 -m venv .venv
        # Pip warns of each index that lacks a package. Where it fails, all that it said is shown.
        log=.venv/set-up.log
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extra]" >"$log" 2>&1 || {
            cat "$log" >&2
            exit 1
        }
        # As pip does it for what isn't editable: 'capsule run' takes less time than compiling its modules.
        .venv/bin/python -m compileall -q capsule_build capsule
        # shellcheck disable=SC2086 # a list of files
        touch $stamps
        break
    fi
done
