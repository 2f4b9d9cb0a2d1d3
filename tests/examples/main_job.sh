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

# With a directory, killed in the middle again and again: the end is the same as in memory, and
# every line counts once.
n=0
while [ "$n" -lt 8000 ]; do
    if [ $((n % 97)) -eq 0 ]; then
        echo "nobody knows when"
    elif [ $((n % 101)) -eq 0 ]; then
        echo
    else
        echo "2024-01-02 $((10 + n / 600 % 14)):$((10 + n / 10 % 50)):05 daemon$((n % 7)) word$((n % 9))s"
    fi
    n=$((n + 1))
done > long.log
# What the program found out: the index, and how many dead letters for which reason.
results() {
    sed -n -e '/^The index/,/^The dead letters/p' -e '/^ *[0-9,]*  no timestamp/p' out
}
check "a long log" 0 "BALANCED: 7,921 sent = 7,838 indexed + 83 dead letters" long.log < /dev/null
results > expected
killed=0
for moment in 0.1 0.3 0.43 0.45 0.48 0.5 0.55 0.6; do
    "$program" --fast --svg backlog.svg --directory kept long.log < /dev/null > out 2> err &
    victim=$!
    sleep "$moment"
    kill -9 "$victim" 2> /dev/null
    wait "$victim" 2> /dev/null
    [ $? -ne 137 ] || killed=$((killed + 1))
done
check "a directory, after $killed kills" 0 \
    "BALANCED: 7,921 sent = 7,838 indexed + 83 dead letters" --directory kept long.log < /dev/null
results > found
cmp expected found || {
    echo "FAILED  the kills have changed the result"
    failures=$((failures + 1))
}
[ "$killed" -ge 3 ] || {
    echo "FAILED  it was killed $killed times only"
    failures=$((failures + 1))
}
check "it can be asked again" 0 "sent before: 7,921 lines, waiting: 0" --directory kept long.log \
    < /dev/null
check "the directory of another input" 2 "other inputs" --directory kept unix.log < /dev/null
check "a queue of another length" 2 "max_length" --directory kept --queue 9 long.log < /dev/null
check "a directory that is a file" 2 "unix.log" --directory unix.log long.log < /dev/null
yes "$line" > endless 2> /dev/null &
check "stopped by time" 0 "BALANCED" --directory stopped --seconds 0.5 - < endless

[ -s backlog.svg ] || {
    echo "FAILED  no picture"
    failures=$((failures + 1))
}

[ "$failures" -eq 0 ] && echo "All tests passed"
exit "$failures"
