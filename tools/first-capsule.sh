#!/bin/sh
# Builds a first capsule, runs it, and says what to try next. `make capsule` calls it.
set -eu
cd "$(dirname "$0")/.."
libc=${1:-glibc}
case $libc in glibc) other=musl ;; *) other=glibc ;; esac
bundle=dist/node24-v1-linux-$(uname -m)-$libc.tar.gz

# One engine for all of it: where Docker can't be used, that is said once.
engine=$(.venv/bin/python -c '
import sys
from capsule_build.cli.guard import guarded
from capsule_build.engine import select_engine
def choose():
    with select_engine(None, say=lambda text: print(text, file=sys.stderr)) as engine:
        print(engine.name)
sys.exit(guarded("capsule-build", choose))')

# A Debian mirror drops a version when a newer one comes: years from now a first run should still work.
.venv/bin/capsule-build node24 --libc "$libc" --container-cli "$engine" --newer-pins

echo
echo "Every tool of it, in an image that holds one static shell and no libc:"
.venv/bin/capsule-build test "$bundle" --container-cli "$engine"

# Exit code 1 with a report says that not all works here, which is no reason to end: the capsule is built. Anything
# else is a defect.
echo
echo "Getting the sandbox for tasks ready"
status=0
report=$(.venv/bin/capsule doctor) || status=$?
case $status in
    0) ;;
    1)
        [ -n "$report" ] || exit 1
        printf '%s\n' "$report" "Not all works here yet: see above."
        ;;
    *) exit "$status" ;;
esac

# Each command has a line of its own, and fits into 80 columns.
cat <<EOT

Next:
- what is in the capsule
  .venv/bin/capsule-build inspect $bundle
- try it in your own image
  .venv/bin/capsule-build test $bundle IMAGE
- build one for the other kind of image
  make capsule LIBC=$other
- put it into a container, with a program that needs it
  docs/tutorial.md
- run a task in the sandbox
  .venv/bin/capsule run examples/hello.py Ada
- what a build would do
  .venv/bin/capsule-build plan node24
- what works on this machine
  .venv/bin/capsule-build doctor
EOT
