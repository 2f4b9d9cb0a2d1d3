#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# usage: sh same_traces.sh <folder> <folder>
#
# Compares the trace hashes that the simulations of two builds have written; 77 if there are none.
set -eu

compared=0
status=0
for one in "$1"/sim_*.txt; do
    [ -f "$one" ] || continue
    other=$2/$(basename "$one")
    if ! diff "$one" "$other"; then
        echo "traces differ: $one $other"
        status=1
    fi
    compared=$((compared + $(wc -l < "$one")))
done
if [ "$compared" -eq 0 ]; then
    echo "no traces were recorded"
    exit 77
fi
echo "$compared traces compared"
exit "$status"
