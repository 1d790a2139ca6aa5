# shellcheck shell=bash
# Part singularity: the Singularity backend on a real Apptainer.
#
# Its own tests and the conformance suite run as an ordinary user, as Apptainer is meant to; the program's run as this
# user, too.

part_singularity() {
    need_rust && need bash:bash setpriv:util-linux && bring_up apptainer && ordinary_user || return 1
    local suite tests bad=0 round subject
    tests=$(build_tests farshell-singularity singularity) && suite=$(build_suite) || return 1
    step "tests with Apptainer as an ordinary user" as_user_of_apptainer "$tests" '' || bad=1
    step "tests of the program" program_tests singularity || bad=1
    for ((round = 1; round <= REPEAT; round++)); do
        for subject in singularity singularity-busybox; do
            # The suite on a busybox is part docker's as well.
            local filter=()
            [[ $subject == singularity ]] || ((NAMED)) || filter=(endings::)
            step "conformance on $subject as an ordinary user, round $round of $REPEAT" \
                as_user_of_apptainer "$suite" "$subject" --test-threads "$AT_ONCE" ${filter[@]+"${filter[@]}"} || bad=1
        done
    done
    return "$bad"
}

# as_user_of_apptainer PROGRAM SUBJECT [OPTION…]: a test program as the user that was made for this run, with nothing of
# root's environment but what a login would give.
as_user_of_apptainer() {
    local home=$RUN/user program=$RUN/as-user-${1##*/} subject=$2
    [[ -x $program ]] || install -m 755 "$1" "$program" || return 1
    shift 2
    (
        cd "$home" || exit 1
        exec env -i CI="${CI-}" FARSHELL_CONFORMANCE="$subject" HOME="$home" TMPDIR="$home/tmp" USER="$USER_NAME" LOGNAME="$USER_NAME" \
            SHELL=/bin/bash LANG="${LANG:-C.UTF-8}" PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
            FARSHELL_TEST_APPTAINER="$FARSHELL_TEST_APPTAINER" FARSHELL_TEST_SIF="$FARSHELL_TEST_SIF" \
            FARSHELL_TEST_SIF_BUSYBOX="$FARSHELL_TEST_SIF_BUSYBOX" FARSHELL_TEST_SANDBOX="$FARSHELL_TEST_SANDBOX" \
            FARSHELL_TEST_SLURM="${FARSHELL_TEST_SLURM-}" FARSHELL_TEST_SLURM_CONTROL="${FARSHELL_TEST_SLURM_CONTROL-}" \
            setpriv --reuid "$USER_NAME" --regid "$USER_NAME" --init-groups --inh-caps=-all \
            "$program" "$@" </dev/null
    )
}
