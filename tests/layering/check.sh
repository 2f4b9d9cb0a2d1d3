#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# usage: sh check.sh <root of the source tree>
#
# The layers, from below; a header includes only what stands below it, or its own folder:
#     model <- core <- storage, runtime <- skin <- patterns, bridge, observe, testing
# The skin is what lies directly in include/railmq and in its detail and impl folders. config.hpp
# and fwd.hpp stand below everything. Prints one line per violation, fails if there is any.
set -eu
export LC_ALL=C

root=$1
[ -d "$root/include/railmq" ] || { echo "no include/railmq in $root" >&2; exit 2; }
cd "$root"
list=$(mktemp)
trap 'rm -f "$list"' EXIT

{
    find include/railmq -name '*.hpp'
    if [ -d tests ]; then
        find tests \( -name '*.cpp' -o -name '*.hpp' \)
    fi
} | sort > "$list"

awk -v list="$list" '
function rank(folder) {
    if (folder == "base") return 0
    if (folder == "model") return 1
    if (folder == "core") return 2
    if (folder == "storage" || folder == "runtime") return 3
    if (folder == "skin") return 4
    if (folder ~ /^(patterns|bridge|observe|testing)$/) return 5
    return -1
}

# The layer of a header, given its path below include/.
function layer(path,    parts, n) {
    n = split(path, parts, "/")
    if (path == "railmq/config.hpp" || path == "railmq/fwd.hpp") return "base"
    if (n == 2 || parts[2] == "detail" || parts[2] == "impl") return "skin"
    return parts[2]
}

function report(text) {
    print file ":" line_number ": " text
    ++violations
}

# The line without its comments; block comments may span lines.
function code_of(line,    out, at, end) {
    out = ""
    while (line != "") {
        if (in_comment) {
            end = index(line, "*/")
            if (end == 0) return out
            line = substr(line, end + 2)
            in_comment = 0
            continue
        }
        at = match(line, /\/\/|\/\*/)
        if (at == 0) return out line
        out = out substr(line, 1, at - 1)
        if (substr(line, at, 2) == "//") return out
        line = substr(line, at + 2)
        in_comment = 1
    }
    return out
}

function check_include(target,    theirs) {
    if (target ~ /^boost\/asio/ && mine != "skin" && mine != "runtime")
        report("only the skin and runtime may include <" target ">")
    if (target ~ /^spdlog/ && mine != "observe")
        report("only observe may include <" target ">")
    if (target !~ /^railmq\//) return
    theirs = layer(target)
    if (theirs == mine) return
    if (rank(theirs) < 0)
        report("<" target "> is in no known layer")
    else if (rank(theirs) > rank(mine))
        report(mine " includes upward: <" target "> is " theirs)
    else if (rank(theirs) == rank(mine))
        report(mine " includes sideways: <" target "> is " theirs)
}

function check_header(line, code,    text, i, target) {
    text = line
    gsub(/[\200-\277]/, "", text) # a character of UTF-8 counts once
    if (length(text) > 100) report("line of " length(text) " columns, 100 are allowed")

    if (code ~ /^[ \t]*#[ \t]*include/) {
        target = code
        sub(/^[ \t]*#[ \t]*include[ \t]*/, "", target)
        if (target ~ /^"/) {
            report("write <railmq/...>, not " target)
        } else {
            sub(/^</, "", target)
            sub(/>.*/, "", target)
            check_include(target)
        }
    }
    if (mine ~ /^(base|model|core|storage)$/)
        for (i = 1; i <= banned_count; ++i)
            if (index(code, banned[i])) report("\"" banned[i] "\" is banned below the skin")
    if (index(code, "system_clock")) report("\"system_clock\" is banned")
}

function check_sleep(code) {
    if (match(code, /sleep_for|sleep_until|usleep/))
        report("\"" substr(code, RSTART, RLENGTH) "\" is banned")
}

BEGIN {
    banned_count = split("Clock::now() _clock::now( random_device std::thread sleep_for" \
                         " sleep_until <boost/asio <spdlog", banned, " ")
    while ((getline file < list) > 0) {
        header = file ~ /^include\//
        mine = header ? layer(substr(file, length("include/") + 1)) : "test"
        in_comment = 0
        line_number = 0
        if (header && rank(mine) < 0) report("the folder is in no known layer")
        while ((getline line < file) > 0) {
            ++line_number
            code = code_of(line)
            if (header) check_header(line, code)
            check_sleep(code)
        }
        close(file)
        if (header && line_number > 800) report("file of " line_number " lines, 800 are allowed")
        if (header && (mine == "model" || mine == "core")) {
            test = file
            sub(/^include\/railmq/, "tests/unit", test)
            sub(/hpp$/, "cpp", test)
            line_number = 1
            if ((getline line < test) < 0) report("has no test, expected " test)
            close(test)
        }
        ++files
    }
    print files + 0 " files, " violations + 0 " violations"
    exit violations > 0
}
'
