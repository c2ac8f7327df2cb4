#!/bin/sh
# Compiles the native tools for a capsule, as static programs:
#
#     build.sh ARCH CAPSULE_ROOT SYSROOT OUT [NAME=TARGET...]
#
#     ARCH          x86_64 or aarch64
#     CAPSULE_ROOT  where the capsule is installed; compiled in
#     SYSROOT       the usr folder of Debian's musl-dev for ARCH: headers, crt files, libc.a
#     OUT           a folder that is there; gets capsule-exec, seal-tree and shebang-exec
#     NAME=TARGET   OUT/NAME becomes an exec wrapper of the program TARGET
#
# All folders are absolute paths. ZIG names the compiler (default: zig). Its caches go where ZIG_GLOBAL_CACHE_DIR and ZIG_LOCAL_CACHE_DIR
# say. The same inputs give the same bytes wherever the folders are. Runs no other program than the
# compiler, so that a shell without tools can run it.
set -eu

if [ $# -lt 4 ]; then
    echo "usage: build.sh ARCH CAPSULE_ROOT SYSROOT OUT [NAME=TARGET...]" >&2
    exit 2
fi
arch=$1 root=$2 sysroot=$3 out=$4
shift 4
case $0 in
*/*) cd "${0%/*}" ;;
esac

lib="$sysroot/lib/$arch-linux-musl"

# Left to itself zig builds musl first, which takes most of a minute: -none, -nostdlib and -nostdinc keep it
# from that. Non-PIE: a static-PIE relocates itself at each start, for nothing.
compile() {
    name=$1
    shift
    "${ZIG:-zig}" cc -target "$arch-linux-none" -nostdlib -nostdinc -isystem "$sysroot/include/$arch-linux-musl" \
        -std=gnu11 -D_GNU_SOURCE -O2 -g0 -Wall -Wextra -Wshadow -Werror -ffunction-sections -fdata-sections \
        -static -s -Wl,--gc-sections -Wl,--build-id=none "-DCAPSULE_ROOT=\"$root\"" \
        -o "$out/$name" "$lib/crt1.o" "$@" "$lib/libc.a"
}

compile capsule-exec capsule-exec.c text.c
compile shebang-exec shebang-exec.c split.c text.c
compile seal-tree seal-tree.c tree.c seal_script.c seal_elf.c wishes.c script.c split.c elf_file.c elf_space.c elf_edit.c \
    loader.c child.c patchelf.c replace.c report.c input.c text.c
for wrapper in "$@"; do
    compile "${wrapper%%=*}" "-DCAPSULE_WRAPPER_TARGET=\"${wrapper#*=}\"" exec-wrapper.c text.c
done
