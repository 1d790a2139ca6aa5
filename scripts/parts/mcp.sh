# shellcheck shell=bash
# Part mcp: the tools as the official Python client meets them, on this machine and, for root, in containers.

part_mcp() {
    need_rust && need bash:bash git:git && bring_up mcp || return 1
    # Without an engine its tests say that they are skipped.
    ! is_root || bring_up docker || return 1
    # Half of it is waiting.
    step "the Python client" tests_called mcp --test-threads 4
}
