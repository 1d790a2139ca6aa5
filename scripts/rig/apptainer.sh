# shellcheck shell=bash
# Component apptainer: Apptainer in a directory of the run, with images in its own format. What tests get:
#
#   FARSHELL_TEST_APPTAINER     the program
#   FARSHELL_TEST_SIF           a small Debian: bash, python3
#   FARSHELL_TEST_SIF_BUSYBOX   nothing but busybox
#   FARSHELL_TEST_SANDBOX       the files of the latter in a directory
#
# Debian has Apptainer in its unstable suite alone, built for a newer C library than a stable machine has. It is moved:
# program and libraries lie below $RUN, and nothing of them is installed.

APPTAINER_SUITE=sid
APPTAINER_LIBRARIES=trixie
APPTAINER_FUSE_MODE=''

apptainer_up() {
    need patchelf:patchelf mksquashfs:squashfs-tools squashfuse_ll:squashfuse fuse-overlayfs:fuse-overlayfs \
        fuse2fs:fuse2fs newuidmap:uidmap mkfs.ext3:e2fsprogs || return 1
    is_root || { skip_part "Apptainer is only unpacked and given a /dev/fuse by root"; return 1; }
    # shellcheck source=scripts/rig/images.sh
    . "$ROOT/scripts/rig/images.sh" && debian_image && busybox_image || return 1
    local dir=$RUN/apptainer cache
    cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/farshell-test
    apptainer_packages "$cache/apptainer" && apptainer_unpack "$cache/apptainer" "$dir" || return 1
    # An ordinary user's file systems need it.
    APPTAINER_FUSE_MODE=$(stat -c %a /dev/fuse) && chmod 666 /dev/fuse || return 1
    export FARSHELL_TEST_APPTAINER=$dir/usr/bin/apptainer
    "$FARSHELL_TEST_APPTAINER" version >"$RUN/logs/apptainer.log" 2>&1 || { cat "$RUN/logs/apptainer.log" >&2; return 1; }
    local sif=$cache/debian-${DEBIAN_TAR##*-}
    sif=${sif%.tar}.sif
    [[ -s $sif ]] || apptainer_image "$DEBIAN_TAR" "$sif" || return 1
    apptainer_image "$BUSYBOX_TAR" "$dir/busybox.sif" keep || return 1
    cp --reflink=auto "$sif" "$dir/debian.sif" && chmod 644 "$dir"/*.sif || return 1
    export FARSHELL_TEST_SIF=$dir/debian.sif FARSHELL_TEST_SIF_BUSYBOX=$dir/busybox.sif FARSHELL_TEST_SANDBOX=$dir/busybox
}

# apptainer_packages DIRECTORY: fetches the packages from where this machine gets its own, and keeps them.
apptainer_packages() {
    local packages=("apptainer/$APPTAINER_SUITE" {libc6,libseccomp2,libsqlite3-0}/"$APPTAINER_LIBRARIES") mirror apt suite
    compgen -G "$1/apptainer_*.deb" >/dev/null && compgen -G "$1/libsqlite3-0_*.deb" >/dev/null && return 0
    say "fetching Apptainer"
    mirror=$(debian_mirror "$(. /etc/os-release && echo "${VERSION_CODENAME-}")")
    mirror=${mirror:-http://deb.debian.org/debian}
    local lists=$RUN/apptainer-apt
    mkdir -p "$lists"/{lists/partial,archives/partial} "$1.$$" || return 1
    for suite in "$APPTAINER_SUITE" "$APPTAINER_LIBRARIES"; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    done >"$lists/sources.list"
    # Lists of its own: what this machine installs is not changed.
    apt=(apt-get -qq -o Dir::Etc::SourceList="$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$lists/lists" -o Dir::Cache::Archives="$lists/archives" -o Dir::Cache::pkgcache=
        -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root -o Acquire::Languages=none)
    if ! { "${apt[@]}" update && cd "$1.$$" && "${apt[@]}" download "${packages[@]}"; } >"$RUN/logs/apptainer-apt.log" 2>&1; then
        cd "$ROOT" || return 1
        tail -n 20 "$RUN/logs/apptainer-apt.log" >&2
        rm -rf "$1.$$"
        skip_part "Apptainer could not be fetched"
        return 1
    fi
    cd "$ROOT" && rm -rf "$1" "$lists" && mv "$1.$$" "$1"
}

# apptainer_unpack PACKAGES DIRECTORY
apptainer_unpack() {
    local dir=$2 deb lib file
    mkdir -p "$dir/lib" || return 1
    for deb in "$1"/*.deb; do
        case $deb in
            */apptainer_*) dpkg-deb -x "$deb" "$dir" || return 1 ;;
            *) dpkg-deb -x "$deb" "$dir/lib" || return 1 ;;
        esac
    done
    file=$(compgen -G "$dir/usr/lib/*/apptainer/bin/starter") && lib=$(compgen -G "$dir/lib/usr/lib/*/libc.so.6") || return 1
    lib=${lib%/*}
    patchelf --set-interpreter "$(compgen -G "$lib/ld-linux*.so.*")" --force-rpath --set-rpath "$lib" "$dir/usr/bin/apptainer" "$file" &&
        patchelf --force-rpath --set-rpath "$lib" "$lib"/lib{seccomp,sqlite3}.so.*.* || return 1
    # It looks for its settings beside itself, each of the two programs in another place.
    mv "$dir/etc" "$dir/usr/etc" && mkdir -p "$dir/usr/var/lib/apptainer/mnt/session" &&
        ln -s ../etc "$dir/usr/lib/etc" && ln -s ../var "$dir/usr/lib/var"
}

# apptainer_image TAR SIF [keep]: makes an image of the files in an archive, and leaves them in a directory of that name
# if asked to.
apptainer_image() {
    local dir=$RUN/apptainer/${2##*/}
    dir=${dir%.sif}
    say "making ${2##*/}"
    mkdir -p "$dir" && tar -C "$dir" -xf "$1" || return 1
    if ! "$FARSHELL_TEST_APPTAINER" build "$2.$$" "$dir" >"$RUN/logs/apptainer-build.log" 2>&1; then
        tail -n 20 "$RUN/logs/apptainer-build.log" >&2
        return 1
    fi
    mv "$2.$$" "$2" || return 1
    [[ ${3-} == keep ]] || rm -rf --one-file-system "$dir"
}

apptainer_down() {
    [[ -z $APPTAINER_FUSE_MODE ]] || chmod "$APPTAINER_FUSE_MODE" /dev/fuse
    kill_processes_of "$RUN/apptainer"
    rm -rf --one-file-system "$RUN/apptainer"
}
