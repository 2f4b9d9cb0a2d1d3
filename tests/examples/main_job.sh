#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# usage: main_job.sh PROGRAM
#
# The log example on every kind of input, in a folder that it removes: the exit code it promises,
# a message where there is something to say, and books that balance whenever anything was sent.
set -u

program=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

# check <what> <exit code> <text in what it prints, or ''> <argument>...: with input on stdin.
check() {
    what=$1
    wanted=$2
    text=$3
    shift 3
    "$program" --fast --svg "$folder/backlog.svg" "$@" > out 2> err
    code=$?
    problem=
    [ "$code" -eq "$wanted" ] || problem="exit code $code, not $wanted"
    [ -z "$text" ] || cat out err | grep -q "$text" || problem="$problem; no '$text'"
    ! grep -q "NOT BALANCED" out || problem="$problem; the books do not balance"
    if [ -z "$problem" ]; then
        echo "ok      $what"
    else
        echo "FAILED  $what: $problem"
        sed 's/^/        /' out err
        failures=$((failures + 1))
    fi
}

line='2024-01-02 03:04:05 startup archives unpack'
lines() {
    n=0
    while [ "$n" -lt "$1" ]; do
        printf '%s%s' "$line" "$2"
        n=$((n + 1))
    done
}
lines 300 '
' > unix.log
{
    lines 200 "$(printf '\r\n_')" | sed 's/^_//'
    printf '%s' "$line"
} > windows.log
: > empty.log
head -c 20000 /dev/urandom > binary.log
mkdir folder
lines 10 '
' > secret.log
chmod 000 secret.log

check "a log" 0 "BALANCED: 300 sent" unix.log < /dev/null
check "CRLF, and a last line without an end" 0 "BALANCED: 201 sent" windows.log < /dev/null
check "standard input" 0 "BALANCED: 300 sent" - < unix.log
check "two inputs" 0 "BALANCED: 600 sent" unix.log unix.log < /dev/null
mkfifo endless
yes "$line" > endless 2> /dev/null &
check "an endless input, bounded" 0 "BALANCED" --seconds 0.5 - < endless
check "a missing file" 2 "missing.log" missing.log < /dev/null
check "a folder" 2 "folder" folder < /dev/null
check "an empty file" 2 "nothing in the input" empty.log < /dev/null
check "no log at all" 2 "no log" binary.log < /dev/null
check "a missing file beside a log: nothing is begun" 2 "missing.log" missing.log unix.log \
    < /dev/null
check "an unknown option" 2 "nonsense" --nonsense < /dev/null
check "an option out of range" 2 "workers" --workers 0 unix.log < /dev/null
if [ "$(id -u)" -ne 0 ]; then
    check "an unreadable file" 2 "secret.log" secret.log < /dev/null
fi
[ -s backlog.svg ] || {
    echo "FAILED  no picture"
    failures=$((failures + 1))
}

[ "$failures" -eq 0 ] && echo "All tests passed"
exit "$failures"
