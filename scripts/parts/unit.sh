# shellcheck shell=bash
# Part unit: everything that needs nothing but the toolchain.

part_unit() {
    # dash for sessions in a place without bash; tmux, less and vi for interactive terminals.
    need_rust && need bash:bash /bin/dash:dash tmux:tmux less:less vi:vim || return 1
    local bad=0
    step "format" cargo fmt --all --check || bad=1
    step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings || bad=1
    step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked || bad=1
    step "examples in the documentation" cargo test --doc --workspace --locked --quiet || bad=1
    step "tests" plain_home unit_tests || bad=1
    step "a minute of random commands for the shell grammar, and of random text for redaction" fuzz || bad=1
    return "$bad"
}

# The tests of all crates, the protocol's fuzz smoke among them. The conformance suite and chaos are parts of their own,
# and so are tests that need a rig, which are in test programs called after their part.
unit_tests() {
    local which=(--workspace --exclude farshell-conformance --locked)
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run "${which[@]}" --no-fail-fast -E 'not binary(chaos) and not binary(daytona) and not binary(docker) and not binary(ssh) and not binary(mcp) and not binary(modal) and not binary(singularity) and not binary(slurm)'
    else
        echo "cargo-nextest is not installed: cargo test does"
        local programs=() name
        for name in $(test_programs | grep -vxE 'chaos|conformance|daytona|docker|mcp|modal|singularity|slurm|ssh'); do
            programs+=(--test "$name")
        done
        cargo test "${which[@]}" --lib --bins "${programs[@]}" --no-fail-fast
    fi
}

# What the fuzz targets of the policy do, on the toolchain that is here, with other input each time.
fuzz() {
    FARSHELL_FUZZ_SECONDS=60 cargo test -p farshell-policy --locked --test smoke -- commands redaction
}

# The names of the test programs of all crates.
test_programs() {
    cargo metadata --no-deps --format-version 1 --locked |
        grep -oE '"kind":\["test"\],"crate_types":\["bin"\],"name":"[^"]+"' | sed 's/.*:"//; s/"$//' | sort -u
}
