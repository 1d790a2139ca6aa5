# shellcheck shell=bash
# What is undone at the end, in reverse order, however the run ends.

ENDINGS=()

# at_end COMMAND…: to be run at the end. Words with blanks are kept.
at_end() {
    ENDINGS+=("$(printf '%q ' "$@")")
}

# Undoes everything that is registered so far, last first, and nothing twice.
undo() {
    local last
    while ((${#ENDINGS[@]})); do
        last=${ENDINGS[-1]}
        unset 'ENDINGS[-1]'
        eval "$last"
    done
}

trap_endings() {
    trap 'kill_survivors; undo' EXIT
    # A signal ends the run by way of EXIT, so that what was started is stopped.
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}

# The components that are up, in the order of their start.
UP=()

# bring_up NAME: starts a component of scripts/rig once and has it stopped at the end.
bring_up() {
    local name=$1 other
    for other in ${UP[@]+"${UP[@]}"}; do
        [[ $other != "$name" ]] || return 0
    done
    # shellcheck source=/dev/null
    . "$ROOT/scripts/rig/$name.sh" || return 1
    # Registered before it is up: a start that fails half-way has something to stop too.
    UP+=("$name")
    ((${#UP[@]} > 1)) || at_end take_down
    step "component $name" "${name}_up"
}

# Stops all components, last first.
take_down() {
    local name
    while ((${#UP[@]})); do
        name=${UP[-1]}
        unset 'UP[-1]'
        "${name}_down" || warn "component $name could not be stopped"
    done
}

# start_process LABEL COMMAND…: a process in the background with its output in a file; sets STARTED to its number.
start_process() {
    local label=$1
    shift
    "$@" </dev/null >"$RUN/logs/$label.log" 2>&1 &
    # shellcheck disable=SC2034  # for the caller
    STARTED=$!
}

# stop_process PID: asks a process that start_process started to end, and sees to it that it does.
stop_process() {
    local pid=$1 left=100
    kill "$pid" 2>/dev/null || return 0
    while kill -0 "$pid" 2>/dev/null && ((left--)); do
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    return 0
}
