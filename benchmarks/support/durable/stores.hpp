// SPDX-License-Identifier: BSL-1.0
//
// Embedded stores that are installed, as logs: records under rising numbers. A program asks with
// RAILMQ_HAVE_SQLITE, RAILMQ_HAVE_LMDB and RAILMQ_HAVE_ROCKSDB which ones there are.
#pragma once

#include "../payload.hpp"
#include "log.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#if RAILMQ_HAVE_SQLITE
#include <sqlite3.h>
#endif
#if RAILMQ_HAVE_LMDB
#include <lmdb.h>
#endif
#if RAILMQ_HAVE_ROCKSDB
#include <rocksdb/c.h>
#endif

namespace bench {

namespace peer {

inline const std::string sqlite_full = "SQLite, WAL, FULL";
inline const std::string sqlite_normal = "SQLite, WAL, NORMAL";
inline const std::string sqlite = "SQLite";
inline const std::string lmdb = "LMDB";
inline const std::string rocksdb = "RocksDB";

} // namespace peer

#if RAILMQ_HAVE_SQLITE

class sqlite_database {
public:
    explicit sqlite_database(const std::string& directory) {
        check(sqlite3_open((directory + "/log.db").c_str(), &database_));
    }
    sqlite_database(const sqlite_database&) = delete;
    sqlite_database& operator=(const sqlite_database&) = delete;
    ~sqlite_database() {
        sqlite3_finalize(statement_);
        sqlite3_close(database_);
    }

    void run(const char* text) { check(sqlite3_exec(database_, text, nullptr, nullptr, nullptr)); }
    [[nodiscard]] sqlite3_stmt* prepare(const char* text) {
        check(sqlite3_prepare_v2(database_, text, -1, &statement_, nullptr));
        return statement_;
    }

private:
    static void check(int result) { require(result == SQLITE_OK, sqlite3_errstr(result)); }

    sqlite3* database_ = nullptr;
    sqlite3_stmt* statement_ = nullptr; ///< One is enough.
};

/// One transaction a group. With `Full` a commit is synced; without, it is not ("NORMAL": after
/// the loss of power the last ones may be missing).
template <bool Full>
class sqlite_log {
public:
    sqlite_log(const std::string& directory, safety)
        : database_{directory} {
        database_.run("PRAGMA journal_mode=WAL");
        database_.run(Full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
        database_.run("CREATE TABLE log(id INTEGER PRIMARY KEY, payload BLOB)");
        insert_ = database_.prepare("INSERT INTO log(payload) VALUES(?)");
    }

    void append(std::span<const std::byte> payload) {
        if (!has_begun_) {
            database_.run("BEGIN");
            has_begun_ = true;
        }
        const auto size = static_cast<int>(payload.size());
        sqlite3_bind_blob(insert_, 1, payload.data(), size, SQLITE_STATIC);
        require(sqlite3_step(insert_) == SQLITE_DONE, "INSERT");
        sqlite3_reset(insert_);
    }
    void commit() {
        database_.run("COMMIT");
        has_begun_ = false;
    }

private:
    sqlite_database database_;
    sqlite3_stmt* insert_ = nullptr;
    bool has_begun_ = false;
};

class sqlite_reader {
public:
    explicit sqlite_reader(const std::string& directory)
        : database_{directory} {
        database_.run("PRAGMA mmap_size=4294967296");
        select_ = database_.prepare("SELECT payload FROM log ORDER BY id");
    }

    std::uint64_t read_all() {
        std::uint64_t records = 0;
        while (sqlite3_step(select_) == SQLITE_ROW) {
            keep(*static_cast<const char*>(sqlite3_column_blob(select_, 0)));
            ++records;
        }
        sqlite3_reset(select_);
        return records;
    }

private:
    sqlite_database database_;
    sqlite3_stmt* select_ = nullptr;
};

#endif

#if RAILMQ_HAVE_LMDB

class lmdb_environment {
public:
    lmdb_environment(const std::string& directory, unsigned flags) {
        check(mdb_env_create(&environment_));
        check(mdb_env_set_mapsize(environment_, std::size_t{16} << 30));
        check(mdb_env_open(environment_, directory.c_str(), flags, 0600));
    }
    lmdb_environment(const lmdb_environment&) = delete;
    lmdb_environment& operator=(const lmdb_environment&) = delete;
    ~lmdb_environment() { mdb_env_close(environment_); }

    [[nodiscard]] MDB_txn* begin(unsigned flags) {
        MDB_txn* transaction = nullptr;
        check(mdb_txn_begin(environment_, nullptr, flags, &transaction));
        return transaction;
    }
    [[nodiscard]] static MDB_dbi table(MDB_txn* transaction) {
        MDB_dbi result = 0;
        check(mdb_dbi_open(transaction, nullptr, MDB_INTEGERKEY, &result));
        return result;
    }
    static void check(int result) { require(result == 0, mdb_strerror(result)); }

private:
    MDB_env* environment_ = nullptr;
};

/// One transaction a group.
class lmdb_log {
public:
    lmdb_log(const std::string& directory, safety safe)
        : environment_{directory, safe == safety::power ? 0U : unsigned{MDB_NOSYNC}} {}

    void append(std::span<const std::byte> payload) {
        if (transaction_ == nullptr) {
            transaction_ = environment_.begin(0);
            table_ = lmdb_environment::table(transaction_);
        }
        ++number_;
        MDB_val key{sizeof number_, &number_};
        MDB_val value{payload.size(), const_cast<std::byte*>(payload.data())};
        lmdb_environment::check(mdb_put(transaction_, table_, &key, &value, MDB_APPEND));
    }
    void commit() {
        lmdb_environment::check(mdb_txn_commit(transaction_));
        transaction_ = nullptr;
    }

private:
    lmdb_environment environment_;
    MDB_txn* transaction_ = nullptr;
    MDB_dbi table_ = 0;
    std::size_t number_ = 0;
};

/// It has no checksums to verify.
class lmdb_reader {
public:
    explicit lmdb_reader(const std::string& directory)
        : environment_{directory, MDB_RDONLY} {}

    std::uint64_t read_all() {
        MDB_txn* const transaction = environment_.begin(MDB_RDONLY);
        MDB_cursor* cursor = nullptr;
        lmdb_environment::check(
            mdb_cursor_open(transaction, lmdb_environment::table(transaction), &cursor));
        std::uint64_t records = 0;
        MDB_val key;
        MDB_val value;
        while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
            keep(*static_cast<const char*>(value.mv_data));
            ++records;
        }
        mdb_cursor_close(cursor);
        mdb_txn_abort(transaction);
        return records;
    }

private:
    lmdb_environment environment_;
};

#endif

#if RAILMQ_HAVE_ROCKSDB

class rocksdb_database {
public:
    explicit rocksdb_database(const std::string& directory) {
        rocksdb_options_set_create_if_missing(options_.get(), 1);
        char* problem = nullptr;
        database_.reset(rocksdb_open(options_.get(), (directory + "/db").c_str(), &problem));
        check(problem);
    }

    [[nodiscard]] rocksdb_t* get() const { return database_.get(); }

    static void check(char* problem) {
        if (problem != nullptr) {
            const std::string text{problem};
            rocksdb_free(problem);
            require(false, text.c_str());
        }
    }

    template <auto Destroy>
    struct destroyed {
        void operator()(auto* object) const { Destroy(object); }
    };

private:
    std::unique_ptr<rocksdb_options_t, destroyed<&rocksdb_options_destroy>> options_{
        rocksdb_options_create()};
    std::unique_ptr<rocksdb_t, destroyed<&rocksdb_close>> database_;
};

/// One write batch a group.
class rocksdb_log {
public:
    rocksdb_log(const std::string& directory, safety safe)
        : database_{directory} {
        rocksdb_writeoptions_set_sync(options_.get(), safe == safety::power ? 1 : 0);
    }

    void append(std::span<const std::byte> payload) {
        ++number_;
        std::array<char, sizeof number_> key{};
        for (std::size_t i = 0; i < key.size(); ++i) { // in the order of bytes
            key[i] = static_cast<char>(number_ >> (8 * (key.size() - 1 - i)));
        }
        rocksdb_writebatch_put(
            group_.get(),
            key.data(),
            key.size(),
            reinterpret_cast<const char*>(payload.data()),
            payload.size());
    }
    void commit() {
        char* problem = nullptr;
        rocksdb_write(database_.get(), options_.get(), group_.get(), &problem);
        rocksdb_database::check(problem);
        rocksdb_writebatch_clear(group_.get());
    }

private:
    template <auto Destroy>
    using destroyed = rocksdb_database::destroyed<Destroy>;

    rocksdb_database database_;
    std::unique_ptr<rocksdb_writeoptions_t, destroyed<&rocksdb_writeoptions_destroy>> options_{
        rocksdb_writeoptions_create()};
    std::unique_ptr<rocksdb_writebatch_t, destroyed<&rocksdb_writebatch_destroy>> group_{
        rocksdb_writebatch_create()};
    std::uint64_t number_ = 0;
};

/// Verifies checksums of blocks, when it reads them into its cache.
class rocksdb_reader {
public:
    explicit rocksdb_reader(const std::string& directory)
        : database_{directory} {}

    std::uint64_t read_all() {
        const std::
            unique_ptr<rocksdb_iterator_t, rocksdb_database::destroyed<&rocksdb_iter_destroy>>
                at{rocksdb_create_iterator(database_.get(), options_.get())};
        std::uint64_t records = 0;
        for (rocksdb_iter_seek_to_first(at.get()); rocksdb_iter_valid(at.get()) != 0;
             rocksdb_iter_next(at.get())) {
            std::size_t size = 0;
            keep(*rocksdb_iter_value(at.get(), &size));
            ++records;
        }
        return records;
    }

private:
    rocksdb_database database_;
    std::
        unique_ptr<rocksdb_readoptions_t, rocksdb_database::destroyed<&rocksdb_readoptions_destroy>>
            options_{rocksdb_readoptions_create()};
};

#endif

} // namespace bench
