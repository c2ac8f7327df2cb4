#!/bin/sh
# Runs two commands at once: the second one's output is shown as it comes, the first one's when it has ended.
# Ends as the first that failed did.
set -u
log=$(mktemp)
sh -c "$1" >"$log" 2>&1 &
first=$!
trap 'kill "$first" 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
sh -c "$2" &
second=$!
shown=
code=0
while kill -0 "$second" 2>/dev/null; do
    if [ -z "$shown" ] && ! kill -0 "$first" 2>/dev/null; then
        shown=yes
        printf '\n'
        cat "$log"
    fi
    sleep 1
done
wait "$second" || code=$?
wait "$first" || code=$?
[ -n "$shown" ] || cat "$log"
exit "$code"
