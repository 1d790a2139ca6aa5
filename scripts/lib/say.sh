# shellcheck shell=bash
# What a person reads: headings, steps, and the table at the end.

if [[ -t 1 && -z ${NO_COLOR-} ]]; then
    readonly BOLD=$'\e[1m' RED=$'\e[31m' GREEN=$'\e[32m' YELLOW=$'\e[33m' PLAIN=$'\e[0m'
else
    readonly BOLD='' RED='' GREEN='' YELLOW='' PLAIN=''
fi

# One line for each part: name, result, seconds.
RESULTS=()
# Why a part was left out, set by skip_part.
SKIPPED=''

in_ci() {
    [[ -n ${CI-} && ${CI-} != false ]]
}

say() {
    printf '%s==> %s%s\n' "$BOLD" "$*" "$PLAIN"
}

warn() {
    printf 'scripts/test: %s\n' "$*" >&2
}

# step TITLE COMMAND…: runs a command under a heading and says how long it took. Its status is the command's.
step() {
    local title=$1 begun=$SECONDS status
    shift
    say "$title"
    "$@"
    status=$?
    if ((status)); then
        printf '%s%s: failed (exit code %d)%s\n' "$RED" "$title" "$status" "$PLAIN"
    else
        printf '%s: %d s\n' "$title" $((SECONDS - begun))
    fi
    return "$status"
}

# skip_part REASON: the part can't run here. A failure in CI, a visible skip elsewhere.
skip_part() {
    warn "$1"
    in_ci || SKIPPED=$1
    return 1
}

# run_part NAME COMMAND…: runs a part and notes what became of it.
run_part() {
    local name=$1 begun=$SECONDS result=passed
    shift
    SKIPPED=''
    say "part $name"
    if ! "$@"; then
        result=failed
        [[ -z $SKIPPED ]] || result="skipped: $SKIPPED"
    fi
    RESULTS+=("$name|$result|$((SECONDS - begun))")
}

# Prints the table. Fails if a part did.
summary() {
    local line name result seconds colour passed=0 failed=0 skipped=0
    printf '\n%s%-10s %6s  %s%s\n' "$BOLD" part time result "$PLAIN"
    for line in "${RESULTS[@]}"; do
        IFS='|' read -r name result seconds <<<"$line"
        case $result in
            passed) colour=$GREEN passed=$((passed + 1)) ;;
            failed) colour=$RED failed=$((failed + 1)) ;;
            *) colour=$YELLOW skipped=$((skipped + 1)) ;;
        esac
        printf '%-10s %4d s  %s%s%s\n' "$name" "$seconds" "$colour" "$result" "$PLAIN"
    done
    printf 'parts: %d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}
