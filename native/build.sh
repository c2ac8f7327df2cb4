#!/bin/sh
# Compiles the native tools for a capsule, as static programs:
#
#     build.sh ARCH CAPSULE_ROOT SYSROOT OUT [NAME=TARGET...]
#
#     ARCH          x86_64 or aarch64; or host, for tests: with CC and CFLAGS, for this machine
#     CAPSULE_ROOT  where the capsule is installed; compiled in
#     SYSROOT       the usr folder of Debian's musl-dev for ARCH: headers, crt files, libc.a (host: -)
#     OUT           a folder with bin and libexec in it
#     NAME=TARGET   OUT/bin/NAME becomes an exec wrapper of the program TARGET
#
# It makes OUT/bin/capsule-exec, OUT/bin/seal-tree and OUT/libexec/shebang-exec. All folders are absolute paths. ZIG
# names the compiler (default: zig); its caches go where ZIG_GLOBAL_CACHE_DIR and ZIG_LOCAL_CACHE_DIR say. The same
# inputs give the same bytes wherever the folders are. Runs no other program than the compiler.
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

flags="-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Werror"
lib="$sysroot/lib/$arch-linux-musl"

# Left to itself zig builds musl first, which takes most of a minute: -none, -nostdlib and -nostdinc keep it
# from that. Non-PIE: a static-PIE relocates itself at each start, for nothing.
compile() {
    name=$1
    shift
    if [ "$arch" = host ]; then
        # shellcheck disable=SC2086 # flags are words
        ${CC:-cc} $flags ${CFLAGS:--O2 -g} "-DCAPSULE_ROOT=\"$root\"" -o "$out/$name" "$@"
        return
    fi
    # shellcheck disable=SC2086
    "${ZIG:-zig}" cc -target "$arch-linux-none" -nostdlib -nostdinc -isystem "$sysroot/include/$arch-linux-musl" \
        $flags -O2 -g0 -ffunction-sections -fdata-sections \
        -static -s -Wl,--gc-sections -Wl,--build-id=none "-DCAPSULE_ROOT=\"$root\"" \
        -o "$out/$name" "$lib/crt1.o" "$@" "$lib/libc.a"
}

compile bin/capsule-exec capsule-exec.c preload.c elf_file.c input.c text.c
compile libexec/shebang-exec shebang-exec.c split.c text.c
compile bin/seal-tree seal-tree.c tree.c seal_script.c seal_elf.c wishes.c script.c split.c elf_file.c elf_space.c elf_edit.c \
    loader.c child.c patchelf.c replace.c report.c input.c text.c
for wrapper in "$@"; do
    compile "bin/${wrapper%%=*}" "-DCAPSULE_WRAPPER_TARGET=\"${wrapper#*=}\"" exec-wrapper.c preload.c elf_file.c \
        input.c text.c
done
