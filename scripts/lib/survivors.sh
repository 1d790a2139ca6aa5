# shellcheck shell=bash
# Processes that the run left behind.
#
# Everything that a test starts has the run's private directory in its arguments, its environment, its program's path or its
# working directory: outposts run below it, and what they start inherits TMPDIR or HOME.

# Prints the numbers of processes that belong to this run and live.
survivors() {
    processes_of "$RUN" environ
}

# processes_of DIRECTORY [environ]: prints the numbers of the processes that belong to a directory and live, also those
# that have it in their environment only if that is said. In a container nothing of that is to be seen; what is, is a
# root directory made of layers below it.
processes_of() {
    local pid found stat file
    found=$({
        for file in cmdline ${2-}; do
            grep -slF -- "$1" /proc/[0-9]*/"$file"
        done
        find /proc/[0-9]*/exe /proc/[0-9]*/cwd -maxdepth 0 -lname "$1*"
        awk -v dir="$1/" '$5 == "/" && index($0, dir) { print FILENAME }' /proc/[0-9]*/mountinfo
    } 2>/dev/null | cut -d/ -f3 | sort -un)
    # The search has found itself too; by now its processes are gone.
    for pid in $found; do
        [[ $pid != "$$" ]] && { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || continue
        [[ ${stat##*) } == [ZX]* ]] || echo "$pid"
    done
}

# Fails if a process of this run is still there, after listing and killing it.
no_survivors() {
    local left pid tries=20
    # What was killed a moment ago may take a moment to go.
    while left=$(survivors) && [[ -n $left ]] && ((tries--)); do
        sleep 0.25
    done
    if [[ -z $left ]]; then
        echo "no process is left"
        return 0
    fi
    warn "processes that the tests left behind:"
    for pid in $left; do
        printf '  %s  parent %s  %s\n' "$pid" "$(parent_of "$pid")" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)" >&2
    done
    kill_survivors
    return 1
}

# Ends what is left of this run: after the list has been printed, or because the run was interrupted.
kill_survivors() {
    [[ -z ${RUN-} ]] || kill_processes_of "$RUN" environ
}

# kill_processes_of DIRECTORY [environ]: until none is left, as one may start another meanwhile.
kill_processes_of() {
    local pid left tries=50
    while left=$(processes_of "$@") && [[ -n $left ]] && ((tries--)); do
        for pid in $left; do
            kill -9 "$pid" 2>/dev/null
        done
        sleep 0.1
    done
    return 0
}

parent_of() {
    sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null
}
