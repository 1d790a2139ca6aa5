# shellcheck shell=bash
# Component podman: podman's service on a private socket, with the same images as component docker.

PODMAN_PID=''

podman_up() {
    is_root || { skip_part "podman's service is only tested as root"; return 1; }
    # The docker client asks whether it is up.
    need podman:podman conmon:conmon runc:runc catatonit:catatonit docker:docker.io iptables:iptables ip:iproute2 \
        nsenter:util-linux '/usr/lib/cni/bridge:containernetworking-plugins' || return 1
    # shellcheck source=scripts/rig/images.sh
    . "$ROOT/scripts/rig/images.sh" && debian_image && busybox_image || return 1
    local dir=$RUN/podman
    mkdir -p "$dir/cni" && podman_settings "$dir" && : >"$dir/net" && unshare --net="$dir/net" true || return 1
    nsenter --net="$dir/net" ip link set lo up || return 1
    start_process podman podman_here system service --time 0 "unix://$dir/podman.sock"
    PODMAN_PID=$STARTED
    local left=300
    until docker -H "unix://$dir/podman.sock" version >/dev/null 2>&1; do
        if ! kill -0 "$PODMAN_PID" 2>/dev/null || ((left-- == 0)); then
            tail -n 20 "$RUN/logs/podman.log" >&2
            warn "podman did not come up"
            return 1
        fi
        sleep 0.1
    done
    load_images podman_here 2>"$RUN/logs/podman-images.log" || return 1
    export FARSHELL_TEST_PODMAN=unix://$dir/podman.sock
    # Podman gives an image that was imported without a registry's name one that says so.
    export FARSHELL_TEST_PODMAN_IMAGE=localhost/farshell-test/debian:1
}

# podman_here ARGUMENT…: podman with the settings, the directories and the network of this run.
podman_here() {
    env CONTAINERS_CONF="$RUN/podman/containers.conf" CONTAINERS_STORAGE_CONF="$RUN/podman/storage.conf" \
        nsenter --net="$RUN/podman/net" podman --root "$RUN/podman/root" --runroot "$RUN/podman/run" \
        --tmpdir "$RUN/podman/tmp" --network-config-dir "$RUN/podman/cni" "$@"
}

# podman_settings DIRECTORY: locks in files and not in memory that all podmans of a machine share; cgroups without systemd;
# addresses noted below the run's directory; no limit of processes or files above what this machine allows root, which
# podman asks for otherwise.
podman_settings() {
    cat >"$1/containers.conf" <<TOML
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "runc"
network_cmd_path = ""
[containers]
init_path = "$(command -v catatonit)"
default_ulimits = ["nofile=$(podman_limit n)", "nproc=$(podman_limit u)"]
log_driver = "k8s-file"
[network]
network_backend = "cni"
TOML
    cat >"$1/storage.conf" <<TOML
[storage]
driver = "overlay"
graphroot = "$1/root"
runroot = "$1/run"
TOML
    cat >"$1/cni/podman.conflist" <<JSON
{
  "cniVersion": "0.4.0",
  "name": "podman",
  "plugins": [
    {
      "type": "bridge", "bridge": "podman0", "isGateway": true, "ipMasq": true,
      "ipam": {
        "type": "host-local", "dataDir": "$1/addresses", "routes": [{ "dst": "0.0.0.0/0" }],
        "ranges": [[{ "subnet": "10.88.0.0/16", "gateway": "10.88.0.1" }]]
      }
    }
  ]
}
JSON
}

# podman_limit LETTER: the hard limit of that kind. Podman lowers its own number of processes to what the kernel has
# numbers for.
podman_limit() {
    local limit most
    limit=$(ulimit "-H$1") most=$(</proc/sys/kernel/pid_max)
    [[ $limit != unlimited ]] && ((limit < most)) || limit=$most
    printf '%s:%s' "$limit" "$limit"
}

podman_down() {
    local dir=$RUN/podman
    [[ -d $dir ]] || return 0
    if [[ -e $dir/net ]]; then
        podman_here rm --all --force --volumes --time 0 >"$RUN/logs/podman-down.log" 2>&1
    fi
    [[ -z $PODMAN_PID ]] || stop_process "$PODMAN_PID"
    # Conmons and containers of a service that was killed.
    kill_processes_of "$dir"
    unmount_below "$dir" || return 1
    rm -rf --one-file-system "$dir"
}
