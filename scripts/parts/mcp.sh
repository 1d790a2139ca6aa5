# shellcheck shell=bash
# Part mcp: the tools as the official Python client meets them, on this machine and, for root, in containers.

part_mcp() {
    need_rust && need bash:bash git:git && bring_up mcp || return 1
    # Without an engine its tests say that they are skipped.
    ! is_root || bring_up docker || return 1
    step "the Python client" mcp_tests
}

# Half of it is waiting.
mcp_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace --locked --no-fail-fast --test-threads 4 -E 'binary(mcp)'
    else
        cargo test -p farshell --locked --no-fail-fast --test mcp
    fi
}
