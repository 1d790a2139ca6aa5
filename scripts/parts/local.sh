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
        step "conformance on local as an ordinary user, round $round of $REPEAT" as_ordinary_user FARSHELL_CONFORMANCE=local "$suite" || bad=1
    done
    is_root && { step "passwords for sudo" sudo_tests || bad=1; }
    return "$bad"
}

# The keeper's tests on a real sudo, as a user who needs a password for it. It is in a file, so that no process of the test
# has it in its variables.
sudo_tests() {
    need sudo:sudo chpasswd:passwd || return 1
    ordinary_user || return 1
    local program password="s3cret of $RANDOM$RANDOM " rule=/etc/sudoers.d/$USER_NAME out=$RUN/logs/sudo
    program=$(build_tests farshell-keeper keeper) || return 1
    printf '%s:%s\n' "$USER_NAME" "$password" | chpasswd || return 1
    printf '%s ALL=(ALL) ALL\n' "$USER_NAME" >"$rule" && chmod 440 "$rule" || return 1
    at_end rm -f "$rule"
    printf '%s\n' "$password" >"$RUN/user/password" && chown "$USER_NAME" "$RUN/user/password" || return 1
    as_ordinary_user FARSHELL_TEST_SUDO="$RUN/user/password" "$program" sudo:: --nocapture --test-threads 1 2>&1 | tee "$out"
    # One that was skipped has shown nothing.
    [[ ${PIPESTATUS[0]} == 0 ]] && ! grep -q '^skipped:' "$out"
}

# Builds the suite and prints the path of its program.
build_suite() {
    build_tests farshell-conformance conformance
}

# build_tests CRATE NAME: builds a test program and prints its path. The whole workspace has one set of features for what it
# depends on: see lib/tests.sh.
build_tests() {
    local messages=$RUN/logs/build-$1-$2.json program
    say "building the tests $2 of $1" >&2
    cargo test --workspace --test "$2" --no-run --locked --message-format=json-render-diagnostics >"$messages" || return 1
    program=$(grep -F "#$1@" "$messages" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    if [[ ! -x $program ]]; then
        warn "cargo did not say where the tests are"
        return 1
    fi
    printf '%s\n' "$program"
}

# run_suite BACKEND PROGRAM [OPTION…]: the suite on one backend.
run_suite() {
    local backend=$1
    shift
    FARSHELL_CONFORMANCE=$backend "$@" </dev/null
}

# as_ordinary_user [NAME=VALUE…] PROGRAM [ARGUMENT…]: a copy of a program as a user made for it, with a home of its own
# and nothing of root's environment but what a login would give.
as_ordinary_user() {
    ordinary_user || return 1
    local home=$RUN/user variables=()
    while [[ $1 == *=* ]]; do
        variables+=("$1")
        shift
    done
    install -m 755 "$1" "$RUN/program" || return 1
    shift
    (
        cd "$home" || exit 1
        exec env -i CI="${CI-}" HOME="$home" TMPDIR="$home/tmp" USER="$USER_NAME" LOGNAME="$USER_NAME" SHELL=/bin/bash \
            LANG="${LANG:-C.UTF-8}" PATH=/usr/local/bin:/usr/bin:/bin ${variables[@]+"${variables[@]}"} \
            setpriv --reuid "$USER_NAME" --regid "$USER_NAME" --init-groups --inh-caps=-all "$RUN/program" "$@" </dev/null
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
