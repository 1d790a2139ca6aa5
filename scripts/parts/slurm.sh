# shellcheck shell=bash
# Part slurm: instances of the Singularity backend as jobs of a real Slurm, with several nodes on this machine.
#
# As an ordinary user, like users of clusters; what an administrator does is done by the component. The program's run as this
# user.

part_slurm() {
    need_rust && need bash:bash setpriv:util-linux && bring_up apptainer && bring_up slurm && ordinary_user || return 1
    local suite tests bad=0 round
    tests=$(build_tests farshell-singularity slurm) && suite=$(build_suite) || return 1
    # They wait for Slurm more than they work.
    step "tests with Slurm as an ordinary user" as_user_of_apptainer "$tests" '' --test-threads 6 || bad=1
    step "tests of the program" program_tests slurm || bad=1
    for ((round = 1; round <= REPEAT; round++)); do
        step "conformance on slurm as an ordinary user, round $round of $REPEAT" \
            as_user_of_apptainer "$suite" slurm --test-threads "$AT_ONCE" || bad=1
    done
    return "$bad"
}
