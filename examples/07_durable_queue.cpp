// SPDX-License-Identifier: BSL-1.0
//
// Work that survives: a broker with a directory keeps its queues in files. What `send` has
// returned for is there when the next process opens the directory, whether this one left in good
// order, was killed, or lost its power.

#include <railmq/railmq.hpp>

#include <fmt/core.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace {

/// A folder that is removed in the end.
class temporary_folder {
public:
    temporary_folder() {
        std::string path = (std::filesystem::temp_directory_path() / "railmq-XXXXXX").string();
        if (::mkdtemp(path.data()) == nullptr) {
            throw std::filesystem::filesystem_error(
                "mkdtemp", path, std::error_code{errno, std::generic_category()});
        }
        path_ = path;
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] std::string operator/(const char* name) const { return (path_ / name).string(); }

private:
    std::filesystem::path path_;
};

bool failed = false;

void check(const char* what, bool holds) {
    fmt::print("{} {}\n", holds ? "ok  " : "FAIL", what);
    failed = failed || !holds;
}

} // namespace

int main() {
    const temporary_folder folder;
    const std::string shop = folder / "shop";

    {
        railmq::broker broker{{.directory = shop}}; // made, since it is not there
        auto orders = broker.queue<std::string>("orders");
        auto producer = orders.producer();
        producer.send("espresso"); // returns when it is on the device
        producer.send("tea", {.key = "table 4"});
        producer.send("cake");

        auto consumer = orders.consumer();
        consumer.try_receive()->ack();         // the espresso is done
        auto in_work = consumer.try_receive(); // the tea is not
        check("one is done, one in work, one waits", orders.stats().ready == 1);
        broker.close(); // the shop closes
    }

    {
        railmq::broker broker{{.directory = shop}};
        check("it was closed in good order", broker.recovery().was_closed);
        auto orders = broker.queue<std::string>("orders"); // with the options that it had
        check("two orders are left", orders.stats().ready == 2);

        auto consumer = orders.consumer();
        auto tea = consumer.try_receive();
        check("the tea comes first, as it did before", tea->value() == "tea");
        check("with its properties", tea->key() == "table 4");
        check("and says that somebody had it", tea->redelivered());
        tea->ack();
        consumer.try_receive()->ack();
        broker.sync(); // what was acknowledged survives a power cut too
    }

    railmq::broker broker{{.directory = shop}};
    check("nothing is left", broker.queue<std::string>("orders").stats().ready == 0);
    return failed ? 1 : 0;
}
