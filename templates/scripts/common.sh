# What the scripts of the build share. They run in busybox's shell, as root, in a container without a network.
set -eu
export PATH=/bin:/toolchain LC_ALL=C
umask 022

# unpack ARCHIVE FOLDER: a wheel or another zip, or a tar with any compression that busybox knows.
unpack() {
    mkdir -p "$2"
    case "$1" in
        *.whl | *.zip) unzip -q -o "$1" -d "$2" ;;
        *.tar) tar -xf "$1" -C "$2" ;;
        *.tar.gz) gunzip -c "$1" | tar -xf - -C "$2" ;;
        *.tar.xz) xz -dc "$1" | tar -xf - -C "$2" ;;
        *) echo "$1: not an archive that a build can unpack" >&2; exit 1 ;;
    esac
}

# licence FOLDER FILE...: keep the licence texts of a component.
licence() {
    folder=$1
    shift
    mkdir -p "$folder"
    cp -L "$@" "$folder/"
}

# debian_licence FOLDER COPYRIGHT: a Debian package's copyright file, and what it points to: the common texts, which the
# package base-files has. They must be in /tmp/common.
debian_licence() {
    licence "$1" "$2"
    grep -oE '/usr/share/common-licenses/[A-Za-z0-9.+-]*[A-Za-z0-9]' "$2" | sort -u | while read -r common; do
        # Names without a version are links to the newest one.
        licence "$1" "$(realpath "/tmp/common$common")"
    done
}

# root_of FOLDER MARKER: the folder below FOLDER that holds MARKER, whatever the archive called it.
root_of() {
    found=$(find "$1" -path "*/$2" | sort | head -n 1)
    [ -n "$found" ] || { echo "the archive holds no $2" >&2; exit 1; }
    echo "${found%/"$2"}"
}

glibc_loader() {
    case "$1" in
        x86_64) echo ld-linux-x86-64.so.2 ;;
        aarch64) echo ld-linux-aarch64.so.1 ;;
    esac
}
