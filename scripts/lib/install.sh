# shellcheck shell=bash
# What is missing, and how it gets here.

APT_UPDATED=''

is_root() {
    ((EUID == 0))
}

# need COMMAND:PACKAGE…: makes sure that commands are there. Installs Debian packages if root; otherwise says what
# to install.
need() {
    local pair command package packages=()
    for pair; do
        command=${pair%%:*} package=${pair#*:}
        if [[ $command == /* ]]; then
            # A file, or several with a pattern.
            compgen -G "$command" >/dev/null || packages+=("$package")
        else
            command -v "$command" >/dev/null || packages+=("$package")
        fi
    done
    ((${#packages[@]})) || return 0
    install_debian_packages "${packages[@]}"
}

install_debian_packages() {
    if ! command -v apt-get >/dev/null; then
        skip_part "missing here, and this is no Debian: $*"
        return 1
    fi
    if ! is_root; then
        skip_part "missing here; install with: sudo apt-get install $*"
        return 1
    fi
    say "installing $*"
    if [[ -z $APT_UPDATED ]]; then
        apt-get update -qq >"$RUN/logs/apt.log" 2>&1 || warn "apt-get update failed; trying with the lists that are here"
        APT_UPDATED=yes
    fi
    if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >>"$RUN/logs/apt.log" 2>&1; then
        tail -n 20 "$RUN/logs/apt.log" >&2
        skip_part "could not be installed: $*"
        return 1
    fi
}

# Python, and what makes virtual environments, which is a package of its own.
need_python() {
    need python3:python3 || return 1
    python3 -c 'import ensurepip' 2>/dev/null || install_debian_packages python3-venv
}

# What every build needs: Rust, a linker, and a C library to link statically with.
need_rust() {
    if ! command -v cargo >/dev/null; then
        # Nothing at all can be tested, which is no skip.
        warn "no cargo here; install Rust 1.95 or later with rustup"
        return 1
    fi
    need cc:gcc '/usr/lib*/*/libc.a:libc6-dev'
}
