# shellcheck shell=bash
# Part daytona: the Daytona backend on an emulated Daytona, which Daytona's own clients are tried on first.
#
# Nothing here reaches Daytona itself.

# Releases of the Python client: the newest, and the one that Hermes 0.19 pins.
readonly DAYTONA_CLIENTS=(daytona 'daytona==0.155.*')

part_daytona() {
    need_rust && bring_up daytona || return 1
    local suite bad=0 round client subject filter filters
    for client in "${DAYTONA_CLIENTS[@]}"; do
        step "Daytona's own client ($client) on the emulator" daytona_client "$client" || bad=1
    done
    step "Hermes' own environment on the emulator" daytona_hermes || bad=1
    step "tests with sandboxes" tests_called daytona || bad=1
    suite=$(build_suite) || return 1
    for ((round = 1; round <= REPEAT; round++)); do
        for subject in daytona daytona-slower daytona-storm; do
            # Without websockets, and in a storm, the whole suite takes long (a gigabyte the slower way, minutes): when the part is named.
            case $NAMED-$subject in
                0-daytona-slower) filters=(endings::) ;;
                0-daytona-storm) filters=(resume:: kill:: processes::) ;;
                *) filters=("") ;;
            esac
            for filter in "${filters[@]}"; do
                step "conformance on $subject${filter:+, $filter}, round $round of $REPEAT" \
                    run_suite "$subject" "$suite" --test-threads "$AT_ONCE" ${filter:+"$filter"} || bad=1
            done
        done
    done
    step "no sandbox is left" no_sandboxes || bad=1
    return "$bad"
}

# daytona_client REQUIREMENT: in a virtual environment of its own.
daytona_client() {
    local venv
    venv=$RUN/venv-${1//[^a-z0-9]/-}
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "$1" || return 1
    DAYTONA_API_URL=$FARSHELL_TEST_DAYTONA DAYTONA_API_KEY=dtn_test "$venv/bin/python" crates/emulators/daytona/tests/sdk.py
}

# What Hermes makes of the same client.
daytona_hermes() {
    local venv=$RUN/venv-hermes-daytona
    python3 -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check 'hermes-agent==0.19.*' 'daytona==0.155.*' || return 1
    DAYTONA_API_URL=$FARSHELL_TEST_DAYTONA DAYTONA_API_KEY=dtn_test "$venv/bin/python" crates/emulators/daytona/tests/hermes.py
}

no_sandboxes() {
    local left
    left=$(find "$FARSHELL_TEST_DAYTONA_DIR" -mindepth 2 -maxdepth 2 2>/dev/null)
    [[ -z $left ]] || { warn "left in $FARSHELL_TEST_DAYTONA_DIR: $left"; return 1; }
}
