# shellcheck shell=bash
# Part local: the conformance suite on this machine.
#
# As root it is run twice: what a sandbox allows root and what an ordinary user may do differ in ways that matter
# here (signals, limits, directories that can't be read).

part_local() {
    need_rust && need bash:bash setsid:util-linux setpriv:util-linux || return 1
    local suite bad=0 round
    suite=$(build_suite) || return 1
    for ((round = 1; round <= REPEAT; round++)); do
        step "conformance on local as $(id -un), round $round of $REPEAT" run_suite local "$suite" || bad=1
        is_root || continue
        step "conformance on local as an ordinary user, round $round of $REPEAT" as_ordinary_user "$suite" || bad=1
    done
    return "$bad"
}

# Builds the suite and prints the path of its program.
build_suite() {
    local messages=$RUN/logs/build-suite.json suite
    say "building the conformance suite" >&2
    cargo test -p farshell-conformance --test conformance --no-run --locked --message-format=json-render-diagnostics >"$messages" || return 1
    suite=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$messages" | tail -n 1)
    if [[ ! -x $suite ]]; then
        warn "cargo did not say where the conformance suite is"
        return 1
    fi
    printf '%s\n' "$suite"
}

# run_suite BACKEND PROGRAM [OPTION…]: the suite on one backend.
run_suite() {
    local backend=$1
    shift
    FARSHELL_CONFORMANCE=$backend "$@" </dev/null
}

# as_ordinary_user PROGRAM: the suite as a user made for it, with a home of its own and a copy that it may run.
as_ordinary_user() {
    ordinary_user || return 1
    local home=$RUN/user
    install -m 755 "$1" "$RUN/conformance" || return 1
    (
        cd "$home" || exit 1
        # Nothing of root's environment but what a login would give.
        exec env -i CI="${CI-}" FARSHELL_CONFORMANCE=local HOME="$home" TMPDIR="$home/tmp" USER="$USER_NAME" LOGNAME="$USER_NAME" \
            SHELL=/bin/bash LANG="${LANG:-C.UTF-8}" PATH=/usr/local/bin:/usr/bin:/bin \
            setpriv --reuid "$USER_NAME" --regid "$USER_NAME" --init-groups --inh-caps=-all \
            "$RUN/conformance" </dev/null
    )
}

USER_NAME=''

# Makes the user once, for this run.
ordinary_user() {
    [[ -z $USER_NAME ]] || return 0
    need useradd:passwd || return 1
    local name=farshell-$$
    useradd --system --user-group --no-create-home --home-dir "$RUN/user" --shell /bin/bash "$name" || return 1
    USER_NAME=$name
    at_end remove_user
    install -d -m 700 -o "$name" -g "$name" "$RUN/user" "$RUN/user/tmp"
}

remove_user() {
    userdel "$USER_NAME" >/dev/null 2>&1 || warn "user $USER_NAME could not be removed"
}
