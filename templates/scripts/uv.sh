# uv.sh WHEEL OUT: uv and uvx into OUT/bin.
. /scripts/common.sh
wheel=$1 out=$2
mkdir -p "$out/bin"
unpack "$wheel" /tmp/uv
for name in uv uvx; do
    cp /tmp/uv/uv-*.data/scripts/$name "$out/bin/$name"
    chmod 0755 "$out/bin/$name"
done
licence "$out/share/licenses/uv" /tmp/uv/uv-*.dist-info/licenses/*
rm -rf /tmp/uv
