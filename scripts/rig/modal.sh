# shellcheck shell=bash
# Component modal: an emulated Modal, and Modal's own Python package. What tests get:
#
#   FARSHELL_TEST_MODAL             the address of its API; the tokens are ak-test and as-test
#   FARSHELL_TEST_MODAL_SWITCHES    the address where faults are armed
#   FARSHELL_TEST_MODAL_DIR         where it has its sandboxes
#   FARSHELL_TEST_MODAL_BIN         the program, for tests that start one of their own
#   FARSHELL_TEST_MODAL_IMAGE       a tag that it can pull: this machine's own programs
#   FARSHELL_TEST_MODAL_PYTHON      a Python with the newest release of Modal's package that was looked at

# The newest release that was looked at; its descriptors are those of crates/modal-proto.
readonly MODAL_NEWEST='modal==1.6.3'

MODAL_PID=''

modal_up() {
    is_root || { skip_part "sandboxes with a root of their own are made by root"; return 1; }
    need unshare:util-linux setsid:util-linux ip:iproute2 curl:curl && need_python || return 1
    local messages=$RUN/logs/build-modal.json program
    say "building the emulator of Modal"
    cargo build -p farshell-modal-emulator --locked --message-format=json-render-diagnostics >"$messages" || return 1
    program=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$messages" | tail -n 1)
    [[ -x $program ]] || { warn "cargo did not say where the emulator is"; return 1; }
    # A copy that a build of something else does not replace under its sandboxes.
    install -m 755 "$program" "$RUN/modal" || return 1
    export FARSHELL_TEST_MODAL_BIN=$RUN/modal FARSHELL_TEST_MODAL_DIR=$RUN/modal-sandboxes
    export FARSHELL_TEST_MODAL_IMAGE=nikolaik/python-nodejs:python3.11-nodejs20
    FARSHELL_TEST_MODAL_PYTHON=$(modal_python "$MODAL_NEWEST") || return 1
    export FARSHELL_TEST_MODAL_PYTHON
    # It ends with its input.
    mkfifo "$RUN/modal.life" || return 1
    exec {MODAL_LIFE}<>"$RUN/modal.life"
    "$FARSHELL_TEST_MODAL_BIN" --dir "$FARSHELL_TEST_MODAL_DIR" --image "$FARSHELL_TEST_MODAL_IMAGE=host" --image debian:12=host \
        <&"$MODAL_LIFE" >"$RUN/modal.urls" 2>"$RUN/logs/modal.log" &
    MODAL_PID=$!
    local tries=100
    until (($(wc -l <"$RUN/modal.urls") == 2)) || ! ((tries--)); do
        sleep 0.1
    done
    { read -r FARSHELL_TEST_MODAL && read -r FARSHELL_TEST_MODAL_SWITCHES; } <"$RUN/modal.urls"
    export FARSHELL_TEST_MODAL FARSHELL_TEST_MODAL_SWITCHES
    [[ -n $FARSHELL_TEST_MODAL_SWITCHES ]] || { warn "the emulator did not come up"; return 1; }
}

# modal_python REQUIREMENT…: prints the Python of a virtual environment of their own, made if it is not there yet.
modal_python() {
    local venv
    venv=$RUN/venv-$(tr -c 'a-z0-9\n' - <<<"$*")
    if [[ ! -x $venv/bin/python ]]; then
        python3 -m venv "$venv" >&2 || return 1
        "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" >&2 || return 1
    fi
    printf '%s\n' "$venv/bin/python"
}

modal_down() {
    [[ -n $MODAL_PID ]] || return 0
    kill "$MODAL_PID" 2>/dev/null
    wait "$MODAL_PID" 2>/dev/null
    MODAL_PID=''
    rm -rf "$RUN/modal-sandboxes"
}
