# shellcheck shell=bash
# Component registry: a registry of images, inside the network of component docker's engine, where nobody else reaches
# it. What it sends is slowed down, so that a pull takes long enough to be seen.

REGISTRY_PIDS=()
# The sizes of images, one for each test that pulls: who pulls one removes it from the engine again. The last takes
# five seconds.
readonly REGISTRY_MB=(12 1 16) REGISTRY_RATE=24mbit
# The hash of "test-password".
# shellcheck disable=SC2016  # no variable
readonly REGISTRY_USER='tester:$2b$04$abcdefghijklmnopqrstuuobFaEJANklW4I6zZpcLRbXjrME4Qa2m'

registry_up() {
    bring_up docker && need docker-registry:docker-registry tc:iproute2 || return 1
    local dir=$RUN/registry
    mkdir "$dir" && printf '%s\n' "$REGISTRY_USER" >"$dir/users" || return 1
    registry_settings "$dir" 5000 >"$dir/open.yml" || return 1
    { registry_settings "$dir" 5001 && printf 'auth:\n  htpasswd: {realm: test, path: %s/users}\n' "$dir"; } >"$dir/private.yml" || return 1
    registry_start open 5000 && registry_start private 5001 && registry_fill || return 1
    registry_slow || return 1
    export FARSHELL_TEST_REGISTRY=127.0.0.1:5000 FARSHELL_TEST_REGISTRY_PRIVATE=127.0.0.1:5001
}

# registry_settings DIRECTORY PORT
registry_settings() {
    cat <<YAML
version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $1/images}}
http: {addr: "127.0.0.1:$2"}
YAML
}

# registry_start NAME PORT
registry_start() {
    local net=$FARSHELL_TEST_ENGINES/main/net left=100
    start_process "registry-$1" nsenter --net="$net" docker-registry serve "$RUN/registry/$1.yml"
    REGISTRY_PIDS+=("$STARTED")
    until nsenter --net="$net" bash -c ": </dev/tcp/127.0.0.1/$2" 2>/dev/null; do
        if ! kill -0 "$STARTED" 2>/dev/null || ((left-- == 0)); then
            tail -n 20 "$RUN/logs/registry-$1.log" >&2
            warn "the registry did not come up"
            return 1
        fi
        sleep 0.1
    done
}

# Puts images into it that the engine does not have: busybox, and noise that can't be made smaller.
registry_fill() {
    local number name tar=$RUN/registry/image.tar
    mkdir "$RUN/registry/noise" || return 1
    for ((number = 1; number <= ${#REGISTRY_MB[@]}; number++)); do
        name=127.0.0.1:5000/farshell-test/pull-$number:1
        cp "$BUSYBOX_TAR" "$tar" && head -c "${REGISTRY_MB[number - 1]}M" /dev/urandom >"$RUN/registry/noise/noise" &&
            tar -C "$RUN/registry" -rf "$tar" ./noise &&
            docker -H "$FARSHELL_TEST_DOCKER" import "$tar" "$name" && docker -H "$FARSHELL_TEST_DOCKER" push "$name" &&
            docker -H "$FARSHELL_TEST_DOCKER" rmi "$name" || return 1
    done
    rm -rf "$tar" "$RUN/registry/noise"
} >"$RUN/logs/registry-fill.log"

registry_slow() {
    nsenter --net="$FARSHELL_TEST_ENGINES/main/net" tc qdisc add dev lo root tbf rate "$REGISTRY_RATE" burst 256kb latency 1s
}

registry_down() {
    local pid
    for pid in ${REGISTRY_PIDS[@]+"${REGISTRY_PIDS[@]}"}; do
        stop_process "$pid"
    done
    REGISTRY_PIDS=()
    rm -rf --one-file-system "$RUN/registry"
}
