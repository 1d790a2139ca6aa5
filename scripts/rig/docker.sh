# shellcheck shell=bash
# Component docker: a Docker engine with images, on a private socket. What tests get is listed in README.md.

docker_up() {
    is_root || { skip_part "a Docker engine can only be started by root"; return 1; }
    need dockerd:docker.io docker:docker.io docker-init:docker.io iptables:iptables ip:iproute2 openssl:openssl \
        nsenter:util-linux || return 1
    # shellcheck source=scripts/rig/images.sh
    . "$ROOT/scripts/rig/images.sh" && debian_image && busybox_image || return 1
    export FARSHELL_TEST_ENGINES=$RUN/engines FARSHELL_TEST_ENGINE=$ROOT/scripts/rig/engine
    local main=$FARSHELL_TEST_ENGINES/main
    mkdir -m 711 "$FARSHELL_TEST_ENGINES" || return 1
    "$FARSHELL_TEST_ENGINE" main prepare && throw_away_tls "$main/tls" "IP:$(<"$main/address")" || return 1
    "$FARSHELL_TEST_ENGINE" main start && load_images docker -H "unix://$main/docker.sock" || return 1
    FARSHELL_TEST_DOCKER_TCP=tcp://$(<"$main/address"):2376
    FARSHELL_TEST_DOCKER_GATEWAY=$(<"$main/gateway")
    export FARSHELL_TEST_DOCKER_TCP FARSHELL_TEST_DOCKER_GATEWAY
    export FARSHELL_TEST_DOCKER=unix://$main/docker.sock
    export FARSHELL_TEST_DOCKER_CERTS=$main/tls
    export FARSHELL_TEST_IMAGE=farshell-test/debian:1
    export FARSHELL_TEST_IMAGE_USER=farshell-test/debian-user:1
    export FARSHELL_TEST_BUSYBOX=farshell-test/busybox:1
    export FARSHELL_TEST_BUSYBOX_USER=farshell-test/busybox-user:1
    export FARSHELL_TEST_BUSYBOX_VOLUME=farshell-test/busybox-volume:1
    export FARSHELL_TEST_BUSYBOX_INIT=farshell-test/busybox-init:1
    export FARSHELL_TEST_BUSYBOX_TAR=$BUSYBOX_TAR
}

docker_down() {
    local engine bad=0
    for engine in "$RUN"/engines/*/; do
        [[ -e $engine ]] || continue
        engine=${engine%/}
        FARSHELL_TEST_ENGINES=$RUN/engines "$ROOT/scripts/rig/engine" "${engine##*/}" remove || bad=1
    done
    return "$bad"
}

# throw_away_tls DIRECTORY NAME: a certificate authority for this run, a certificate of the engine's and one of its
# client's, in files with the names that DOCKER_CERT_PATH asks for.
throw_away_tls() {
    if ! make_certificates "$@" >"$RUN/logs/tls.log" 2>&1; then
        tail -n 5 "$RUN/logs/tls.log" >&2
        warn "no certificates could be made"
        return 1
    fi
}

make_certificates() {
    mkdir -p "$1" && cd "$1" || return 1
    openssl req -x509 "${NEW_KEY[@]}" -keyout ca-key.pem -out ca.pem -days 2 -subj "/CN=farshell test" &&
        sign server serverAuth "$2" && sign client clientAuth DNS:client &&
        mv client.pem cert.pem && mv client-key.pem key.pem && chmod 644 ./*.pem
    local status=$?
    cd "$ROOT" && return "$status"
}

readonly NEW_KEY=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)

# sign NAME USAGE SUBJECT
sign() {
    openssl req "${NEW_KEY[@]}" -keyout "$1-key.pem" -out "$1.csr" -subj "/CN=$1" &&
        openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -out "$1.pem" \
            -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=%s\n' "$3" "$2")
}
