# shellcheck shell=bash
# Part docker: the Docker backend on real engines.
#
# Its own tests, as root and as an ordinary user who may use the engine, then the conformance suite on a Debian image, on
# an image with nothing but busybox, on the same engine by TCP as if it were on another machine, and on podman.

# Most of a case's time on a container is the engine's, or is slept away, so more of them run at once than there are
# processors.
readonly AT_ONCE=6

part_docker() {
    need_rust && bring_up docker && bring_up podman && bring_up registry && bring_up ssh || return 1
    local suite bad=0 round subject
    # Each may have engines of its own, so fewer run at once.
    step "tests with an engine" tests_called docker --test-threads 4 || bad=1
    step "tests with an engine as an ordinary user" docker_tests_as_user || bad=1
    suite=$(build_suite) || return 1
    for ((round = 1; round <= REPEAT; round++)); do
        for subject in docker docker-busybox docker-tcp podman; do
            step "conformance on $subject, round $round of $REPEAT" run_suite "$subject" "$suite" --test-threads "$AT_ONCE" || bad=1
        done
    done
    step "nothing is left in the engines" no_containers || bad=1
    return "$bad"
}

# What depends on who one is: files, users, and the rights to the engine.
docker_tests_as_user() {
    local tests name variables=()
    tests=$(build_tests farshell-docker docker) && ordinary_user && usermod -aG docker "$USER_NAME" || return 1
    for name in $(compgen -e FARSHELL_TEST_); do
        variables+=("$name=${!name}")
    done
    as_ordinary_user "${variables[@]}" "$tests" --test-threads "$AT_ONCE" life:: files:: hardening:: hostile:: limits:: faults:: engines::
}

# Fails if tests left containers, or volumes of containers, behind.
no_containers() {
    local address left bad=0
    for address in "$FARSHELL_TEST_DOCKER" "$FARSHELL_TEST_PODMAN"; do
        left=$(docker -H "$address" ps -a --filter label=farshell.owner --format '{{.Names}} {{.Status}}' &&
            docker -H "$address" volume ls --filter label=farshell.task --format 'volume {{.Name}}') || bad=1
        [[ -z $left ]] || { warn "left in $address:"$'\n'"$left"; bad=1; }
    done
    return "$bad"
}
