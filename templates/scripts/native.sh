# native.sh ARCH ROOT OUT: capsule-exec and seal-tree into OUT/bin, the interpreter of some sealed scripts into OUT/libexec.
. /scripts/common.sh
mkdir -p "$3/bin" "$3/libexec" "$3/share/licenses/musl-dev"
ZIG=/toolchain/zig.d/zig sh /native/build.sh "$1" "$2" /sysroot/usr "$3"
licence "$3/share/licenses/musl-dev" /sysroot/usr/share/doc/musl-dev/copyright
licence "$3/share/licenses/native" /native/LICENSE
