# shellcheck shell=bash
# Part modal: the Modal backend on an emulated Modal, which Modal's own clients and Hermes are tried on first.
#
# Nothing here reaches Modal itself.

# The release of the Python client that Hermes 0.19 pins; the newest is the component's.
readonly MODAL_OF_HERMES='modal==1.3.4' MODAL_HERMES='hermes-agent==0.19.0'

part_modal() {
    need_rust && bring_up modal || return 1
    local suite bad=0 round
    step "Modal's own client ($MODAL_NEWEST) on the emulator" modal_client "$MODAL_NEWEST" || bad=1
    step "the same with sandboxes of the first kind" modal_client "$MODAL_NEWEST" 0 || bad=1
    step "Modal's own client ($MODAL_OF_HERMES) on the emulator" modal_client "$MODAL_OF_HERMES" || bad=1
    step "Hermes on the emulator" modal_hermes || bad=1
    step "tests with sandboxes" tests_called modal || bad=1
    suite=$(build_suite) || return 1
    for ((round = 1; round <= REPEAT; round++)); do
        step "conformance on modal, round $round of $REPEAT" run_suite modal "$suite" --test-threads "$AT_ONCE" || bad=1
    done
    step "conformance on modal, with trouble" modal_in_trouble run_suite modal "$suite" --test-threads "$AT_ONCE" || bad=1
    step "no sandbox is left" no_modal_sandboxes || bad=1
    return "$bad"
}

# modal_says PYTHON NAME: runs tests/NAME.py with that Python.
modal_says() {
    MODAL_SERVER_URL=$FARSHELL_TEST_MODAL MODAL_TOKEN_ID=ak-test MODAL_TOKEN_SECRET=as-test \
        "$1" "crates/emulators/modal/tests/$2.py" "$FARSHELL_TEST_MODAL_IMAGE"
}

# modal_client REQUIREMENT [0]: with 0, sandboxes are of the first kind, also by a client that knows the second.
modal_client() {
    local python
    python=$(modal_python "$1") && MODAL_SANDBOX_V2=${2:-1} modal_says "$python" sdk
}

# In an environment of its own: Hermes changes the packages beside it.
modal_hermes() {
    local python
    python=$(modal_python "$MODAL_HERMES" "$MODAL_OF_HERMES") && modal_says "$python" hermes
}

# modal_in_trouble COMMAND…: runs it while connections break, tokens expire, calls and streams fail, sandboxes begin late,
# and the router moves. Each kind of trouble stays armed until it has happened once, so that none is only meant.
modal_in_trouble() {
    local kinds=(unavailable-before unavailable-after reset-before reset-after throttle cut cut-connection
        expired-jwt refused-token slow slow-start slow-exit-snapshot)
    local trouble status kind
    (
        local calls=('' Sandbox TaskExec TaskExecStdioRead TaskExecStdinWrite Image) call count fault last skip
        modal_arm() {
            # About twice a minute.
            ((RANDOM % 60)) || curl -s -m 2 -X POST "$FARSHELL_TEST_MODAL_SWITCHES/emulator/move-router"
            curl -s -m 2 -H 'Content-Type: application/json' -d "$1" "$FARSHELL_TEST_MODAL_SWITCHES/emulator/faults"
        }
        for kind in "${kinds[@]}"; do
            modal_arm "[{\"kind\":\"$kind\",\"ms\":100,\"bytes\":1000}]"
            until modal_happened "$kind"; do
                sleep 0.1
            done
        done
        while sleep "0.$((RANDOM % 9 + 1))"; do
            last=$kind kind=${kinds[RANDOM % ${#kinds[@]}]}
            call=${calls[RANDOM % ${#calls[@]}]} count=$((RANDOM % 3 + 1)) skip=$((RANDOM % 5))
            case $kind in
                # A token that is refused again and again is an error, and not trouble that passes.
                refused-token | expired-jwt)
                    [[ $kind != "$last" ]] || continue
                    call='' count=1
                    ;;
                # These are not of calls.
                slow-start | slow-exit-snapshot) call='' skip=0 ;;
            esac
            printf -v fault '[{"kind":"%s","rpc":"%s","skip":%d,"count":%d,"ms":%d,"bytes":%d}]' \
                "$kind" "$call" "$skip" "$count" $((RANDOM % 200)) $((RANDOM % 3000))
            modal_arm "$fault"
        done
    ) >/dev/null 2>&1 &
    trouble=$!
    "$@"
    status=$?
    kill "$trouble" 2>/dev/null
    wait "$trouble" 2>/dev/null
    curl -s -m 2 -H 'Content-Type: application/json' -d '[]' "$FARSHELL_TEST_MODAL_SWITCHES/emulator/faults" >/dev/null
    for kind in "${kinds[@]}"; do
        modal_happened "$kind" || { warn "nothing had trouble of kind $kind"; status=1; }
    done
    return "$status"
}

# modal_happened KIND: whether there was trouble of that kind.
modal_happened() {
    [[ $(curl -s -m 2 "$FARSHELL_TEST_MODAL_SWITCHES/emulator/faults/happened") == *"\"$1\":"* ]]
}

# Sandboxes end on their own time.
no_modal_sandboxes() {
    local tries=100
    until [[ -z $(ls "$FARSHELL_TEST_MODAL_DIR/sandboxes") ]] || ! ((tries--)); do
        sleep 0.1
    done
    [[ -z $(ls "$FARSHELL_TEST_MODAL_DIR/sandboxes") ]] || { warn "left: $(ls "$FARSHELL_TEST_MODAL_DIR/sandboxes")"; return 1; }
}
