# shellcheck shell=bash
# Processes that the run left behind.
#
# Everything that a test starts has the run's private directory in its arguments, its environment, its program's path or its
# working directory: outposts run below it, and what they start inherits TMPDIR or HOME. What inherits neither is known by the
# number that outposts give to what they start, if its outpost is gone.

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

# Prints the numbers of processes that an outpost has started since this run began, and that it does not have any more: none is
# above them. (Its number is a limit of locks, which it counts down from 2^62.)
orphans() {
    local pid began stat up
    began=$(began_at "$$")
    for pid in $(grep -sE '^Max file locks +[2-4][0-9]{18} ' /proc/[0-9]*/limits | cut -d/ -f3); do
        { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || continue
        [[ ${stat##*) } != [ZX]* ]] && (($(began_at "$pid") >= began)) || continue
        up=$pid
        while [[ -n $up && $up != [01] && $(readlink "/proc/$up/exe") != *outpost* ]]; do
            up=$(parent_of "$up")
        done
        [[ -n $up && $up != [01] ]] || echo "$pid"
    done
}

# began_at NUMBER: when a process began, in ticks since this machine did.
began_at() {
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || { echo 0; return; }
    # shellcheck disable=SC2086  # the words behind the name, of which it is the twentieth
    set -- ${stat##*) }
    echo "${20}"
}

# Fails if a process of this run is still there, after listing and killing it.
no_survivors() {
    local left pid tries=20
    # What was killed a moment ago may take a moment to go.
    while left=$(survivors; orphans) && [[ -n $left ]] && ((tries--)); do
        sleep 0.25
    done
    left=$(sort -un <<<"$left")
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
