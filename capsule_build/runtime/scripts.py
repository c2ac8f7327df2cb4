"""The shell programs that are run in environments: POSIX sh, and only the commands that every busybox has.

Each is one round trip. They set their own PATH, since an image may have none, and take commands from a
busybox where they have no names of their own. What they print is `key<TAB>value` a line.
"""

from __future__ import annotations

from typing import Final

from .layout import CAPSULES, MANIFEST, SETUPS

NEEDED: Final = ("cat", "chmod", "ln", "ls", "mkdir", "mv", "rm", "sync")
"""Commands without which nothing can be installed where this process doesn't see the files itself."""

_USED: Final = (*NEEDED, "df", "head", "id", "readlink", "rmdir", "tail", "tar")

HEAD: Final = f"""
PATH=${{PATH:+$PATH:}}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
umask 022
for one in {" ".join(_USED)}; do
  command -v "$one" >/dev/null 2>&1 && continue
  command -v busybox >/dev/null 2>&1 && busybox "$one" --help >/dev/null 2>&1 &&
    eval "$one() {{ busybox $one \\"\\$@\\"; }}"
done
# Where the environment's own variables break its programs, what is used here runs without them.
ls -d / >/dev/null 2>&1 || unset LD_PRELOAD LD_LIBRARY_PATH
C={CAPSULES} S={SETUPS} M={MANIFEST}
say() {{ printf '%s\\t%s\\n' "$1" "$2"; }}
fail() {{ printf '%s\\n' "$1" >&2; exit 9; }}
"""
"""What scripts begin with: a PATH, commands from a busybox, names."""

_STATE: Final = """
for one in /tmp "$C" "$S"; do
  [ -e "$one" ] || [ -L "$one" ] || continue
  # What a loader says of LD_PRELOAD, beside the answer, isn't the answer.
  say folder "$one $(ls -ldn "$one" 2>/dev/null || ls -ldn "$one" 2>&1)"
done
# Asked behind the list: somebody else may just be making the folder.
[ -w "$C" ] && say capsules writable
if [ -d "$C" ] && [ ! -L "$C" ]; then
  for one in "$C"/* "$C"/.[!.]*; do
    if [ -e "$one" ] || [ -L "$one" ]; then say entry "${one##*/}"; fi
  done
  for root in "$C"/*; do
    for mark in "$C/.${root##*/}.sha256-"*; do
      if [ -f "$root/$M" ] && [ "$mark" -ef "$root/$M" ]; then
        say installed "${mark##*/}"
        say mode "${root##*/} $(ls -ldn "$root")"
      fi
    done
  done
fi
if [ -d "$S" ] && [ ! -L "$S" ]; then
  for one in "$S"/*; do [ -e "$one" ] && say setup "${one##*/}"; done
fi
"""

_WHO: Final = """
user=
if [ -r /proc/self/status ]; then
  while read -r key real effective rest; do
    case $key in Uid:) user=$effective ;; Gid:) group=$effective ;; esac
  done </proc/self/status
fi
[ -n "$user" ] || { user=$(id -u); group=$(id -g); }
"""

PROBE: Final = (
    HEAD
    + _WHO
    + """
# $1: a line that no file here has
say uid "$user"
say gid "$group"
for one in """
    + " ".join(_USED)
    + """; do command -v "$one" >/dev/null 2>&1 && say command "$one"; done
[ -d /tmp ] && say tmp there
[ -w /tmp ] && say tmp writable
[ -w / ] && say tmp creatable
if [ -r /proc/self/mounts ]; then
  while read -r device place kind options rest; do say mount "$place $options"; done </proc/self/mounts
fi
df -Pk /tmp 2>/dev/null | while read -r line; do say room "$line"; done
"""
    + _STATE
    + """
for one in /lib/ld-musl-*.so.1 /lib/*/libc.so.6 /lib64/libc.so.6 /lib/libc.so.6 /usr/lib64/libc.so.6; do
  [ -x "$one" ] || continue
  "$one" </dev/null 2>&1 | while read -r line; do say version "$one $line"; done
done
for one in /bin/sh /lib/ld-musl-*.so.1 /lib/ld-linux*.so.* /lib64/ld-linux*.so.* /lib/*/ld-linux*.so.*; do
  [ -r "$one" ] || continue
  printf '\\n%s%s\\n' "$1" "$one"
  head -c 4096 "$one"
done
for root in "$C"/*; do
  [ -f "$root/$M" ] || continue
  printf '\\n%s%s\\n' "$1" "$root/$M"
  cat "$root/$M"
done
exit 0
"""
)
"""What is there, in one round trip."""

_PARENT: Final = """
# The names are predictable, and /tmp is everybody's: what is there must be a folder of one's own or root's.
[ -d /tmp ] || mkdir -m 1777 /tmp || fail "/tmp is not there and can't be made"
own() {
  mkdir -m 755 "$1" 2>/dev/null
  [ ! -L "$1" ] && [ -d "$1" ] || fail "$1 is not a folder"
  line=$(ls -ldn "$1") || fail "$1 can't be looked at"
  case $line in ?????-??-*) ;; *) fail "$1 is writable by others: $line" ;; esac
  set -- "$1" $line
  [ "$4" = "$user" ] || [ "$4" = 0 ] || fail "$1 belongs to the user $4"
}
drop() {
  # $1: what; $2: a trash folder of one's own. Renaming takes it away in one step; the rest may be killed.
  [ -e "$1" ] || [ -L "$1" ] || return 0
  mkdir -m 700 "$2" 2>/dev/null
  if [ -d "$1" ] && [ ! -L "$1" ]; then
    # Moving a folder to another one changes its "..": that needs the right to write to it.
    chmod u+w "$1"
    mv "$1" "$2/" || return 1
    chmod -R u+w "$2"
  else
    mv "$1" "$2/" || return 1
  fi
  rm -rf "$2"
}
"""

PREPARE: Final = (
    HEAD
    + _PARENT
    + """
# $1: user id; $2: staging folder; $3: trash folder; then the entries to remove
user=$1 staging=$2 trash=$3
shift 3
own "$C"
for one; do drop "$C/$one" "$trash"; done
# An uninstaller removes an empty folder, perhaps just now.
mkdir -m 700 "$staging" 2>/dev/null || { own "$C"; mkdir -m 700 "$staging"; } ||
  fail "the staging folder can't be made"
"""
)
"""Makes what a bundle is put into, and removes what dead installers left."""

COMMIT: Final = (
    HEAD
    + _PARENT
    + """
# $1: user id; $2: staging folder; $3: trash folder; $4: name; $5: mark; $6: the old mark, or nothing
user=$1 staging=$2 trash=$3 name=$4 mark=$5 old=$6
own "$C"
cd "$C" || fail "$C can't be entered"
[ -f "$staging/$name/$M" ] || fail "what was put into $staging is not there: is it hidden by a mount?"
sync -f "$staging" 2>/dev/null || sync
ln "$staging/$name/$M" "$mark" || fail "the mark can't be made"
if [ -n "$old" ]; then
  # Where mv can exchange two names, there is no moment without one of the two.
  chmod u+w "$name"
  if mv --exchange -T "$staging/$name" "$name" 2>/dev/null; then
    rm -f "$old"
  else
    mkdir -m 700 "$trash" && mv "$name" "$trash/" && mv "$staging/$name" . || {
      rm -f "$mark"
      fail "the old capsule can't be swapped"
    }
    rm -f "$old"
    chmod -R u+w "$trash"
    rm -rf "$trash"
  fi
elif ! mv "$staging/$name" . 2>/dev/null; then
  rm -f "$mark"
  [ -e "$name" ] && exit 8
  fail "the finished tree can't be given its name"
fi
chmod a-w "$name"
sync -f "$C" 2>/dev/null
[ "$mark" -ef "$name/$M" ] || fail "another process has changed $C/$name"
chmod -R u+w "$staging"
rm -rf "$staging"
exit 0
"""
)
"""Gives a staged tree its name. Status 8: another one has it already."""

REMOVE: Final = (
    HEAD
    + _PARENT
    + """
# $1: trash folder; then the entries to remove, roots before their marks
trash=$1
shift
for one; do drop "$one" "$trash" || fail "$one can't be removed"; done
"""
)
"""Removes entries by their whole paths."""

RMDIR: Final = (
    HEAD
    + """
# $@: folders. What isn't empty, or a mount's own, stays.
for one; do rmdir "$one" 2>/dev/null; done
exit 0
"""
)
"""Removes folders that are empty."""

FINISH: Final = HEAD + 'chmod a-w "$1"\n'
"""Takes the write bits from a root whose installer was killed just before."""

PUT: Final = (
    HEAD
    + """
# $1: the file; $2: its mode
part=$1.part.$$
umask 077
cat >"$part" && chmod "$2" "$part" && mv -f "$part" "$1" || { rm -f "$part"; exit 1; }
"""
)
"""Writes standard input to a file, wholly or not at all."""

UNPACK: Final = HEAD + 'tar -xpf - -C "$1"\n'
"""Unpacks standard input into a folder."""

PACK: Final = HEAD + 'tar -cf - -C "$1" "$2"\n'
"""Packs a name in a folder to standard output."""

LOOK: Final = """
# $1: a setup root, or nothing; $2: a file in it; then commands, as names or absolute paths; an empty word;
# names of variables
root=$1 state=$2
shift 2
[ -x /usr/bin/env ] && echo env
if [ -n "${HOME-}" ] && [ -d "$HOME" ] && [ -w "$HOME" ]; then echo home; fi
[ -n "$root" ] && [ -r "$root/$state" ] && read -r text <"$root/$state" && printf 'state\\t%s\\n' "$text"
is_program() { [ -f "$1" ] && [ -x "$1" ]; }
line='
'
set -f
IFS=:
while [ -n "$1" ]; do
  case $1 in
    /*) is_program "$1" && printf 'found\\t%s\\t%s\\n' "$1" "$1" ;;
    *)
      for folder in ${PATH-}; do
        case $folder in
          /*) is_program "$folder/$1" && printf 'found\\t%s\\t%s\\n' "$1" "$folder/$1" ;;
        esac
      done
      [ -n "$root" ] && is_program "$root/bin/$1" && printf 'below\\t%s\\n' "$1"
      ;;
  esac
  shift
done
shift
for one; do
  eval "is=\\${$one+set} value=\\${$one-}"
  [ -n "$is" ] && printf 'variable\\t%s=%s\\n' "$one" "${value%%"$line"*}"
done
exit 0
"""
"""Looks around as the environment's own programs do: by its own PATH, and by nothing but the shell itself."""

_STATE_FILE: Final = """
write_state() {
  # $1: the file; $2: its text. Wholly or not at all.
  mkdir -p "${1%/*}" && printf '%s\\n' "$2" >"$1.$$" && mv -f "$1.$$" "$1" || fail "$1 can't be written"
}
"""

SETUP: Final = (
    HEAD
    + _PARENT
    + _WHO
    + _STATE_FILE
    + """
# $1: the setup root; $2: a file in it; $3: its text; then folders in it: to be emptied; an empty word; to be
# made
root=$1 state=$2 text=$3
shift 3
own "$S"
# An uninstaller removes an empty folder, perhaps just now.
mkdir -m 755 "$root" 2>/dev/null || own "$S"
own "$root"
[ -w "$root" ] || fail "the user $user can't write to $root"
write_state "$root/$state" "$text"
clear=yes
for one; do
  [ -n "$one" ] || { clear=; continue; }
  [ -z "$clear" ] || rm -rf "$root/$one"
  mkdir -p "$root/$one" || fail "$root/$one can't be made"
done
"""
)
"""Makes a setup root and folders in it, and writes down what is begun."""

TIDY: Final = (
    HEAD
    + _STATE_FILE
    + """
# $1: the setup root; $2: a file in it; $3: its text; then folders in it to be removed
root=$1 state=$2 text=$3
shift 3
for one; do rm -rf "$root/$one"; done
write_state "$root/$state" "$text"
"""
)
"""Removes what installing needed and a harness doesn't, and writes down that it is finished."""
