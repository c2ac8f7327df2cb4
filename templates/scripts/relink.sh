# relink LIBC ROOT ARCH PROGRAM [FOLDER]: make a program use the capsule's own loader and libraries, wherever it is started.
# FOLDER has libraries of the program's own.
relink() {
    case "$1" in
        glibc)
            # RPATH, not RUNPATH: LD_LIBRARY_PATH wins over that one. Absolute, since a copy of the program elsewhere
            # (venv --copies) must find the same libraries.
            patchelf --set-interpreter "$2/abi/glibc/$(glibc_loader "$3")" --force-rpath --set-rpath "$2/abi/glibc${5:+:$5}" "$4"
            ;;
        musl)
            for needed in $(patchelf --print-needed "$4"); do
                case "$needed" in
                    libstdc++[.-]*) patchelf --replace-needed "$needed" "$2/abi/musl/libstdc++.so.6" "$4" ;;
                    libgcc_s[.-]*) patchelf --replace-needed "$needed" "$2/abi/musl/libgcc_s.so.1" "$4" ;;
                esac
            done
            patchelf --set-interpreter "$2/abi/musl/ld-musl-$3.so.1" --remove-rpath "$4"
            ;;
    esac
}

is_elf() {
    [ "$(head -c 4 "$1")" = "$(printf '\177ELF')" ]
}

# relink_below LIBC ROOT ARCH FOLDER FILE: the same for a program or library of a tree that has libraries of its own in FOLDER.
relink_below() {
    set -- "$1" "$2" "$3" "$4" "$5" "$(patchelf --print-needed "$5")"
    for needed in $6; do
        # By its path, a library is found without any search: by copies of the program, and in spite of LD_LIBRARY_PATH.
        case "$1 ${needed##*/}" in
            "musl "* | "glibc libpython"*) ;;
            *) continue ;;
        esac
        if [ -e "$4/${needed##*/}" ]; then patchelf --replace-needed "$needed" "$4/${needed##*/}" "$5"; fi
    done
    # What a library asks for is also looked for along the RPATH of what has loaded it, unless it has one of its own.
    patchelf --remove-rpath "$5"
    if patchelf --print-interpreter "$5" >/dev/null 2>&1; then
        relink "$1" "$2" "$3" "$5" "$4"
    elif [ "$1" = glibc ] && [ "${5##*/libpython}" != "$5" ]; then
        # A program of somebody else's that embeds Python has no such RPATH.
        patchelf --force-rpath --set-rpath "$2/abi/glibc:$4" "$5"
    fi
}
