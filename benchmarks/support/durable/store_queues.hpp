// SPDX-License-Identifier: BSL-1.0
//
// Embedded stores that are installed, as work queues. Each of the three steps is a transaction:
// messages are inserted, marked as taken with a deadline, and deleted.
#pragma once

#include "stores.hpp"
#include "work_queue.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bench {

#if RAILMQ_HAVE_SQLITE

/// One table; an index of what is ready, so that finding it does not look at what is taken.
class sqlite_queue {
public:
    sqlite_queue(const std::string& directory, safety safe)
        : database_{directory} {
        database_.write_ahead(safe == safety::power);
        database_.run("CREATE TABLE jobs(id INTEGER PRIMARY KEY, deadline INTEGER, payload BLOB)");
        database_.run("CREATE INDEX ready ON jobs(id) WHERE deadline IS NULL");
        insert_ = database_.prepare("INSERT INTO jobs(payload) VALUES(?)");
        take_ = database_.prepare(
            "UPDATE jobs SET deadline = ?1 WHERE id IN (SELECT id FROM jobs WHERE deadline IS NULL "
            "ORDER BY id LIMIT ?2) RETURNING id, payload");
        remove_ = database_.prepare("DELETE FROM jobs WHERE id = ?");
        begin_ = database_.prepare("BEGIN IMMEDIATE");
        commit_ = database_.prepare("COMMIT");
    }

    void enqueue(std::span<const std::byte> payload, std::size_t count) {
        run(begin_);
        const auto size = static_cast<int>(payload.size());
        for (std::size_t i = 0; i < count; ++i) {
            sqlite3_bind_blob(insert_, 1, payload.data(), size, SQLITE_STATIC);
            run(insert_);
        }
        run(commit_);
    }
    void lease(std::size_t count) {
        sqlite3_bind_int64(take_, 1, ++deadline_);
        sqlite3_bind_int64(take_, 2, static_cast<sqlite3_int64>(count));
        while (sqlite3_step(take_) == SQLITE_ROW) {
            taken_.push_back(sqlite3_column_int64(take_, 0));
            keep(*static_cast<const char*>(sqlite3_column_blob(take_, 1)));
        }
        require(sqlite3_reset(take_) == SQLITE_OK, "UPDATE");
        require(taken_.size() == count, "not everything could be taken");
    }
    void acknowledge() {
        run(begin_);
        for (const sqlite3_int64 id : taken_) {
            sqlite3_bind_int64(remove_, 1, id);
            run(remove_);
        }
        run(commit_);
        taken_.clear();
    }

private:
    static void run(sqlite3_stmt* statement) {
        require(sqlite3_step(statement) == SQLITE_DONE, "a statement failed");
        sqlite3_reset(statement);
    }

    sqlite_database database_;
    sqlite3_stmt* insert_ = nullptr;
    sqlite3_stmt* take_ = nullptr;
    sqlite3_stmt* remove_ = nullptr;
    sqlite3_stmt* begin_ = nullptr;
    sqlite3_stmt* commit_ = nullptr;
    sqlite3_int64 deadline_ = 0;
    std::vector<sqlite3_int64> taken_;
};

#endif

#if RAILMQ_HAVE_LMDB

/// Two tables: messages, and deadlines of those that are taken. What is ready begins behind the
/// last one that was.
class lmdb_queue {
public:
    lmdb_queue(const std::string& directory, safety safe)
        : environment_{directory, safe == safety::power ? 0U : unsigned{MDB_NOSYNC}} {
        MDB_txn* const transaction = environment_.begin(0);
        messages_ = lmdb_environment::table(transaction, "messages");
        deadlines_ = lmdb_environment::table(transaction, "deadlines");
        check(mdb_txn_commit(transaction));
    }

    void enqueue(std::span<const std::byte> payload, std::size_t count) {
        MDB_txn* const transaction = environment_.begin(0);
        for (std::size_t i = 0; i < count; ++i) {
            ++last_;
            MDB_val value{payload.size(), const_cast<std::byte*>(payload.data())};
            put(transaction, messages_, last_, value);
        }
        check(mdb_txn_commit(transaction));
    }
    void lease(std::size_t count) {
        MDB_txn* const transaction = environment_.begin(0);
        MDB_cursor* cursor = nullptr;
        check(mdb_cursor_open(transaction, messages_, &cursor));
        std::size_t next = first_;
        MDB_val key{sizeof next, &next};
        MDB_val message;
        check(mdb_cursor_get(cursor, &key, &message, MDB_SET));
        for (;;) {
            keep(*static_cast<const char*>(message.mv_data));
            ++deadline_;
            MDB_val value{sizeof deadline_, &deadline_};
            put(transaction, deadlines_, first_ + taken_, value);
            if (++taken_ == count) {
                break;
            }
            check(mdb_cursor_get(cursor, &key, &message, MDB_NEXT));
        }
        mdb_cursor_close(cursor);
        check(mdb_txn_commit(transaction));
    }
    void acknowledge() {
        MDB_txn* const transaction = environment_.begin(0);
        for (; taken_ != 0; --taken_, ++first_) {
            MDB_val key{sizeof first_, &first_};
            check(mdb_del(transaction, messages_, &key, nullptr));
            check(mdb_del(transaction, deadlines_, &key, nullptr));
        }
        check(mdb_txn_commit(transaction));
    }

private:
    static void check(int result) { lmdb_environment::check(result); }
    static void put(MDB_txn* transaction, MDB_dbi table, std::size_t number, MDB_val value) {
        MDB_val key{sizeof number, &number};
        check(mdb_put(transaction, table, &key, &value, MDB_APPEND));
    }

    lmdb_environment environment_;
    MDB_dbi messages_ = 0;
    MDB_dbi deadlines_ = 0;
    std::size_t first_ = 1;
    std::size_t last_ = 0;
    std::size_t taken_ = 0;
    std::uint64_t deadline_ = 0;
};

#endif

#if RAILMQ_HAVE_ROCKSDB

/// Deadlines are under the message's number, far behind the messages.
class rocksdb_queue {
public:
    rocksdb_queue(const std::string& directory, safety safe)
        : database_{directory}
        , group_{safe} {}

    void enqueue(std::span<const std::byte> payload, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            group_.put(++last_, payload);
        }
        group_.write_to(database_);
    }
    void lease(std::size_t count) {
        {
            const std::
                unique_ptr<rocksdb_iterator_t, rocksdb_database::destroyed<&rocksdb_iter_destroy>>
                    at{rocksdb_create_iterator(database_.get(), options_.get())};
            const rocksdb_key from{first_};
            rocksdb_iter_seek(at.get(), from.data(), from.size());
            for (;;) {
                require(rocksdb_iter_valid(at.get()) != 0, "not everything could be taken");
                std::size_t size = 0;
                keep(*rocksdb_iter_value(at.get(), &size));
                ++deadline_;
                group_.put(deadlines + first_ + taken_, std::as_bytes(std::span{&deadline_, 1}));
                if (++taken_ == count) {
                    break; // the next step could lead through all deadlines that were removed
                }
                rocksdb_iter_next(at.get());
            }
        }
        group_.write_to(database_);
    }
    void acknowledge() {
        for (; taken_ != 0; --taken_, ++first_) {
            group_.remove(first_);
            group_.remove(deadlines + first_);
        }
        group_.write_to(database_);
    }

private:
    static constexpr std::uint64_t deadlines = std::uint64_t{1} << 62;

    rocksdb_database database_;
    rocksdb_group group_;
    std::
        unique_ptr<rocksdb_readoptions_t, rocksdb_database::destroyed<&rocksdb_readoptions_destroy>>
            options_{rocksdb_readoptions_create()};
    std::uint64_t first_ = 1;
    std::uint64_t last_ = 0;
    std::uint64_t taken_ = 0;
    std::uint64_t deadline_ = 0;
};

#endif

} // namespace bench
