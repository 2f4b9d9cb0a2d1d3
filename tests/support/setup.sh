# SPDX-License-Identifier: BSL-1.0
#
# Shell functions that tests/run and examples/run share. POSIX sh; to be read with ".", after
# `root` was set to the root of the source tree.

start_time=$(date +%s)
jobs=${RAILMQ_JOBS:-$(nproc 2>/dev/null || echo 2)}

# say <text>: a progress line with the time since the start.
say() {
    printf '[%4ds] %s\n' "$(($(date +%s) - start_time))" "$*"
}

# is_installed <Debian package>
is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# apt <argument>...: apt-get as root, never asking anything.
apt() {
    set -- env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=300 "$@"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo > /dev/null || return 1
        set -- sudo -n "$@"
    fi
    "$@" < /dev/null >> "$setup_log" 2>&1
}

# boost_package: the package with Boost 1.81 or later, or nothing when that is installed.
boost_package() {
    version=$(sed -n 's/^#define BOOST_VERSION //p' /usr/include/boost/version.hpp \
        /usr/local/include/boost/version.hpp 2>/dev/null | head -n 1)
    [ "${version:-0}" -ge 108100 ] || echo libboost1.81-dev
}

# install_packages required|optional <Debian package>...: installs those that are missing.
install_packages() {
    kind=$1
    shift
    missing=
    for package in "$@"; do
        is_installed "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if ! command -v apt-get > /dev/null; then
        say "This is no Debian system; please make sure that you have the like of:$missing"
        return 0
    fi

    say "installing$missing"
    setup_log=$(mktemp)
    if [ -z "${apt_is_updated:-}" ]; then
        apt update || true
        apt_is_updated=yes
    fi
    # shellcheck disable=SC2086 # the list is meant to be split
    if ! apt install --no-install-recommends $missing; then
        # One name that this release does not know must not keep the others away.
        for package in $missing; do
            apt install --no-install-recommends "$package" || true
        done
    fi

    absent=
    for package in $missing; do
        is_installed "$package" || absent="$absent $package"
    done
    if [ -n "$absent" ] && [ "$kind" = required ]; then
        tail -n 15 "$setup_log"
        say "These packages are missing and could not be installed:$absent"
        say "Please run, as root: apt-get install$absent"
        rm -f "$setup_log"
        return 1
    fi
    [ -z "$absent" ] || say "going on without$absent"
    rm -f "$setup_log"
}

# configure <build folder> <cmake argument>...
configure() {
    build_dir=$1
    shift
    mkdir -p "$build_dir"
    if ! cmake -S "$root" -B "$build_dir" -G Ninja "$@" > "$build_dir/configure.log" 2>&1; then
        tail -n 40 "$build_dir/configure.log"
        say "configuring failed, the whole log is $build_dir/configure.log"
        return 1
    fi
}

# build <build folder> [target]...: builds all that can be built, with a line about the progress
# now and then.
build() {
    build_dir=$1
    shift
    ninja -C "$build_dir" -j "$jobs" -k 0 "$@" > "$build_dir/build.log" 2>&1 &
    build_pid=$!
    trap 'kill "$build_pid" 2>/dev/null; exit 130' INT TERM
    ticks=0
    while kill -0 "$build_pid" 2>/dev/null; do
        sleep 0.5
        ticks=$((ticks + 1))
        if [ $((ticks % 60)) -eq 0 ]; then
            step=$(grep -o '^\[[0-9]*/[0-9]*\]' "$build_dir/build.log" | tail -n 1)
            say "    ${step:-starting}"
        fi
    done
    wait "$build_pid"
    build_status=$?
    trap - INT TERM
    if [ "$build_status" -ne 0 ]; then
        grep -E -A 12 '^FAILED|error:|undefined reference' "$build_dir/build.log" | head -n 80
        say "the build failed, the whole log is $build_dir/build.log"
        return 1
    fi
}
