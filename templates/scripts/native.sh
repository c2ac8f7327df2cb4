# native.sh ARCH ROOT OUT [NAME=TARGET...]: capsule-exec, seal-tree and exec wrappers into OUT/bin, the interpreter of some
# sealed scripts into OUT/libexec.
. /scripts/common.sh
arch=$1 root=$2 out=$3
shift 3
mkdir -p "$out/bin" "$out/libexec"
ZIG=/toolchain/zig.d/zig sh /native/build.sh "$arch" "$root" /sysroot/usr "$out" "$@"
licence "$out/share/licenses/musl-dev" /sysroot/usr/share/doc/musl-dev/copyright
licence "$out/share/licenses/native" /native/LICENSE
