# unpack-deb.sh PACKAGE FOLDER: the files of a Debian package (deb(5): an ar archive with a data.tar in it).
. /scripts/common.sh
package=$1
folder=$2
work=$(mktemp -d)
mkdir -p "$folder"
(cd "$work" && ar x "$package")
case $(echo "$work"/data.tar*) in
    *.xz) xz -dc "$work"/data.tar.xz | tar -xf - -C "$folder" ;;
    *.gz) gunzip -c "$work"/data.tar.gz | tar -xf - -C "$folder" ;;
    *.tar) tar -xf "$work"/data.tar -C "$folder" ;;
    *) echo "$package: an unknown compression" >&2; exit 1 ;;
esac
rm -rf "$work"
