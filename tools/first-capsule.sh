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

# Tasks have a Python of their own, made and compiled once on a machine.
.venv/bin/capsule doctor >/dev/null || echo "Not all works here yet; '.venv/bin/capsule doctor' says what."

cat <<EOT

Next:
  what is in it               .venv/bin/capsule-build inspect $bundle
  try it in your own image    .venv/bin/capsule-build test $bundle IMAGE
  for the other kind of image make capsule LIBC=$other
  a task in a sandbox         .venv/bin/capsule run FILE.py
  what a build would do       .venv/bin/capsule-build plan node24
  what works on this machine  .venv/bin/capsule-build doctor
EOT
