# shellcheck shell=bash
# Component slurm: a cluster on this machine, with nodes that are a daemon each. What tests get:
#
#   FARSHELL_TEST_SLURM           its configuration, for SLURM_CONF
#   FARSHELL_TEST_SLURM_CONTROL   a pipe that takes the administrator's commands, a line each: `down NODE`, `stop NODE`,
#                                 `kill NODE`, `up NODE`
#
# Partitions: `wide` (n1, n2) is what jobs get, `narrow` (n3) has room for one, `frail` (n4) is for tests that break their
# node. Jobs are not kept to what they ask for: that takes control groups of the machine.

SLURM_NODES=(n1 n2 n3 n4)

slurm_up() {
    need slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge || return 1
    is_root || { skip_part "Slurm's daemons are only started by root"; return 1; }
    local dir=$RUN/slurm base node host tries=100
    host=$(uname -n)
    host=${host%%.*}
    mkdir -p "$dir"/{munge,state,pids} && chmod 755 "$dir" || return 1
    for node in "${SLURM_NODES[@]}"; do
        mkdir -p "$dir/spool/$node" || return 1
    done
    slurm_munge "$dir/munge" || return 1
    base=$(slurm_ports) || return 1
    cat >"$dir/slurm.conf" <<TEXT || return 1
ClusterName=farshell-test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$base
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$RUN/logs/slurmctld.log
SlurmdLogFile=$RUN/logs/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
SlurmdTimeout=60
MailProg=/bin/true
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + 2))] CPUs=32 RealMemory=200000 State=UNKNOWN
NodeName=n3 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + 3)) CPUs=1 RealMemory=20000 State=UNKNOWN
NodeName=n4 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + 4)) CPUs=4 RealMemory=20000 State=UNKNOWN
PartitionName=wide Nodes=n[1-2] Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
PartitionName=narrow Nodes=n3 MaxTime=INFINITE DefaultTime=60 State=UP
PartitionName=frail Nodes=n4 MaxTime=INFINITE DefaultTime=60 State=UP
TEXT
    export SLURM_CONF=$dir/slurm.conf
    start_process slurmctld slurmctld -D -i -f "$SLURM_CONF" && slurm_started ctld "$STARTED"
    for node in "${SLURM_NODES[@]}"; do
        slurm_node "$node"
    done
    until [[ $(sinfo --noheader --Node --states=idle -o %N 2>/dev/null | sort -u | wc -l) == "${#SLURM_NODES[@]}" ]]; do
        ((tries--)) || { slurm_complain; return 1; }
        sleep 0.1
    done
    mkfifo -m 622 "$dir/control" || return 1
    slurm_control "$dir/control" &
    slurm_started control $!
    export FARSHELL_TEST_SLURM=$SLURM_CONF FARSHELL_TEST_SLURM_CONTROL=$dir/control
}

# slurm_munge DIRECTORY: a daemon by which the others know who is who, with a key of its own.
slurm_munge() {
    install -d -m 755 -o munge -g munge "$1" && dd if=/dev/urandom of="$1/key" bs=1024 count=1 status=none &&
        chown munge: "$1/key" && chmod 400 "$1/key" || return 1
    start_process munged setpriv --reuid munge --regid munge --clear-groups munged --foreground --force --socket="$1/socket" \
        --key-file="$1/key" --pid-file="$1/pid" --log-file="$1/log" --seed-file="$1/seed"
    slurm_started munged "$STARTED"
    local tries=100
    until [[ -S $1/socket ]]; do
        ((tries--)) || { cat "$RUN/logs/munged.log" >&2; return 1; }
        sleep 0.1
    done
}

slurm_node() {
    start_process "slurmd-$1-start" slurmd -D -N "$1" -f "$SLURM_CONF"
    slurm_started "$1" "$STARTED"
}

# The number of each process is in a file while it runs: they are started and stopped from two shells.
slurm_started() {
    echo "$2" >"$RUN/slurm/pids/$1"
}

# slurm_pid NAME
slurm_pid() {
    cat "$RUN/slurm/pids/$1" 2>/dev/null
}

# Prints the first of five ports in a row that nobody uses.
slurm_ports() {
    local tries=50 base
    while ((tries--)); do
        base=$((20000 + RANDOM % 10000))
        ss -Htln "sport >= :$base and sport <= :$((base + 4))" 2>/dev/null | grep -q . || { echo "$base"; return 0; }
    done
    warn "no five ports in a row are free"
    return 1
}

slurm_complain() {
    warn "Slurm's nodes did not come up"
    sinfo >&2
    tail -n 20 "$RUN"/logs/slurm*.log >&2
}

# slurm_control PIPE: does what an administrator, or bad luck, would do.
slurm_control() {
    local verb node
    # Open for both, so that it does not end when a writer does.
    exec 7<>"$1"
    while read -r verb node <&7; do
        [[ " ${SLURM_NODES[*]} " == *" $node "* ]] || continue
        case $verb in
            down) scontrol update "NodeName=$node" State=DOWN Reason=test ;;
            stop) slurm_stop "$node" ;;
            kill) slurm_kill "$node" ;;
            up)
                slurm_node "$node"
                scontrol update "NodeName=$node" State=RESUME
                ;;
        esac
    done
}

# slurm_stop NODE: its daemon. What runs in its jobs goes on.
slurm_stop() {
    local pid tries=100
    pid=$(slurm_pid "$1") || return 0
    kill -9 "$pid"
    while kill -0 "$pid" && ((tries--)); do
        sleep 0.05
    done
    # Another process may get its number from here on.
    rm -f "$RUN/slurm/pids/$1"
} 2>/dev/null

# slurm_kill NODE: as if the machine had lost its power: its daemon, and all that runs in its jobs.
slurm_kill() {
    local job pid
    slurm_stop "$1"
    for job in $(squeue --noheader --nodelist="$1" -o %A); do
        # shellcheck disable=SC2013  # a word each
        for pid in $(grep -sl "^slurmstepd: \[$job\." /proc/[0-9]*/cmdline | cut -d/ -f3); do
            # shellcheck disable=SC2046  # a word each
            kill -9 "$pid" $(descendants "$pid")
        done
    done 2>/dev/null
}

descendants() {
    local child
    for child in $(pgrep -P "$1"); do
        echo "$child"
        descendants "$child"
    done
}

slurm_down() {
    local name pid
    for name in control "${SLURM_NODES[@]}" ctld munged; do
        if pid=$(slurm_pid "$name"); then
            stop_process "$pid"
        fi
    done
    kill_processes_of "$RUN/slurm"
    rm -rf --one-file-system "$RUN/slurm"
}
