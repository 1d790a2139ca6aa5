# shellcheck shell=bash
# The directory that everything of a run is in.

# A world of its own for everything that is started: nothing reads the user's settings, and whatever stays
# behind is found by the directory in its arguments or its environment.
make_world() {
    # Where an ordinary user can get through to a directory of its own, which a private TMPDIR of root's is not.
    RUN=$(mktemp -d /tmp/farshell-test.XXXXXX) || exit 1
    readonly RUN
    at_end remove_world
    chmod 711 "$RUN"
    mkdir -p "$RUN/tmp" "$RUN/hermes" "$RUN/logs"
    export TMPDIR=$RUN/tmp HERMES_HOME=$RUN/hermes
    local name
    for name in $(compgen -e TERMINAL_) $(compgen -e FARSHELL_TEST_) FARSHELL_CONFORMANCE FARSHELL_SHELL; do
        unset "$name"
    done
    if in_ci; then
        export CARGO_INCREMENTAL=0
        export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
    fi
}

# plain_home COMMAND…: with a home that has everything of the user's but what shells read when they start, which takes as long as
# it likes, and may wait for the lock of a shell that a test has killed.
plain_home() {
    local home=$RUN/home file
    if [[ ! -d $home ]]; then
        mkdir "$home" || return 1
        for file in "$HOME"/* "$HOME"/.[!.]*; do
            case ${file##*/} in
                .bashrc | .profile | .bash_*) ;;
                *) [[ ! -e $file ]] || ln -s "$file" "$home" || return 1 ;;
            esac
        done
    fi
    # By another way to the same crates, cargo would build all of them again.
    CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup} HOME=$home "$@"
}

# shellcheck disable=SC2317  # called at the end, by its name
remove_world() {
    # A test that failed may have left a directory that nobody can enter.
    chmod -R u+rwx "$RUN" 2>/dev/null
    rm -rf --one-file-system "$RUN"
}

# unmount_below DIRECTORY: whatever is mounted in it, what was mounted last first.
unmount_below() {
    local left
    while left=$(awk -v dir="$1/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac) && [[ -n $left ]]; do
        # shellcheck disable=SC2086  # one word each
        umount -l $left || return 1
    done
}
