# Arguments: a name nobody can guess, the helper's text. Says "ready DIRECTORY", then "ask PID" for each sudo that wants
# a password, and passes on the line that comes back: "+password" or "-reason". Both live in pipes and in this shell only.
umask 077
unset d x
for t in "${XDG_RUNTIME_DIR-}" "${TMPDIR-}" /tmp /var/tmp /dev/shm "${HOME-}"; do
    [ -n "$t" ] && mkdir "$t/.farshell-$1" 2>/dev/null || continue
    d=$t/.farshell-$1
    # Not where programs may not be run.
    printf '%s' "$2" >"$d/askpass" && chmod 700 "$d/askpass" && mkfifo "$d/q" && "$d/askpass" --check && break
    rm -rf "$d"
    d=
done 2>/dev/null
[ -n "${d-}" ] || { echo 'no directory for it'; exit 1; }
leave() {
    for a in "$d"/a[0-9]*; do
        [ -p "$a" ] && echo '-nobody answers any more' 1<>"$a"
    done
    rm -rf "$d"
}
trap leave EXIT
trap 'exit 1' HUP INT TERM
exec 3<>"$d/q"
echo "ready $d"
while read -r n <&3; do
    case $n in '' | *[!0-9]*) continue ;; esac
    [ -p "$d/a$n" ] || continue
    # Only sudo itself gets it, which runs as root. A process that can't be seen is not one of this user's.
    p='' u=0 c=sudo
    while read -r k v r; do [ "$k" = PPid: ] && p=$v; done <"/proc/$n/status"
    [ -n "$p" ] || continue
    [ ! -r "/proc/$p/status" ] || while read -r k v e r; do
        case $k in Name:) c=$v ;; Uid:) u=$e ;; esac
    done <"/proc/$p/status"
    case $u$c in
    0sudo*)
        echo "ask $p"
        IFS= read -r x || exit 1
        ;;
    *) x='-only sudo gets the password' ;;
    esac
    printf '%s\n' "$x" 1<>"$d/a$n"
    x=
done 2>/dev/null
