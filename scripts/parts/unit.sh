# shellcheck shell=bash
# Part unit: everything that needs nothing but the toolchain.

part_unit() {
    # dash, for sessions in a place without bash.
    need_rust && need bash:bash /bin/dash:dash || return 1
    local bad=0
    step "format" cargo fmt --all --check || bad=1
    step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings || bad=1
    step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked || bad=1
    step "examples in the documentation" cargo test --doc --workspace --locked --quiet || bad=1
    step "tests" unit_tests || bad=1
    return "$bad"
}

# The tests of all crates, the protocol's fuzz smoke among them. The conformance suite is a part of its own.
unit_tests() {
    local which=(--workspace --exclude farshell-conformance --locked)
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run "${which[@]}" --no-fail-fast
    else
        echo "cargo-nextest is not installed: cargo test does"
        cargo test "${which[@]}" --all-targets --no-fail-fast
    fi
}
