// SPDX-License-Identifier: BSL-1.0
//
// What a program about durable things says first: where its files are, and which peers are missing.
#pragma once

#include "log.hpp"
#include "servers.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace bench {

inline void say_what_is_missing() {
    std::vector<std::string> missing;
#if !RAILMQ_HAVE_SQLITE
    missing.emplace_back("SQLite (no libsqlite3-dev when this was built)");
#endif
#if !RAILMQ_HAVE_LMDB
    missing.emplace_back("LMDB (no liblmdb-dev when this was built)");
#endif
#if !RAILMQ_HAVE_ROCKSDB
    missing.emplace_back("RocksDB (no librocksdb-dev when this was built)");
#endif
#if !RAILMQ_HAVE_REDIS
    missing.emplace_back("Redis (no libhiredis-dev when this was built)");
#endif
#if !RAILMQ_HAVE_NATS
    missing.emplace_back("NATS (no libnats-dev when this was built)");
#endif
    for (const char* const program : {"redis-server", "nats-server"}) {
        if (path_of(program).empty()) {
            missing.push_back(std::string{program} + " (not installed)");
        }
    }
    for (const auto& one : missing) {
        std::printf("left out: %s\n", one.c_str());
    }
}

inline void introduce(const std::string& place) {
    std::printf(
        "files in %s%s\n",
        place.c_str(),
        is_in_memory(place) ? ", which is in MEMORY: syncs cost nothing there" : "");
    say_what_is_missing();
}

} // namespace bench
