#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# usage: railctl.sh RAILCTL SAMPLE
#
# Every command of railctl on directories that SAMPLE makes: of a shop that was killed, that closed
# in good order, and that is still open; intact and damaged. In a folder that is removed.
set -u

railctl=$1
sample=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

fail() {
    echo "FAILED  $1"
    sed 's/^/        /' out err
    failures=$((failures + 1))
}
# check <what> <exit code> <text in what it prints, or ''> <argument>...
check() {
    what=$1
    wanted=$2
    text=$3
    shift 3
    "$railctl" "$@" > out 2> err < /dev/null
    code=$?
    problem=
    [ "$code" -eq "$wanted" ] || problem="exit code $code, not $wanted"
    [ -z "$text" ] || cat out err | grep -q -e "$text" || problem="$problem; no '$text'"
    # Nothing from outside may control the terminal.
    ! cat out err | tr -d '\n' | LC_ALL=C grep -q '[[:cntrl:]]' || problem="$problem; control bytes"
    if [ -z "$problem" ]; then echo "ok      $what"; else fail "$what: $problem"; fi
}
sum_of() { cat "$1"/* | cksum; }
# unchanged <directory> <sum before>
unchanged() {
    if [ "$(sum_of "$1")" = "$2" ]; then echo "ok      $1 is as it was"; else fail "$1 changed"; fi
}
# harm <file> <byte>: the byte there becomes another.
harm() {
    byte=$(dd if="$1" bs=1 skip="$2" count=1 2> /dev/null | od -An -tu1 | tr -d ' ')
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\$(printf %o $((byte ^ 64)))" |
        dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null
}

"$sample" shop || { echo "FAILED  no sample"; exit 1; }
"$sample" closed close || exit 1
before=$(sum_of shop)

check "list after a crash" 0 "not closed" list shop
check "list: how many" 0 "orders  *97  *1  *1  *0 " list shop
check "list: options" 0 "max_length=1000" list shop
check "list: exchanges" 0 "exchange events: topic.* alternate spare" list shop
check "list: bindings" 0 "to queue orders key 'order.#'" list shop
check "list: bindings from outside, escaped" 0 "key 'forged.x1b" list shop
check "list: logs" 0 "prices  *1  *3 to 10  *7 " list shop
check "list: an empty partition" 0 "prices  *0  *0 to 0  *0 " list shop
check "list: groups of a log" 0 "group menu.*committed.* 1:4" list shop
check "list after a good end" 0 "closed in good order" list closed
check "verify" 0 "all is well" verify shop
check "verify says how far it is, if asked" 0 "100.0 %" verify shop --progress
check "dump hides payloads" 0 'message_id="order-4"' dump shop orders
if grep -q "number 4" out; then fail "a payload was shown unasked"; fi
check "dump with payloads, escaped" 0 'forged.x0a2026-01-01' dump shop orders --payloads
check "dump: names from outside, escaped" 0 'order-.x0d.x9b' dump shop orders
check "dump, some" 0 "^\.\.\.$" dump shop orders --limit 3
check "dead letters" 0 "2 dead letter" dead shop
check "dead letters of a queue, with the reason" 0 'rejected.*"no milk.x0a.xe2.x80.xae"' dead shop orders.dead
unchanged shop "$before"

check "redrive one" 0 "1 message(s) moved" redrive shop orders.dead orders --id 1
check "redrive one that is not there" 1 "has not all" redrive shop orders.dead orders --id 77
check "redrive all" 0 "1 message(s) moved" redrive shop orders.dead orders --all
check "redriven: none is left" 0 "orders.dead  *0  *0  *0  *0 " list shop
check "redriven: they are in the other queue" 0 "orders  *99  *1  *1  *0 " list shop
check "redrive does not hide the crash" 0 "not closed" list shop
check "redrive to no queue" 1 "no queue" redrive shop orders nowhere --all

cp -r shop hurt
harm hurt/0000000000000001.journal 3000
before=$(sum_of hurt)
check "verify finds damage" 1 "DAMAGED bytes .* of 0000000000000001.journal.* is lost" verify hurt
check "salvage" 1 "hurt is as it was" salvage hurt saved
unchanged hurt "$before"
check "salvaged: it is whole" 0 "all is well" verify saved
check "salvaged: it can be read" 0 "orders" list saved
check "salvaged: its exchanges, too" 0 "to queue orders key 'order.#'" list saved
if "$sample" saved close > out 2> err; then echo "ok      salvaged: a broker opens it"; else fail "a broker cannot open it"; fi
check "salvage never writes over a journal" 1 "already" salvage hurt closed

last=$(ls shop/*.journal | tail -n 1)
cp -r shop hurt2
harm "hurt2/$(basename "$last")" 100
before=$(sum_of hurt2)
check "list of what a broker would refuse" 1 "railctl salvage" list hurt2
if "$sample" hurt2 > out 2> err; then
    fail "a broker opened a damaged directory"
elif ! grep -q "salvage" err; then
    fail "the broker names no way out"
else
    echo "ok      a broker refuses it, and says what can be done"
fi
rm -f hurt2/LOCK
cp -p hurt/LOCK hurt2/LOCK
check "salvage where the end is hurt" 1 "DAMAGED" salvage hurt2 saved2
check "salvaged again" 0 "orders" list saved2

check "no directory" 1 "missing" list missing
[ ! -e missing ] || fail "one was made"
mkdir empty
check "nothing in it" 1 "no journal" list empty
check "no such queue" 1 "no queue" dump shop nothing
check "no command" 2 "usage"
check "an unknown command" 2 "no such command" frobnicate shop
check "an unknown option" 2 "no option" list shop --nonsense
check "redrive needs to know which" 2 "either" redrive shop a b
check "help" 0 "usage" --help

mkfifo wait
"$sample" open hold < wait > ready &
owner=$!
exec 3> wait
while ! grep -q ready ready; do kill -0 "$owner" 2> /dev/null || break; done
check "while a broker has it open: who" 1 "process $owner" list open
check "verify while a broker has it open" 1 "process $owner" verify open
check "redrive while a broker has it open" 1 "process $owner" redrive open a b --all
check "salvage while a broker has it open" 1 "process $owner" salvage open other
exec 3>&-
wait "$owner"
check "and afterwards" 0 "closed in good order" list open

[ "$failures" -eq 0 ] && echo "All tests passed"
exit "$failures"
