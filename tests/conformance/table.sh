#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# usage: sh table.sh <root of the source tree> > docs/conformance.md
#        sh table.sh <root of the source tree> --check
#
# Prints which test holds each behaviour that the test suites of peers demand, and each of their
# public faults, by the ids that tests name: `[A01]`. What no test has is listed in open.txt with
# the reason. Fails if an id has neither a test nor a reason, or both; with --check, also if
# docs/conformance.md is not what would be printed.
set -eu
export LC_ALL=C

if [ "${2:-}" = --check ]; then
    printed=$(mktemp)
    trap 'rm -f "$printed"' EXIT
    sh "$0" "$1" > "$printed"
    if ! diff "$1/docs/conformance.md" "$printed"; then
        echo "docs/conformance.md is old: sh tests/conformance/table.sh . > docs/conformance.md" >&2
        exit 1
    fi
    exit 0
fi
cd "$1/tests"
find . -name '*.cpp' | sort | xargs awk '
BEGIN {
    # How many there are in each group.
    split("A 15 B 15 C 20 D 19 E 12 F 13 G 11 H 15 I 14 J 15 K 17 L 26 M 15 N 27 O 10 P 14 Q 8 " \
          "R 16 S 18 T 20 U 15 V 13 W 5 X 7 Y 10 Z 10 BR 25 BX 23", groups, " ")
    title["A"] = "Publish and subscribe"; title["B"] = "Settlement"
    title["C"] = "Competing consumers"; title["D"] = "Leases"; title["E"] = "Blocking receive"
    title["F"] = "Order"; title["G"] = "Priorities"; title["H"] = "Time to live"
    title["I"] = "Delays and schedules"; title["J"] = "Limits"; title["K"] = "Retries"
    title["L"] = "Dead letters"; title["M"] = "Deduplication"; title["N"] = "Routing"
    title["O"] = "Names and arguments"; title["P"] = "Logs: records and offsets"
    title["Q"] = "Logs: by time"; title["R"] = "Logs: retention"; title["S"] = "Logs: compaction"
    title["T"] = "After a crash"; title["U"] = "Groups: members"; title["V"] = "Groups: offsets"
    title["W"] = "Idempotent producers"; title["X"] = "Order by key"
    title["Y"] = "Closing and threads"; title["Z"] = "Patterns and timers"
    title["BR"] = "Public faults of peers"; title["BX"] = "Public faults of peers, more"
    while ((getline line < "conformance/open.txt") > 0) {
        if (line !~ /^#/) {
            id = substr(line, 1, index(line, " ") - 1)
            reason[id] = substr(line, index(line, " ") + 1)
        }
    }
}
FNR == 1 { name = ""; wants_name = 0 }
/TEST_CASE\(/ { name = ""; wants_name = 1 }
wants_name && match($0, /"[^"]*"/) {
    name = substr($0, RSTART + 1, RLENGTH - 2)
    wants_name = 0
    gsub(/ *\[[^]]*\] */, " ", name)
    gsub(/  +/, " ", name)
    sub(/^ */, "", name)
    sub(/ *$/, "", name)
    gsub(/\|/, "\\|", name)
}
{
    # `[A01]`, `[A01, A02]`, `[BR01]`: what is in brackets is ids, and nothing else.
    text = $0
    while (match(text, /\[(BR|BX|[A-Z])[0-9][0-9](, (BR|BX|[A-Z])[0-9][0-9])*\]/)) {
        n = split(substr(text, RSTART + 1, RLENGTH - 2), ids, ", ")
        text = substr(text, RSTART + RLENGTH)
        file = FILENAME
        sub(/^\.\//, "", file)
        test = "`" file "`" (name == "" ? "" : ": " name)
        for (i = 1; i <= n; ++i) {
            if (!((ids[i], test) in seen)) {
                seen[ids[i], test] = 1
                found[ids[i]] = found[ids[i]] (found[ids[i]] == "" ? "" : "<br>") test
            }
        }
    }
}
END {
    failed = 0
    print "# Conformance"
    print ""
    print "Behaviours that the test suites of RabbitMQ, Kafka, SQS, BullMQ, Redis, Pulsar, NATS and"
    print "others demand, by group, and public faults of such systems; beside each, the tests that"
    print "hold it here. All of them run in CI, and pass. What has no test says why. Printed by"
    print "`tests/conformance/table.sh` from the ids that tests name; CI compares."
    for (g = 1; (g in groups); g += 2) {
        group = groups[g]
        print ""
        print "## " group ". " title[group]
        print ""
        print "| id | test |"
        print "|---|---|"
        for (n = 1; n <= groups[g + 1]; ++n) {
            id = sprintf("%s%02d", group, n)
            if ((id in found) == (id in reason)) {
                print id (id in found ? " has a test and a reason" : " has no test and no reason") \
                    > "/dev/stderr"
                failed = 1
            }
            print "| " id " | " (id in found ? found[id] : "none: " reason[id]) " |"
        }
    }
    exit failed
}'
