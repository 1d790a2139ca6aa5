# shellcheck shell=bash
# Part ssh: the SSH backend on real daemons.
#
# Its own tests, then the conformance suite on a stock daemon, on one that forwards nothing, and through a jump host. The
# last two differ from the first in how a stream is carried and in nothing else: unless the part is named, they run
# what depends on that.

part_ssh() {
    need_rust && bring_up ssh || return 1
    local suite bad=0 round subject
    # Lines are cut for a minute in some, so several run at once.
    step "tests with hosts" tests_called ssh --test-threads "$AT_ONCE" || bad=1
    suite=$(build_suite) || return 1
    for ((round = 1; round <= REPEAT; round++)); do
        for subject in ssh ssh-session ssh-jump; do
            # No text: all of it.
            local filter filters=('')
            [[ $subject == ssh ]] || ((NAMED)) || filters=(resume:: stdin:: kill::)
            for filter in "${filters[@]}"; do
                step "conformance on $subject${filter:+, $filter}, round $round of $REPEAT" \
                    run_suite "$subject" "$suite" --test-threads "$AT_ONCE" ${filter:+"$filter"} || bad=1
            done
        done
    done
    return "$bad"
}
