// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/posix_files.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;
namespace errcs = boost::system::errc;

using railmq::error_code;
using railmq::storage::open_mode;
using railmq::storage::posix_directory;
using railmq::storage::posix_directory_options;
using railmq::storage::posix_file;
using railmq::storage::posix_lock;

namespace {

constexpr std::uint64_t far_away = std::numeric_limits<std::uint64_t>::max();

/// An error that was there before: an operation that forgets to set its result leaves it.
error_code old_error() {
    return make_error_code(railmq::errc::timed_out);
}

bool is_system_error(const error_code& ec, errcs::errc_t what) {
    return ec == what && ec.category() == boost::system::system_category();
}

std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span{text});
}

/// An empty directory of mode 0700 that is gone afterwards, with all that is in it.
class temporary_directory {
public:
    temporary_directory() {
        const char* const where = std::getenv("TMPDIR");
        std::string name = std::string{where != nullptr ? where : "/tmp"} + "/railmq_XXXXXX";
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    temporary_directory(const temporary_directory&) = delete;
    temporary_directory& operator=(const temporary_directory&) = delete;
    ~temporary_directory() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }

    [[nodiscard]] std::string operator/(std::string_view name) const {
        return path_ + "/" + std::string{name};
    }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] posix_directory open(const posix_directory_options& options = {}) const {
        error_code ec = old_error();
        auto result = posix_directory::open_or_create(path_, options, ec);
        REQUIRE_FALSE(ec);
        return result;
    }

private:
    std::string path_;
};

class scoped_umask {
public:
    explicit scoped_umask(::mode_t mask)
        : old_{::umask(mask)} {}
    scoped_umask(const scoped_umask&) = delete;
    scoped_umask& operator=(const scoped_umask&) = delete;
    ~scoped_umask() { ::umask(old_); }

private:
    ::mode_t old_;
};

/// No file can grow beyond `bytes`: to try is EFBIG.
class scoped_file_limit {
public:
    explicit scoped_file_limit(::rlim_t bytes)
        : old_handler_{std::signal(SIGXFSZ, SIG_IGN)} {
        REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_) == 0);
        const struct rlimit now = {.rlim_cur = bytes, .rlim_max = old_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
    }
    scoped_file_limit(const scoped_file_limit&) = delete;
    scoped_file_limit& operator=(const scoped_file_limit&) = delete;
    ~scoped_file_limit() {
        ::setrlimit(RLIMIT_FSIZE, &old_);
        std::signal(SIGXFSZ, old_handler_);
    }

private:
    struct rlimit old_ = {};
    void (*old_handler_)(int);
};

unsigned mode_of(const std::string& path) {
    struct stat info = {};
    REQUIRE(::lstat(path.c_str(), &info) == 0);
    return info.st_mode & 07777U;
}

void spill(const std::string& path, std::string_view text) {
    std::ofstream{path, std::ios::binary} << text;
    REQUIRE(fs::file_size(path) == text.size());
}

std::string slurp(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
}

posix_file make(posix_directory& d, std::string_view name, std::string_view text = {}) {
    error_code ec = old_error();
    posix_file f = d.open(name, open_mode::create, ec);
    REQUIRE_FALSE(ec);
    REQUIRE(write_at(f, 0, bytes(text), ec) == text.size());
    REQUIRE_FALSE(ec);
    return f;
}

error_code error_of_open(posix_directory& d, std::string_view name, open_mode mode) {
    error_code ec = old_error();
    const posix_file f = d.open(name, mode, ec);
    CHECK(f.is_open() == !ec);
    return ec;
}

error_code error_of_opening(const std::string& path, const posix_directory_options& options = {}) {
    error_code ec = old_error();
    static_cast<void>(posix_directory::open_or_create(path, options, ec));
    return ec;
}

/// Runs `child` in a forked process; what it returns, 0 to 100, or 101 if the process died.
template <class Child>
int in_child(Child child) {
    const ::pid_t pid = ::fork();
    REQUIRE(pid != -1);
    if (pid == 0) {
        ::_exit(child());
    }
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

/// The descriptors of this process that lead to `path` or below it.
std::vector<int> descriptors_below(const std::string& path) {
    std::vector<int> result;
    const std::string real = fs::canonical(path);
    for (const auto& entry : fs::directory_iterator{"/proc/self/fd"}) {
        std::error_code gone;
        if (fs::read_symlink(entry.path(), gone).string().starts_with(real)) {
            result.push_back(std::stoi(entry.path().filename()));
        }
    }
    return result;
}

} // namespace

TEST_CASE("posix_file: open modes say whether the file has to be there") {
    const temporary_directory t;
    auto d = t.open();
    CHECK(
        is_system_error(error_of_open(d, "a", open_mode::read), errcs::no_such_file_or_directory));
    CHECK(is_system_error(
        error_of_open(d, "a", open_mode::read_write), errcs::no_such_file_or_directory));
    CHECK_FALSE(fs::exists(t / "a"));
    CHECK_FALSE(error_of_open(d, "a", open_mode::create));
    CHECK(fs::exists(t / "a"));
    CHECK(is_system_error(error_of_open(d, "a", open_mode::create), errcs::file_exists));
    CHECK_FALSE(error_of_open(d, "a", open_mode::read));
    CHECK_FALSE(error_of_open(d, "a", open_mode::read_write));
}

TEST_CASE("posix_file: one that was opened to be read is not written to") {
    const temporary_directory t;
    auto d = t.open();
    make(d, "a", "text");
    error_code ec = old_error();
    posix_file f = d.open("a", open_mode::read, ec);
    REQUIRE_FALSE(ec);
    CHECK(f.write_some_at(0, bytes("T"), ec) == 0);
    CHECK(is_system_error(ec, errcs::bad_file_descriptor));
    f.resize(0, ec);
    CHECK(ec);
    ec = {};
    f.allocate(100, ec);
    CHECK(ec);
    CHECK(slurp(t / "a") == "text");
}

TEST_CASE("posix_file: permissions are the owner's alone, whatever the umask") {
    const auto mask = GENERATE(::mode_t{0}, ::mode_t{0077}, ::mode_t{0277});
    const temporary_directory t;
    const std::string path = t / "made";
    const scoped_umask guard{mask};
    error_code ec = old_error();
    auto d = posix_directory::open_or_create(path, {}, ec);
    REQUIRE_FALSE(ec);
    CHECK(mode_of(path) == 0700);
    make(d, "a");
    CHECK(mode_of(path + "/a") == 0600);
    std::int64_t owner = 0;
    const auto lock = d.lock(owner, ec);
    REQUIRE_FALSE(ec);
    CHECK(mode_of(path + "/LOCK") == 0600);
}

TEST_CASE("posix_directory: makes one component and no more, and opens what is there") {
    const temporary_directory t;
    CHECK(is_system_error(error_of_opening(t / "a/b"), errcs::no_such_file_or_directory));
    CHECK_FALSE(fs::exists(t / "a"));
    CHECK_FALSE(error_of_opening(t / "a"));
    CHECK(fs::is_directory(t / "a"));
    spill(t / "a/file", "x");
    CHECK_FALSE(error_of_opening(t / "a"));
    CHECK(slurp(t / "a/file") == "x");
    CHECK_FALSE(error_of_opening(t / "a/b///"));
    CHECK(fs::is_directory(t / "a/b"));
    CHECK_FALSE(error_of_opening(t / "a/."));
}

TEST_CASE("posix_directory: permissions of a directory that was there stay as they are") {
    const temporary_directory t;
    fs::create_directory(t / "a");
    fs::permissions(t / "a", fs::perms{0755});
    CHECK_FALSE(error_of_opening(t / "a"));
    CHECK(mode_of(t / "a") == 0755);
}

TEST_CASE("posix_directory: a relative path starts where the process is") {
    const temporary_directory t;
    const fs::path before = fs::current_path();
    fs::current_path(t.path());
    const error_code made = error_of_opening("here");
    const error_code itself = error_of_opening(".");
    fs::current_path(before);
    CHECK_FALSE(made);
    CHECK_FALSE(itself);
    CHECK(fs::is_directory(t / "here"));
}

TEST_CASE("posix_directory: paths that no system call would take are refused") {
    CHECK(is_system_error(error_of_opening(""), errcs::invalid_argument));
    const temporary_directory t;
    CHECK(is_system_error(
        error_of_opening(t / std::string_view{"a\0b", 3}), errcs::invalid_argument));
    CHECK_FALSE(fs::exists(t / "a"));
    CHECK(is_system_error(error_of_opening(t / std::string(256, 'a')), errcs::filename_too_long));
    std::string deep = t.path();
    for (int i = 0; i < 3'000; ++i) {
        deep += "/.";
    }
    CHECK(is_system_error(error_of_opening(deep), errcs::filename_too_long));
}

TEST_CASE("posix_directory: one that others may write to is refused, unless it is allowed") {
    const auto mode = GENERATE(0720U, 0702U, 0777U, 01777U);
    const temporary_directory t;
    fs::create_directory(t / "a");
    REQUIRE(::chmod((t / "a").c_str(), mode) == 0);
    CHECK(is_system_error(error_of_opening(t / "a"), errcs::operation_not_permitted));
    CHECK_FALSE(error_of_opening(t / "a", {.allow_insecure = true}));
    CHECK(mode_of(t / "a") == mode);
}

TEST_CASE("posix_directory: another user's is refused, unless it is allowed") {
    const temporary_directory t;
    std::string theirs = "/usr";
    if (::geteuid() == 0) {
        theirs = t / "a";
        fs::create_directory(theirs);
        REQUIRE(::chmod(theirs.c_str(), 0755) == 0);
        REQUIRE(::chown(theirs.c_str(), 1, 1) == 0);
    }
    CHECK(is_system_error(error_of_opening(theirs), errcs::operation_not_permitted));
    CHECK_FALSE(error_of_opening(theirs, {.allow_insecure = true}));
}

TEST_CASE("posix_directory: the parent of one that is there need not be readable") {
    if (::geteuid() == 0) {
        WARN("skipped: root may read everything");
        return;
    }
    const temporary_directory t;
    fs::create_directories(t / "a/b");
    REQUIRE(::chmod((t / "a").c_str(), 0300) == 0);
    CHECK_FALSE(error_of_opening(t / "a/b"));
    CHECK(is_system_error(error_of_opening(t / "a/new"), errcs::permission_denied));
    CHECK_FALSE(fs::exists(t / "a/new")); // it could not be synced, so it was removed again
    REQUIRE(::chmod((t / "a").c_str(), 0700) == 0);
}

TEST_CASE("posix_directory: neither a link nor a file is a directory") {
    const temporary_directory t;
    fs::create_directory(t / "real");
    fs::create_directory_symlink("real", t / "link");
    fs::create_directory_symlink("nowhere", t / "dangling");
    spill(t / "file", "x");
    for (const char* name : {"link", "link/", "link//", "dangling", "dangling/", "file"}) {
        CAPTURE(name);
        CHECK(is_system_error(error_of_opening(t / name), errcs::not_a_directory));
        const posix_directory_options careless{.allow_insecure = true};
        CHECK(is_system_error(error_of_opening(t / name, careless), errcs::not_a_directory));
    }
    CHECK_FALSE(fs::exists(t / "nowhere"));
    CHECK_FALSE(error_of_opening(t / "link/below")); // only the last component is ours to judge
    CHECK(fs::is_directory(t / "real/below"));
}

TEST_CASE("posix_directory: what is no plain file of one name is not opened") {
    const temporary_directory t;
    auto d = t.open();
    spill(t / "plain", "x");
    fs::create_symlink("plain", t / "link");
    fs::create_symlink("nowhere", t / "dangling");
    fs::create_directory(t / "directory");
    REQUIRE(::mkfifo((t / "fifo").c_str(), 0600) == 0);
    fs::create_hard_link(t / "plain", t / "second");

    for (const auto mode : {open_mode::read, open_mode::read_write}) {
        CAPTURE(static_cast<int>(mode));
        for (const char* name : {"link", "dangling"}) {
            CHECK(is_system_error(
                error_of_open(d, name, mode), errcs::too_many_symbolic_link_levels));
        }
        // A fifo that nobody writes to: this would otherwise wait for ever.
        CHECK(is_system_error(error_of_open(d, "fifo", mode), errcs::invalid_argument));
        for (const char* name : {"plain", "second"}) {
            CHECK(is_system_error(error_of_open(d, name, mode), errcs::invalid_argument));
        }
    }
    CHECK(is_system_error(error_of_open(d, "directory", open_mode::read), errcs::invalid_argument));
    CHECK(is_system_error(
        error_of_open(d, "directory", open_mode::read_write), errcs::is_a_directory));
    for (const char* name : {"link", "dangling", "fifo", "directory", "second"}) {
        CAPTURE(name);
        CHECK(is_system_error(error_of_open(d, name, open_mode::create), errcs::file_exists));
    }
    CHECK_FALSE(fs::exists(t / "nowhere"));
    fs::remove(t / "second");
    CHECK_FALSE(error_of_open(d, "plain", open_mode::read_write));
}

TEST_CASE("posix_directory: a device is not opened") {
    const temporary_directory t;
    auto d = t.open();
    if (::mknod((t / "null").c_str(), S_IFCHR | 0600, ::makedev(1, 3)) != 0) {
        WARN("skipped: only root may make devices, and not everywhere");
        return;
    }
    CHECK(error_of_open(d, "null", open_mode::read)); // EACCES where devices are forbidden
    CHECK(error_of_open(d, "null", open_mode::read_write));
}

TEST_CASE("posix_directory: names that lead elsewhere are refused") {
    const temporary_directory t;
    fs::create_directory(t / "inner");
    spill(t / "outside", "x");
    spill(t / "inner/file", "y");
    error_code ec = old_error();
    auto d = posix_directory::open_or_create(t / "inner", {}, ec);
    REQUIRE_FALSE(ec);
    const std::vector<std::string> hostile{
        "",
        ".",
        "..",
        "/",
        "../outside",
        "./file",
        "file/",
        "/etc/passwd",
        t / "outside",
        std::string{"file\0", 5},
        std::string{"\0file", 5},
        std::string{"fi\0le", 5},
    };
    for (const auto& name : hostile) {
        CAPTURE(name);
        for (const auto mode : {open_mode::read, open_mode::read_write, open_mode::create}) {
            CHECK(is_system_error(error_of_open(d, name, mode), errcs::invalid_argument));
        }
        ec = old_error();
        d.remove(name, ec);
        CHECK(is_system_error(ec, errcs::invalid_argument));
        ec = old_error();
        d.rename(name, "new", ec);
        CHECK(is_system_error(ec, errcs::invalid_argument));
        ec = old_error();
        d.rename("file", name, ec);
        CHECK(is_system_error(ec, errcs::invalid_argument));
    }
    CHECK(d.names(ec) == std::vector<std::string>{"file"});
    CHECK(slurp(t / "outside") == "x");
}

TEST_CASE("posix_directory: the longest name is taken, and one that is longer refused") {
    const temporary_directory t;
    auto d = t.open();
    CHECK_FALSE(error_of_open(d, std::string(255, 'n'), open_mode::create));
    CHECK(is_system_error(
        error_of_open(d, std::string(256, 'n'), open_mode::create), errcs::filename_too_long));
    CHECK(is_system_error(
        error_of_open(d, std::string(100'000, 'n'), open_mode::create), errcs::filename_too_long));
    CHECK_FALSE(error_of_open(d, "...", open_mode::create));
    CHECK_FALSE(error_of_open(d, "a\\b", open_mode::create));
}

TEST_CASE("posix_file: what was written is read, and a hole reads as zeros") {
    const temporary_directory t;
    auto d = t.open();
    error_code ec = old_error();
    posix_file f = make(d, "a", "abc");
    CHECK(write_at(f, 10'000, bytes("xyz"), ec) == 3);
    CHECK_FALSE(ec);
    ec = old_error();
    CHECK(f.size(ec) == 10'003);
    CHECK_FALSE(ec);

    std::vector<char> all(20'000, '?');
    ec = old_error();
    CHECK(read_at(f, 0, std::as_writable_bytes(std::span{all}), ec) == 10'003);
    CHECK_FALSE(ec);
    const std::string_view text{all.data(), 10'003};
    CHECK(text == "abc" + std::string(9'997, '\0') + "xyz");
    CHECK(all[10'003] == '?');
    CHECK(slurp(t / "a") == text);

    std::array<std::byte, 2> middle{};
    ec = old_error();
    CHECK(f.read_some_at(10'001, middle, ec) == 2);
    CHECK_FALSE(ec);
    CHECK(middle == std::array{std::byte{'y'}, std::byte{'z'}});
}

TEST_CASE("posix_file: there is nothing at the end and beyond it, without an error") {
    const temporary_directory t;
    auto d = t.open();
    posix_file f = make(d, "a", "abc");
    std::array<std::byte, 8> in{};
    for (const std::uint64_t offset : {3U, 4U, 5'000U}) {
        error_code ec = old_error();
        CHECK(f.read_some_at(offset, in, ec) == 0);
        CHECK_FALSE(ec);
    }
    error_code ec = old_error();
    CHECK(f.read_some_at(0, {}, ec) == 0);
    CHECK_FALSE(ec);
    ec = old_error();
    CHECK(f.write_some_at(0, {}, ec) == 0);
    CHECK_FALSE(ec);
}

TEST_CASE("posix_file: resize cuts it, and makes it longer with zeros") {
    const temporary_directory t;
    auto d = t.open();
    posix_file f = make(d, "a", "abcdef");
    error_code ec = old_error();
    f.resize(2, ec);
    CHECK_FALSE(ec);
    CHECK(slurp(t / "a") == "ab");
    ec = old_error();
    f.resize(5, ec);
    CHECK_FALSE(ec);
    CHECK(slurp(t / "a") == std::string{"ab\0\0\0", 5});
    ec = old_error();
    f.resize(0, ec);
    CHECK_FALSE(ec);
    CHECK(f.size(ec) == 0);
}

TEST_CASE("posix_file: allocate gives space, and never cuts") {
    const temporary_directory t;
    auto d = t.open();
    posix_file f = make(d, "a", "abcdef");
    constexpr std::uint64_t size = 1U << 20U;
    error_code ec = old_error();
    f.allocate(size, ec);
    CHECK_FALSE(ec);
    CHECK(f.size(ec) == size);
    struct stat info = {};
    REQUIRE(::stat((t / "a").c_str(), &info) == 0);
    CHECK(static_cast<std::uint64_t>(info.st_blocks) * 512 >= size);
    CHECK(slurp(t / "a") == "abcdef" + std::string(size - 6, '\0'));

    for (const std::uint64_t less : {0U, 1U, 4'096U}) {
        ec = old_error();
        f.allocate(less, ec);
        CHECK_FALSE(ec);
        CHECK(f.size(ec) == size);
    }
}

TEST_CASE("posix_file: what was only reserved need not be read, and what was written is found") {
    const temporary_directory where;
    posix_directory d = where.open();
    posix_file f = make(d, "f");
    error_code ec = old_error();
    constexpr std::uint64_t mega = std::uint64_t{1} << 20;
    f.allocate(4 * mega, ec);
    REQUIRE_FALSE(ec);
    const std::array<std::byte, 3> data{std::byte{1}, std::byte{2}, std::byte{3}};
    CHECK(write_at(f, 2 * mega, data, ec) == 3);
    // Where file systems do not tell, every place may have data.
    const std::uint64_t first = f.data_from(0, ec);
    CHECK_FALSE(ec);
    CHECK(first <= 2 * mega);
    const std::uint64_t behind = f.data_from(3 * mega, ec);
    CHECK_FALSE(ec);
    CHECK((behind == 3 * mega || behind == 4 * mega));
    CHECK((first == 0) == (behind == 3 * mega));
    CHECK(f.data_from(2 * mega + 1, ec) == 2 * mega + 1);
    CHECK(f.data_from(9 * mega, ec) == 9 * mega);
    CHECK_FALSE(ec);
}

TEST_CASE("posix_file: a sync that is begun early changes nothing that is read") {
    const temporary_directory where;
    posix_directory d = where.open();
    posix_file f = make(d, "f", "abc");
    f.start_sync(0, 3);
    f.start_sync(1'000, 1'000'000);
    f.start_sync(~std::uint64_t{0}, 1);
    error_code ec = old_error();
    f.sync_data(ec);
    CHECK_FALSE(ec);
    CHECK(slurp(where / "f") == "abc");
}

TEST_CASE("posix_file: the system's errors are reported as they are") {
    const temporary_directory t;
    auto d = t.open();
    posix_file f = make(d, "a");
    const std::string text(8'192, 'x');
    const scoped_file_limit limit{4'096};
    error_code ec = old_error();
    errno = 0;
    f.allocate(1U << 20U, ec); // its error is in no errno
    CHECK(is_system_error(ec, errcs::file_too_large));
    ec = old_error();
    f.resize(1U << 20U, ec);
    CHECK(is_system_error(ec, errcs::file_too_large));
    ec = old_error();
    CHECK(f.write_some_at(0, bytes(text), ec) == 4'096); // a part of it fits
    CHECK_FALSE(ec);
    ec = old_error();
    CHECK(write_at(f, 0, bytes(text), ec) == 4'096);
    CHECK(is_system_error(ec, errcs::file_too_large));
    CHECK(f.size(ec) == 4'096);
}

TEST_CASE("posix_file: offsets beyond the largest off_t are refused") {
    const temporary_directory t;
    auto d = t.open();
    posix_file f = make(d, "a", "abc");
    constexpr auto first = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) + 1;
    for (const std::uint64_t offset : {first, far_away}) {
        std::array<std::byte, 1> in{};
        error_code ec = old_error();
        CHECK(f.read_some_at(offset, in, ec) == 0);
        CHECK(is_system_error(ec, errcs::value_too_large));
        ec = old_error();
        CHECK(f.write_some_at(offset, bytes("x"), ec) == 0);
        CHECK(is_system_error(ec, errcs::value_too_large));
        ec = old_error();
        f.resize(offset, ec);
        CHECK(is_system_error(ec, errcs::value_too_large));
        ec = old_error();
        f.allocate(offset, ec);
        CHECK(is_system_error(ec, errcs::value_too_large));
        CHECK(f.size(ec) == 3);
    }
}

TEST_CASE("posix_file: syncs succeed and say so") {
    const temporary_directory t;
    auto d = t.open();
    posix_file f = make(d, "a", "abc");
    error_code ec = old_error();
    f.sync_data(ec);
    CHECK_FALSE(ec);
    ec = old_error();
    d.sync(ec);
    CHECK_FALSE(ec);
}

TEST_CASE("posix_file: without a file or a directory every operation is refused") {
    const temporary_directory t;
    auto moved_directory = t.open();
    auto moved_file = make(moved_directory, "a", "abc");
    const auto kept_file = std::move(moved_file);
    const auto kept_directory = std::move(moved_directory);
    posix_file no_file;
    posix_directory no_directory;

    for (posix_file* f : {&no_file, &moved_file}) {
        CHECK_FALSE(f->is_open());
        std::array<std::byte, 1> in{};
        std::vector<error_code> all(7, old_error());
        CHECK(f->read_some_at(0, in, all[0]) == 0);
        CHECK(f->write_some_at(0, bytes("x"), all[1]) == 0);
        f->sync_data(all[2]);
        f->allocate(1, all[3]);
        f->allocate(0, all[4]);
        f->resize(0, all[5]);
        CHECK(f->size(all[6]) == 0);
        for (const auto& ec : all) {
            CHECK(is_system_error(ec, errcs::bad_file_descriptor));
        }
    }
    for (posix_directory* d : {&no_directory, &moved_directory}) {
        std::int64_t owner = 7;
        std::vector<error_code> all(6, old_error());
        CHECK_FALSE(d->open("a", open_mode::read, all[0]).is_open());
        d->rename("a", "b", all[1]);
        d->remove("a", all[2]);
        CHECK(d->names(all[3]).empty());
        d->sync(all[4]);
        CHECK_FALSE(d->lock(owner, all[5]).is_ours());
        CHECK(owner == 0);
        for (const auto& ec : all) {
            CHECK(is_system_error(ec, errcs::bad_file_descriptor));
        }
    }
    CHECK(slurp(t / "a") == "abc");
}

TEST_CASE("posix_file: assignment and destruction close, moving does not") {
    const temporary_directory t;
    auto d = t.open();
    const std::size_t before = descriptors_below(t.path()).size();
    {
        posix_file a = make(d, "a", "in a");
        posix_file b = make(d, "b", "in b");
        CHECK(descriptors_below(t.path()).size() == before + 2);
        a = std::move(b);
        CHECK(descriptors_below(t.path()).size() == before + 1);
        std::array<char, 4> in{};
        error_code ec = old_error();
        CHECK(read_at(a, 0, std::as_writable_bytes(std::span{in}), ec) == 4);
        CHECK_FALSE(ec);
        CHECK(std::string_view{in.data(), in.size()} == "in b");
    }
    CHECK(descriptors_below(t.path()).size() == before);
    fs::create_directory(t / "directory");
    static_cast<void>(error_of_open(d, "directory", open_mode::read));
    error_code ec = old_error();
    CHECK(d.names(ec).size() == 3);
    CHECK(descriptors_below(t.path()).size() == before); // refusals and listings leave none open
}

TEST_CASE("posix_directory: rename replaces, and needs something to rename") {
    const temporary_directory t;
    auto d = t.open();
    make(d, "from", "new");
    make(d, "to", "old");
    error_code ec = old_error();
    d.rename("from", "to", ec);
    CHECK_FALSE(ec);
    CHECK(d.names(ec) == std::vector<std::string>{"to"});
    CHECK(slurp(t / "to") == "new");
    ec = old_error();
    d.rename("from", "to", ec);
    CHECK(is_system_error(ec, errcs::no_such_file_or_directory));
    CHECK(slurp(t / "to") == "new");
}

TEST_CASE("posix_directory: remove takes a file, an open one too, and nothing else") {
    const temporary_directory t;
    auto d = t.open();
    posix_file f = make(d, "a", "abc");
    fs::create_directory(t / "directory");
    error_code ec = old_error();
    d.remove("a", ec);
    CHECK_FALSE(ec);
    CHECK_FALSE(fs::exists(t / "a"));
    CHECK(f.size(ec) == 3);
    CHECK_FALSE(ec);
    d.remove("a", ec);
    CHECK(is_system_error(ec, errcs::no_such_file_or_directory));
    ec = {};
    d.remove("directory", ec);
    CHECK(ec);
    CHECK(fs::exists(t / "directory"));
}

TEST_CASE("posix_directory: names come in the order of their bytes, each time all of them") {
    const temporary_directory t;
    auto d = t.open();
    error_code ec = old_error();
    CHECK(d.names(ec).empty());
    CHECK_FALSE(ec);
    std::vector<std::string> expected{
        ".hidden", "...", "\xc3\xa9", "B", "a", "aa", "a.b", "10", "9"};
    for (int i = 0; i < 500; ++i) { // more than one system call's worth
        expected.push_back("file" + std::to_string(i));
    }
    for (const auto& name : expected) {
        make(d, name);
    }
    std::sort(expected.begin(), expected.end());
    REQUIRE(expected.back() == "\xc3\xa9"); // bytes are not negative
    for (int i = 0; i < 2; ++i) {
        ec = old_error();
        CHECK(d.names(ec) == expected);
        CHECK_FALSE(ec);
    }
}

TEST_CASE("posix_directory: a handle stays with its directory when that is renamed") {
    const temporary_directory t;
    error_code ec = old_error();
    auto d = posix_directory::open_or_create(t / "a", {}, ec);
    fs::rename(t / "a", t / "b");
    fs::create_directory(t / "a");
    make(d, "file");
    CHECK(fs::exists(t / "b/file"));
    CHECK_FALSE(fs::exists(t / "a/file"));
}

TEST_CASE("posix_lock: a second one in the same process is refused, until the first is gone") {
    const temporary_directory t;
    auto first = t.open();
    auto second = t.open();
    error_code ec = old_error();
    std::int64_t owner = 7;
    {
        const auto held = first.lock(owner, ec);
        REQUIRE_FALSE(ec);
        CHECK(owner == 0);
        CHECK(held.is_ours());
        CHECK(slurp(t / "LOCK") == std::to_string(::getpid()));
        for (posix_directory* d : {&first, &second}) {
            ec = old_error();
            owner = 7;
            CHECK_FALSE(d->lock(owner, ec).is_ours());
            CHECK(ec == railmq::errc::journal_locked);
            CHECK(owner == ::getpid());
        }
        // Opening and closing the file must not release it, as it would a lock of the process.
        CHECK_FALSE(error_of_open(second, "LOCK", open_mode::read_write));
        static_cast<void>(second.lock(owner, ec));
        CHECK(ec == railmq::errc::journal_locked);
    }
    CHECK(fs::exists(t / "LOCK"));
    const auto again = second.lock(owner, ec);
    CHECK_FALSE(ec);
    CHECK(owner == 0);
    CHECK(again.is_ours());
}

TEST_CASE("posix_lock: it goes along when it is moved, and outlives the directory's handle") {
    const temporary_directory t;
    auto d = t.open();
    error_code ec = old_error();
    std::int64_t owner = 0;
    posix_lock first = t.open().lock(owner, ec);
    REQUIRE_FALSE(ec);
    posix_lock moved = std::move(first);
    CHECK(moved.is_ours());
    CHECK_FALSE(first.is_ours());
    CHECK_FALSE(posix_lock{}.is_ours());
    static_cast<void>(d.lock(owner, ec));
    CHECK(ec == railmq::errc::journal_locked);
    moved = posix_lock{};
    CHECK_FALSE(moved.is_ours());
    static_cast<void>(d.lock(owner, ec));
    CHECK_FALSE(ec);
}

TEST_CASE("posix_lock: the owner is a number that the file says, or nobody") {
    struct text_and_owner {
        std::string text;
        std::int64_t owner;
    };
    const auto row = GENERATE(values<text_and_owner>({
        {"1234", 1234},
        {"9223372036854775807", std::numeric_limits<std::int64_t>::max()},
        {"9223372036854775808", 0},
        {"18446744073709551616", 0},
        {"99999999999999999999999999", 0},
        {"", 0},
        {"-1", 0},
        {"+1", 0},
        {" 1", 0},
        {"12 ", 0},
        {"12\n", 0},
        {"0x10", 0},
        {"garbage", 0},
        {std::string(1'000, '\xff'), 0},
        {std::string{"1\0", 2}, 0},
    }));
    const temporary_directory t;
    auto d = t.open();
    error_code ec = old_error();
    std::int64_t owner = 0;
    const auto held = d.lock(owner, ec);
    REQUIRE_FALSE(ec);
    spill(t / "LOCK", row.text);
    owner = 7;
    static_cast<void>(d.lock(owner, ec));
    CAPTURE(row.text);
    CHECK(ec == railmq::errc::journal_locked);
    CHECK(owner == row.owner);
}

TEST_CASE("posix_lock: a text that was left is replaced, a shorter one too") {
    const temporary_directory t;
    auto d = t.open();
    spill(t / "LOCK", std::string(100, '9'));
    error_code ec = old_error();
    std::int64_t owner = 7;
    const auto held = d.lock(owner, ec);
    CHECK_FALSE(ec);
    CHECK(owner == 0);
    CHECK(slurp(t / "LOCK") == std::to_string(::getpid()));
}

TEST_CASE("posix_lock: LOCK has to be a plain file of one name") {
    const temporary_directory t;
    auto d = t.open();
    spill(t / "victim", "precious");
    error_code ec = old_error();
    std::int64_t owner = 7;
    SECTION("a link") {
        fs::create_symlink("victim", t / "LOCK");
        static_cast<void>(d.lock(owner, ec));
        CHECK(is_system_error(ec, errcs::too_many_symbolic_link_levels));
    }
    SECTION("a link to nothing") {
        fs::create_symlink("nowhere", t / "LOCK");
        static_cast<void>(d.lock(owner, ec));
        CHECK(is_system_error(ec, errcs::too_many_symbolic_link_levels));
        CHECK_FALSE(fs::exists(t / "nowhere"));
    }
    SECTION("a second name") {
        fs::create_hard_link(t / "victim", t / "LOCK");
        static_cast<void>(d.lock(owner, ec));
        CHECK(is_system_error(ec, errcs::invalid_argument));
    }
    SECTION("a fifo") {
        REQUIRE(::mkfifo((t / "LOCK").c_str(), 0600) == 0);
        static_cast<void>(d.lock(owner, ec));
        CHECK(is_system_error(ec, errcs::invalid_argument));
    }
    CHECK(owner == 0);
    CHECK(slurp(t / "victim") == "precious");
}

TEST_CASE("posix_lock: a disk that takes no text does not keep it from being taken") {
    const temporary_directory t;
    auto d = t.open();
    error_code ec = old_error();
    std::int64_t owner = 7;
    const scoped_file_limit limit{0};
    const auto held = d.lock(owner, ec);
    CHECK_FALSE(ec);
    CHECK(held.is_ours());
    static_cast<void>(d.lock(owner, ec));
    CHECK(ec == railmq::errc::journal_locked);
    CHECK(owner == 0);
}

TEST_CASE("posix_lock: a forked child has it, but not as its own") {
    const temporary_directory t;
    auto d = t.open();
    error_code ec = old_error();
    std::int64_t owner = 0;
    posix_lock held = d.lock(owner, ec);
    REQUIRE_FALSE(ec);
    CHECK(in_child([&] { return held.is_ours() ? 1 : 0; }) == 0);
    CHECK(held.is_ours());

    // The child's end of it is not the parent's.
    CHECK(in_child([&] {
              held = posix_lock{};
              return 0;
          }) == 0);
    static_cast<void>(d.lock(owner, ec));
    CHECK(ec == railmq::errc::journal_locked);
    CHECK(owner == ::getpid());
}

TEST_CASE("posix_lock: another process that has it is named, and its death releases it") {
    const temporary_directory t;
    std::array<int, 2> link{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, link.data()) == 0);
    const ::pid_t pid = ::fork();
    REQUIRE(pid != -1);
    if (pid == 0) {
        ::close(link[0]);
        error_code ec;
        std::int64_t owner = 0;
        auto d = posix_directory::open_or_create(t.path(), {}, ec);
        const auto held = d.lock(owner, ec);
        char signal = ec ? 'n' : 'y';
        // Then it waits until the parent's end is closed.
        if (::write(link[1], &signal, 1) == 1 && ::read(link[1], &signal, 1) == 0) {
            ::_exit(0);
        }
        ::_exit(1);
    }
    ::close(link[1]);
    char answer = '?';
    const bool has_answered = ::read(link[0], &answer, 1) == 1;
    auto d = t.open();
    error_code ec = old_error();
    std::int64_t owner = 0;
    CHECK(has_answered);
    CHECK(answer == 'y');
    CHECK_FALSE(d.lock(owner, ec).is_ours());
    CHECK(ec == railmq::errc::journal_locked);
    CHECK(owner == pid);
    ::close(link[0]);
    int status = -1;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    CHECK(d.lock(owner, ec).is_ours());
    CHECK_FALSE(ec);
}

TEST_CASE("posix_lock: readers share a directory, keep writers out, and leave no trace") {
    const temporary_directory t;
    auto d = t.open();
    auto other = t.open();
    error_code ec = old_error();
    std::int64_t owner = 7;
    {
        const auto nothing = d.lock_to_read(owner, ec);
        CHECK_FALSE(ec);
        CHECK_FALSE(nothing.is_ours()); // nobody has ever written here
        CHECK(d.names(ec).empty());
    }
    static_cast<void>(d.lock(owner, ec)); // makes the file, and lets go
    REQUIRE_FALSE(ec);
    {
        const auto one = d.lock_to_read(owner, ec);
        CHECK(one.is_ours());
        const auto two = other.lock_to_read(owner, ec);
        CHECK_FALSE(ec);
        CHECK(two.is_ours());
        CHECK_FALSE(other.lock(owner, ec).is_ours());
        CHECK(ec == railmq::errc::journal_locked);
    }
    const auto writer = other.lock(owner, ec);
    REQUIRE_FALSE(ec);
    CHECK_FALSE(d.lock_to_read(owner, ec).is_ours());
    CHECK(ec == railmq::errc::journal_locked);
    CHECK(owner == ::getpid());
}

TEST_CASE("posix_directory: one that must be there is not made") {
    const temporary_directory t;
    error_code ec = old_error();
    const std::string path = std::string{t.path()} + "/missing";
    static_cast<void>(posix_directory::open_existing(path, {}, ec));
    CHECK(ec == boost::system::errc::no_such_file_or_directory);
    CHECK(::access(path.c_str(), F_OK) == -1);
    static_cast<void>(posix_directory::open_existing(std::string{t.path()}, {}, ec));
    CHECK_FALSE(ec);
}

TEST_CASE("posix_directory: no descriptor outlives an exec") {
    const temporary_directory t;
    auto d = t.open();
    const posix_file made = make(d, "a");
    error_code ec = old_error();
    const posix_file read = d.open("a", open_mode::read, ec);
    std::int64_t owner = 0;
    const auto lock = d.lock(owner, ec);
    REQUIRE_FALSE(ec);
    const auto all = descriptors_below(t.path());
    CHECK(all.size() == 4);
    for (const int number : all) {
        CHECK((::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
    }
}

static_assert(!std::is_copy_constructible_v<posix_file> && !std::is_copy_assignable_v<posix_file>);
static_assert(!std::is_copy_constructible_v<posix_lock> && !std::is_copy_assignable_v<posix_lock>);
static_assert(std::is_nothrow_move_constructible_v<posix_directory>);
