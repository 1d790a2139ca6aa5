# shellcheck shell=bash
# Test programs by their names.
#
# They are those of the whole workspace, built as part unit has built them: a crate alone has other features of its
# dependencies, and would be built again.

# tests_called NAME [OPTION…]: the test programs of that name, of all crates. The options are nextest's.
tests_called() {
    local name=$1
    shift
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace --locked --no-fail-fast "$@" -E "binary($name)"
    else
        cargo test --workspace --locked --no-fail-fast --test "$name"
    fi
}

# program_tests NAME: the one of the program itself.
program_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace --locked --no-fail-fast -E "package(farshell) and binary($1)"
    else
        cargo test -p farshell --locked --no-fail-fast --test "$1"
    fi
}
