# shellcheck shell=bash
# The images that container engines are tested with, as archives of a root directory. No registry is needed.
#
# Debian takes half a minute to make, so it is kept between runs, in a cache that can be deleted at any time.

# bash, what unpacks and installs packages, python with its whole library for those who run code.
IMAGE_PACKAGES=python3,ca-certificates,procps

# Sets DEBIAN_TAR to an archive of a small Debian.
debian_image() {
    need debootstrap:debootstrap || return 1
    local cache suite mirror arch dir
    cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/farshell-test
    suite=$(. /etc/os-release && [[ ${ID-} == debian ]] && echo "${VERSION_CODENAME-}")
    suite=${suite:-bookworm}
    arch=$(dpkg --print-architecture) || return 1
    DEBIAN_TAR=$cache/debian-$suite-$arch-$(printf '%s' "$IMAGE_PACKAGES" | cksum | cut -d' ' -f1).tar
    [[ ! -s $DEBIAN_TAR ]] || return 0
    say "making a Debian image"
    mkdir -p "$cache" || return 1
    dir=$RUN/debian
    mirror=$(debian_mirror "$suite")
    # shellcheck disable=SC2086  # no mirror, no argument
    if ! http_proxy=${http_proxy-$(apt_proxy)} debootstrap --variant=minbase --include="$IMAGE_PACKAGES" "$suite" "$dir" $mirror \
        >"$RUN/logs/debootstrap.log" 2>&1; then
        tail -n 20 "$RUN/logs/debootstrap.log" >&2
        skip_part "debootstrap failed"
        return 1
    fi
    rm -rf "$dir"/var/cache/apt/archives/*.deb "$dir"/var/lib/apt/lists/* "${dir:?}"/dev/*
    mkdir -p "$dir/dev"
    # Made under another name: a run that is interrupted leaves no half image.
    tar -C "$dir" --numeric-owner -cf "$DEBIAN_TAR.$$" . && mv "$DEBIAN_TAR.$$" "$DEBIAN_TAR" || return 1
    rm -rf --one-file-system "$dir"
}

# Where this machine gets its packages from.
debian_mirror() {
    # shellcheck disable=SC2016  # apt's own words
    apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        sed -n "s/^$1 //p" | head -n 1
}

apt_proxy() {
    local proxy=''
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    printf '%s' "$proxy"
}

# Sets BUSYBOX_TAR to an archive with nothing but busybox: a sh, no bash, no libc.
busybox_image() {
    need /bin/busybox:busybox-static || return 1
    BUSYBOX_TAR=$RUN/busybox.tar
    [[ ! -s $BUSYBOX_TAR ]] || return 0
    local dir=$RUN/busybox
    mkdir -p "$dir"/{bin,etc,proc,sys,dev,root,home/user,usr/bin,var} && mkdir -m 1777 "$dir/tmp" || return 1
    install -m 755 /bin/busybox "$dir/bin/busybox" || return 1
    local applet
    for applet in $("$dir/bin/busybox" --list); do
        [[ $applet == busybox ]] || ln -s busybox "$dir/bin/$applet"
    done
    ln -s /bin/env "$dir/usr/bin/env"
    printf 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n' >"$dir/etc/passwd"
    printf 'root:x:0:\nuser:x:1000:\n' >"$dir/etc/group"
    chown 1000:1000 "$dir/home/user"
    # What an image with an init system of its own has: it must never be run.
    printf '#!/bin/sh\necho "the entrypoint of the image was run"\nexit 3\n' >"$dir/init"
    chmod 755 "$dir/init"
    tar -C "$dir" --numeric-owner -cf "$BUSYBOX_TAR.$$" . && mv "$BUSYBOX_TAR.$$" "$BUSYBOX_TAR" || return 1
    rm -rf "$dir"
}

# load_images CLIENT…: puts the images into an engine, by a client's command line. Those with a user or an entrypoint
# of their own are made of the same archives.
load_images() {
    "$@" import --change 'CMD ["bash"]' "$DEBIAN_TAR" farshell-test/debian:1 &&
        "$@" import --change 'CMD ["sh"]' "$BUSYBOX_TAR" farshell-test/busybox:1 &&
        "$@" import --change 'USER 1000' --change 'CMD ["sh"]' "$BUSYBOX_TAR" farshell-test/busybox-user:1 &&
        "$@" import --change 'VOLUME ["/data", "/home"]' "$BUSYBOX_TAR" farshell-test/busybox-volume:1 &&
        "$@" import --change 'ENTRYPOINT ["/init"]' "$BUSYBOX_TAR" farshell-test/busybox-init:1 &&
        "$@" create --name image-source farshell-test/debian:1 true &&
        "$@" commit --change 'USER 1000:1000' --change 'WORKDIR /var' image-source farshell-test/debian-user:1 &&
        "$@" rm image-source
} >/dev/null
