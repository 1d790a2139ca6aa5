# shellcheck shell=bash
# Component ssh: hosts with a real sshd, in network namespaces of their own, and users with a home below $RUN. What
# tests get:
#
#   FARSHELL_TEST_SSH                 address of a stock sshd, port in FARSHELL_TEST_SSH_PORT
#   FARSHELL_TEST_SSH_KEY             a private key that opens all accounts on all hosts
#   FARSHELL_TEST_SSH_USER, _SECOND   accounts with bash
#   FARSHELL_TEST_SSH_USER_FISH, _CSH, _SH, _NOISY   accounts with that login shell; a .bashrc that talks
#   FARSHELL_TEST_SSH_HOMES           where their homes are: user, user_second, …
#   FARSHELL_TEST_SSH_BEHIND          address of a host that only FARSHELL_TEST_SSH reaches
#   FARSHELL_TEST_SSH_SESSION         address of a host that forwards nothing
#   FARSHELL_TEST_SSHD, _SSHDS        program and directory for hosts of a test's own, see scripts/rig/sshd

SSH_USERS=()

ssh_up() {
    is_root || { skip_part "an SSH daemon for several users can only be started by root"; return 1; }
    need sshd:openssh-server ssh:openssh-client fish:fish tcsh:tcsh /bin/dash:dash ip:iproute2 tc:iproute2 iptables:iptables \
        nsenter:util-linux useradd:passwd pkill:procps || return 1
    export FARSHELL_TEST_SSHDS=$RUN/sshds FARSHELL_TEST_SSHD=$ROOT/scripts/rig/sshd
    mkdir -m 711 "$FARSHELL_TEST_SSHDS" "$RUN/homes" || return 1
    ssh-keygen -q -t ed25519 -N '' -C test -f "$RUN/ssh-key" || return 1
    install -m 644 "$RUN/ssh-key.pub" "$FARSHELL_TEST_SSHDS/authorized_keys" || return 1
    export FARSHELL_TEST_SSH_KEY=$RUN/ssh-key FARSHELL_TEST_SSH_PORT=2222
    ssh_user USER /bin/bash && ssh_user USER_SECOND /bin/bash && ssh_user USER_FISH "$(command -v fish)" &&
        ssh_user USER_CSH "$(command -v tcsh)" && ssh_user USER_SH /bin/dash && ssh_user USER_NOISY /bin/bash || return 1
    # It talks on both outputs before anything else runs, without an end of line at last.
    cat >"$RUN/homes/user_noisy/.bashrc" <<'RC'
echo "Welcome to $(hostname)! farshell: no mail"
echo "a warning" >&2
printf 'last login: never'
RC
    "$FARSHELL_TEST_SSHD" main start && "$FARSHELL_TEST_SSHD" behind behind main &&
        "$FARSHELL_TEST_SSHD" session start 'DisableForwarding yes' || return 1
    FARSHELL_TEST_SSH=$(<"$FARSHELL_TEST_SSHDS/main/address")
    FARSHELL_TEST_SSH_BEHIND=$(<"$FARSHELL_TEST_SSHDS/behind/address")
    FARSHELL_TEST_SSH_SESSION=$(<"$FARSHELL_TEST_SSHDS/session/address")
    export FARSHELL_TEST_SSH FARSHELL_TEST_SSH_BEHIND FARSHELL_TEST_SSH_SESSION FARSHELL_TEST_SSH_HOMES=$RUN/homes
}

# ssh_user NAME SHELL: an account for this run, named in FARSHELL_TEST_SSH_NAME. The star is a password that no text
# matches, and no lock.
ssh_user() {
    local name=fsh$$${1,,} home=$RUN/homes/${1,,}
    name=${name//_/}
    useradd --user-group --no-create-home --home-dir "$home" --shell "$2" --password '*' "$name" || return 1
    SSH_USERS+=("$name")
    install -d -m 700 -o "$name" -g "$name" "$home" || return 1
    export "FARSHELL_TEST_SSH_$1=$name"
}

ssh_down() {
    local host user bad=0
    for host in "$RUN"/sshds/*/; do
        [[ -e $host ]] || continue
        host=${host%/}
        FARSHELL_TEST_SSHDS=$RUN/sshds "$ROOT/scripts/rig/sshd" "${host##*/}" remove || bad=1
    done
    for user in ${SSH_USERS[@]+"${SSH_USERS[@]}"}; do
        userdel "$user" >/dev/null 2>&1 || bad=1
    done
    return "$bad"
}
