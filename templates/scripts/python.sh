# python.sh ROOT ARCH LIBC SERIES ARCHIVE TEXTS LINKED OUT: CPython into OUT/runtime/python, its commands into OUT/bin.
#
# TEXTS is a tar with the licence texts of what upstream linked into it, or empty; LINKED names what that is.
. /scripts/common.sh
. /scripts/relink.sh
root=$1 arch=$2 libc=$3 series=$4 archive=$5 given_texts=$6 linked=$7 out=$8
to=$root/runtime/python
program=$to/bin/python$series
mkdir -p "$root/runtime"
unpack "$archive" /tmp/python
mv "$(root_of /tmp/python "bin/python$series")" "$to"

case "$libc $(patchelf --print-interpreter "$program")" in
    "musl "*/ld-musl-*) ;;
    "musl "* | "glibc "*/ld-musl-*) echo "this CPython is not built for $libc" >&2; exit 1 ;;
esac

# Nothing of it may be looked for where the image's libraries are, or where a copy of the program lies.
find "$to/bin" "$to/lib" -type f \( -perm -0100 -o -name '*.so' -o -name '*.so.*' \) | sort | while read -r file; do
    is_elf "$file" || continue
    relink_below "$libc" "$root" "$arch" "$to/lib" "$file"
done

# The rest is done by this CPython itself. Its hash seed and the order of compiling decide about the bytecode's bytes.
mkdir -p /tmp/tzdata
unpack "$(echo /inputs/tzdata-*.whl)" /tmp/tzdata
env -i PATH="$PATH" PYTHONHASHSEED=0 "$program" -s -B -X utf8 \
    /scripts/finish_python.py "$root" "$series" /tmp/tzdata/tzdata/zoneinfo

texts=$root/share/licenses/cpython
licence "$texts" "$to/lib/python$series/LICENSE.txt"
# Where texts come along, they are those of all that is linked in.
if [ -d "$to/licenses" ]; then
    linked=
    cp "$to"/licenses/* "$texts/"
    rm -rf "$to/licenses"
elif [ -n "$given_texts" ]; then
    linked=
    unpack "$given_texts" /tmp/texts
    cp /tmp/texts/licenses/* "$texts/"
fi
for name in $linked $(cd "$to/lib" && find . -maxdepth 1 -type f -name '*.so*' ! -name 'libpython*' | sort); do
    name=${name#./}
    [ -n "$(find "$texts" -name "LICENSE.$name*")" ] || echo "$name"
done >/tmp/missing
if [ -s /tmp/missing ]; then
    {
        echo "This CPython contains, or upstream's builds contain, the following. Their licence texts did not come"
        echo "with the archive that this bundle was made of:"
        echo
        cat /tmp/missing
    } >"$texts/MISSING.txt"
fi
licence "$root/share/licenses/tzdata" /tmp/tzdata/tzdata-*.dist-info/licenses/LICENSE*

mkdir -p "$root/bin" "$out"
ln -s ../runtime/python/bin/pip "$root/bin/pip"
ln -s ../runtime/python/bin/pip "$root/bin/pip3"
mv "$root/runtime" "$root/bin" "$root/share" "$out/"
rm -rf "$root" /tmp/tzdata /tmp/texts /tmp/python /tmp/missing
