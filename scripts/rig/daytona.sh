# shellcheck shell=bash
# Component daytona: an emulated Daytona. What tests get:
#
#   FARSHELL_TEST_DAYTONA       the address of its API; the key is dtn_test
#   FARSHELL_TEST_DAYTONA_DIR   where it has its sandboxes
#   FARSHELL_TEST_DAYTONA_BIN   the program, for tests that start one of their own

DAYTONA_PID=''

daytona_up() {
    is_root || { skip_part "sandboxes with a root of their own are made by root"; return 1; }
    need unshare:util-linux setsid:util-linux || return 1
    local messages=$RUN/logs/build-daytona.json program
    say "building the emulator of Daytona"
    cargo build -p farshell-daytona-emulator --locked --message-format=json-render-diagnostics >"$messages" || return 1
    program=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$messages" | tail -n 1)
    [[ -x $program ]] || { warn "cargo did not say where the emulator is"; return 1; }
    # A copy that a build of something else does not replace under its sandboxes.
    install -m 755 "$program" "$RUN/daytona" || return 1
    export FARSHELL_TEST_DAYTONA_BIN=$RUN/daytona FARSHELL_TEST_DAYTONA_DIR=$RUN/sandboxes
    # It ends with its input.
    mkfifo "$RUN/daytona.life" || return 1
    exec {DAYTONA_LIFE}<>"$RUN/daytona.life"
    "$FARSHELL_TEST_DAYTONA_BIN" --dir "$FARSHELL_TEST_DAYTONA_DIR" <&"$DAYTONA_LIFE" >"$RUN/daytona.url" 2>"$RUN/logs/daytona.log" &
    DAYTONA_PID=$!
    local tries=100
    until [[ -s $RUN/daytona.url ]] || ! ((tries--)); do
        sleep 0.1
    done
    FARSHELL_TEST_DAYTONA=$(<"$RUN/daytona.url")
    export FARSHELL_TEST_DAYTONA
    [[ -n $FARSHELL_TEST_DAYTONA ]] || { warn "the emulator did not come up"; return 1; }
}

daytona_down() {
    [[ -n $DAYTONA_PID ]] || return 0
    kill "$DAYTONA_PID" 2>/dev/null
    wait "$DAYTONA_PID" 2>/dev/null
    DAYTONA_PID=''
    rm -rf "$RUN/sandboxes"
}
