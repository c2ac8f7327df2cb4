#!/bin/sh
# Builds a first capsule, runs it, and says what to try next. `make capsule` calls it.
set -eu
cd "$(dirname "$0")/.."
libc=${1:-glibc}
case $libc in glibc) other=musl ;; *) other=glibc ;; esac
bundle=dist/node24-v1-linux-$(uname -m)-$libc.tar.gz

# A Debian mirror drops a version when a newer one comes: years from now a first run should still work.
.venv/bin/capsule-build node24 --libc "$libc" --newer-pins

echo
echo "Every tool of it, in an image that holds one static shell and no libc:"
.venv/bin/capsule-build test "$bundle"

# Tasks have a Python of their own, made and compiled once on a machine. Exit code 1 with a report says that not
# all works here, which is no reason to end: the capsule is built. Anything else is a defect.
echo
echo "Getting the sandbox for tasks ready (about 20 s the first time)"
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

cat <<EOT

Next:
  what is in it               .venv/bin/capsule-build inspect $bundle
  try it in your own image    .venv/bin/capsule-build test $bundle IMAGE
  for the other kind of image make capsule LIBC=$other
  a task in a sandbox         .venv/bin/capsule run FILE.py
  what a build would do       .venv/bin/capsule-build plan node24
  what works on this machine  .venv/bin/capsule-build doctor
EOT
