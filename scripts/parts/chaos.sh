# shellcheck shell=bash
# Part chaos: the real program while its server is killed again and again, with much at once, on a full disk.

part_chaos() {
    need_rust && need bash:bash strace:strace mount:mount || return 1
    # One at a time: each of them wants the whole machine.
    step "chaos" cargo test --workspace --test chaos --locked -- --test-threads 1 --nocapture
}
