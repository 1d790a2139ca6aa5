# shellcheck shell=bash
# Component daytona: an emulated Daytona. What tests get:
#
#   FARSHELL_TEST_DAYTONA          the address of its API; the key is dtn_test
#   FARSHELL_TEST_DAYTONA_SLOWER   of another one, through which no websocket comes
#   FARSHELL_TEST_DAYTONA_STORM    of another one, in which anything fails at any moment
#   FARSHELL_TEST_DAYTONA_DIR      where they have their sandboxes, each in a directory of its own
#   FARSHELL_TEST_DAYTONA_BIN      the program, for tests that start one of their own

DAYTONA_PIDS=()

daytona_up() {
    is_root || { skip_part "sandboxes with a root of their own are made by root"; return 1; }
    need unshare:util-linux setsid:util-linux && need_python || return 1
    local messages=$RUN/logs/build-daytona.json program
    say "building the emulator of Daytona"
    cargo build -p farshell-daytona-emulator --locked --message-format=json-render-diagnostics >"$messages" || return 1
    program=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$messages" | tail -n 1)
    [[ -x $program ]] || { warn "cargo did not say where the emulator is"; return 1; }
    # A copy that a build of something else does not replace under its sandboxes.
    install -m 755 "$program" "$RUN/daytona-emulator" || return 1
    export FARSHELL_TEST_DAYTONA_BIN=$RUN/daytona-emulator FARSHELL_TEST_DAYTONA_DIR=$RUN/sandboxes
    # They end with their input.
    mkfifo "$RUN/daytona.life" || return 1
    exec {DAYTONA_LIFE}<>"$RUN/daytona.life"
    export FARSHELL_TEST_DAYTONA FARSHELL_TEST_DAYTONA_SLOWER FARSHELL_TEST_DAYTONA_STORM
    daytona_start FARSHELL_TEST_DAYTONA daytona &&
        daytona_start FARSHELL_TEST_DAYTONA_SLOWER daytona-slower --faults '[{"kind":"ws-refuse","count":4000000000}]' &&
        daytona_start FARSHELL_TEST_DAYTONA_STORM daytona-storm --storm 20
}

# daytona_start VARIABLE NAME [OPTION…]: one more of them, whose address goes into the variable.
daytona_start() {
    local variable=$1 name=$2 tries=100
    shift 2
    "$FARSHELL_TEST_DAYTONA_BIN" --dir "$FARSHELL_TEST_DAYTONA_DIR/$name" "$@" \
        <&"$DAYTONA_LIFE" >"$RUN/$name.url" 2>"$RUN/logs/$name.log" &
    DAYTONA_PIDS+=($!)
    until [[ -s $RUN/$name.url ]] || ! ((tries--)); do
        sleep 0.1
    done
    printf -v "$variable" %s "$(<"$RUN/$name.url")"
    [[ -n ${!variable} ]] || { warn "the emulator did not come up"; return 1; }
}

daytona_down() {
    ((${#DAYTONA_PIDS[@]})) || return 0
    kill "${DAYTONA_PIDS[@]}" 2>/dev/null
    wait "${DAYTONA_PIDS[@]}" 2>/dev/null
    DAYTONA_PIDS=()
    rm -rf "$RUN/sandboxes"
}
