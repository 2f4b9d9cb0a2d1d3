#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# Plants every kind of violation in a small tree and requires that check.sh reports each of them,
# and nothing else.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# put <path> <line>...: writes a file of the tree.
put() {
    path=$tree/$1
    shift
    mkdir -p "$(dirname "$path")"
    printf '%s\n' "$@" > "$path"
}

# clean: a tree without violations.
clean() {
    rm -rf "$tree/include" "$tree/tests"
    put include/railmq/config.hpp '#pragma once'
    put include/railmq/fwd.hpp '#include <railmq/config.hpp>'
    put include/railmq/model/errc.hpp '#include <railmq/config.hpp>' '#include <string>'
    put include/railmq/core/ring.hpp '#include <railmq/model/errc.hpp>' \
        '// a comment may say std::thread, Clock::now() and sleep_for' \
        '/* and so may' ' * system_clock in a block */ int x;' '#include <railmq/fwd.hpp>'
    put include/railmq/core/detail/chunk.hpp '#include <railmq/core/ring.hpp>'
    put include/railmq/storage/disk.hpp '#include <railmq/core/ring.hpp>'
    put include/railmq/runtime/threaded.hpp '#include <boost/asio/post.hpp>' \
        '#include <railmq/core/ring.hpp>' 'std::thread t; auto n = steady_clock::now();'
    put include/railmq/queue.hpp '#include <railmq/runtime/threaded.hpp>' \
        '#include <railmq/storage/disk.hpp>' '#include <railmq/detail/op.hpp>'
    put include/railmq/detail/op.hpp '#include <boost/asio/async_result.hpp>'
    put include/railmq/observe/log.hpp '#include <spdlog/spdlog.h>' '#include <railmq/queue.hpp>'
    put include/railmq/patterns/saga.hpp '#include <railmq/queue.hpp>' \
        '// 100 columns, three bytes each: €€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€'
    put tests/unit/model/errc.cpp '#include <railmq/model/errc.hpp>'
    put tests/unit/core/ring.cpp '#include <railmq/core/ring.hpp>'
    put tests/unit/core/detail/chunk.cpp '#include <railmq/core/detail/chunk.hpp>'
}

# expect <text>: check.sh reports exactly one violation, and its line contains the text.
expect() {
    if output=$(sh "$here/check.sh" "$tree"); then
        echo "FAILED: not reported: $1"
        failures=$((failures + 1))
    elif [ "$(printf '%s\n' "$output" | wc -l)" -ne 2 ]; then
        echo "FAILED: one violation expected ($1), got:"
        printf '%s\n' "$output"
        failures=$((failures + 1))
    elif ! printf '%s\n' "$output" | grep -qF -- "$1"; then
        echo "FAILED: '$1' expected, got:"
        printf '%s\n' "$output"
        failures=$((failures + 1))
    fi
    clean
}

# plant <path> <line> <expected text>: adds a line to a file of the clean tree.
plant() {
    mkdir -p "$(dirname "$tree/$1")"
    printf '%s\n' "$2" >> "$tree/$1"
    expect "$3"
}

clean
if ! output=$(sh "$here/check.sh" "$tree"); then
    echo "FAILED: the clean tree is reported:"
    printf '%s\n' "$output"
    exit 1
fi

i=include/railmq
# Upward and sideways.
plant $i/config.hpp '#include <railmq/model/errc.hpp>' 'base includes upward'
plant $i/model/errc.hpp '#include <railmq/core/ring.hpp>' "$i/model/errc.hpp:3: model includes upward"
plant $i/core/ring.hpp '#  include <railmq/storage/disk.hpp>' 'core includes upward'
plant $i/core/detail/chunk.hpp '#include <railmq/queue.hpp>' '<railmq/queue.hpp> is skin'
plant $i/storage/disk.hpp '#include <railmq/detail/op.hpp>' 'storage includes upward'
plant $i/storage/disk.hpp '#include <railmq/runtime/threaded.hpp>' 'storage includes sideways'
plant $i/runtime/threaded.hpp '#include <railmq/queue.hpp>' 'runtime includes upward'
plant $i/queue.hpp '#include <railmq/patterns/saga.hpp>' 'skin includes upward'
plant $i/detail/op.hpp '#include <railmq/observe/log.hpp>' 'skin includes upward'
plant $i/patterns/saga.hpp '#include <railmq/observe/log.hpp>' 'patterns includes sideways'
plant $i/observe/log.hpp '#include <railmq/testing/faults.hpp>' 'observe includes sideways'
plant $i/model/errc.hpp '#include "errc2.hpp"' 'write <railmq/...>'
plant $i/queue.hpp '#include <railmq/misc/x.hpp>' 'is in no known layer'
plant $i/misc/x.hpp '#pragma once' 'the folder is in no known layer'
# Other libraries.
plant $i/patterns/saga.hpp '#include <boost/asio/post.hpp>' 'only the skin and runtime may include'
plant $i/queue.hpp '#include <spdlog/spdlog.h>' 'only observe may include'
# Banned words.
for word in 'Clock::now()' '_clock::now(' random_device std::thread; do
    plant $i/model/errc.hpp "x $word y)" "\"$word\" is banned below the skin"
    plant $i/core/ring.hpp "x $word y)" "\"$word\" is banned below the skin"
    plant $i/storage/disk.hpp "x $word y)" "\"$word\" is banned below the skin"
done
plant $i/queue.hpp 'using clock = std::chrono::system_clock;' '"system_clock" is banned'
for word in sleep_for sleep_until usleep; do
    plant $i/runtime/threaded.hpp "$word(x);" "\"$word\" is banned"
    plant tests/unit/core/ring.cpp "$word(x);" "\"$word\" is banned"
done
plant tests/stress/many.cpp 'std::this_thread::sleep_for(1s);' "tests/stress/many.cpp:1: \"sleep_for\""
# Sizes.
plant $i/queue.hpp "//$(printf '%099d' 0)" 'line of 101 columns'
put $i/detail/op.hpp "$(awk 'BEGIN { for (i = 0; i < 801; ++i) print "//" }')"
expect 'file of 801 lines'
# Headers without a test.
plant $i/core/lonely.hpp '#pragma once' 'has no test, expected tests/unit/core/lonely.cpp'
plant $i/model/lonely.hpp '#pragma once' 'has no test, expected tests/unit/model/lonely.cpp'

# Words that two rules ban are reported by both.
for word in sleep_for sleep_until; do
    printf '%s\n' "$word(x);" >> "$tree/$i/model/errc.hpp"
    output=$(sh "$here/check.sh" "$tree") && failures=$((failures + 1))
    printf '%s\n' "$output" | grep -qF "\"$word\" is banned below the skin" || {
        echo "FAILED: $word in model"
        failures=$((failures + 1))
    }
    clean
done
for include in '<boost/asio/post.hpp>' '<spdlog/spdlog.h>'; do
    printf '%s\n' "#include $include" >> "$tree/$i/core/ring.hpp"
    output=$(sh "$here/check.sh" "$tree") && failures=$((failures + 1))
    printf '%s\n' "$output" | grep -qF 'may include' || {
        echo "FAILED: $include in core"
        failures=$((failures + 1))
    }
    clean
done

[ "$failures" -eq 0 ] && echo "every planted violation is reported"
exit "$((failures > 0))"
