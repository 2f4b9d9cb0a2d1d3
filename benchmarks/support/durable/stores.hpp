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
#include <vector>

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
        for (sqlite3_stmt* const statement : statements_) {
            sqlite3_finalize(statement);
        }
        sqlite3_close(database_);
    }

    void run(const char* text) { check(sqlite3_exec(database_, text, nullptr, nullptr, nullptr)); }
    /// It is the database's, to its end.
    [[nodiscard]] sqlite3_stmt* prepare(const char* text) {
        sqlite3_stmt* result = nullptr;
        check(sqlite3_prepare_v2(database_, text, -1, &result, nullptr));
        statements_.push_back(result);
        return result;
    }
    /// With its own log in front, synced at each commit, or not ("NORMAL": after the loss of power
    /// the last commits may be missing).
    void write_ahead(bool is_synced) {
        run("PRAGMA journal_mode=WAL");
        run(is_synced ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
    }

private:
    static void check(int result) { require(result == SQLITE_OK, sqlite3_errstr(result)); }

    sqlite3* database_ = nullptr;
    std::vector<sqlite3_stmt*> statements_;
};

/// One transaction a group, synced with `Full`.
template <bool Full>
class sqlite_log {
public:
    sqlite_log(const std::string& directory, safety)
        : database_{directory} {
        database_.write_ahead(Full);
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
        check(mdb_env_set_maxdbs(environment_, 2));
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
    /// The one without a name, or one of several.
    [[nodiscard]] static MDB_dbi table(MDB_txn* transaction, const char* name = nullptr) {
        MDB_dbi result = 0;
        const unsigned flags = MDB_INTEGERKEY | (name != nullptr ? unsigned{MDB_CREATE} : 0U);
        check(mdb_dbi_open(transaction, name, flags, &result));
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

/// Numbers as keys, in the order of bytes.
class rocksdb_key {
public:
    explicit rocksdb_key(std::uint64_t number) {
        for (std::size_t i = 0; i < text_.size(); ++i) {
            text_[i] = static_cast<char>(number >> (8 * (text_.size() - 1 - i)));
        }
    }

    [[nodiscard]] const char* data() const { return text_.data(); }
    [[nodiscard]] std::size_t size() const { return text_.size(); }

private:
    std::array<char, sizeof(std::uint64_t)> text_{};
};

/// Changes that are written together.
class rocksdb_group {
public:
    explicit rocksdb_group(safety safe) {
        rocksdb_writeoptions_set_sync(options_.get(), safe == safety::power ? 1 : 0);
    }

    void put(std::uint64_t number, std::span<const std::byte> value) {
        const rocksdb_key key{number};
        const auto* const bytes = reinterpret_cast<const char*>(value.data());
        rocksdb_writebatch_put(group_.get(), key.data(), key.size(), bytes, value.size());
    }
    void remove(std::uint64_t number) {
        const rocksdb_key key{number};
        rocksdb_writebatch_delete(group_.get(), key.data(), key.size());
    }
    void write_to(rocksdb_database& database) {
        char* problem = nullptr;
        rocksdb_write(database.get(), options_.get(), group_.get(), &problem);
        rocksdb_database::check(problem);
        rocksdb_writebatch_clear(group_.get());
    }

private:
    template <auto Destroy>
    using destroyed = rocksdb_database::destroyed<Destroy>;

    std::unique_ptr<rocksdb_writeoptions_t, destroyed<&rocksdb_writeoptions_destroy>> options_{
        rocksdb_writeoptions_create()};
    std::unique_ptr<rocksdb_writebatch_t, destroyed<&rocksdb_writebatch_destroy>> group_{
        rocksdb_writebatch_create()};
};

/// One write batch a group.
class rocksdb_log {
public:
    rocksdb_log(const std::string& directory, safety safe)
        : database_{directory}
        , group_{safe} {}

    void append(std::span<const std::byte> payload) { group_.put(++number_, payload); }
    void commit() { group_.write_to(database_); }

private:
    rocksdb_database database_;
    rocksdb_group group_;
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
