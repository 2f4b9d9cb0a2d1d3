// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/testing/history.hpp>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// Histories as JSON lines, for tests of several processes and for programs that judge histories
/// themselves. Needs Boost.JSON: one source file of the program includes <boost/json/src.hpp>, or
/// the program links it.

namespace railmq::testing {

namespace detail {

/// The members of an event by name. Each line has only what differs from the defaults, so that
/// members may be added, and an old line is still read.
class event_writer {
public:
    template <class T>
    void operator()(std::string_view name, const T& value, const T& usual) {
        if (!(value == usual)) {
            out_[name] = json(value);
        }
    }
    [[nodiscard]] std::string line() const { return boost::json::serialize(out_).append("\n"); }

private:
    template <class T>
    [[nodiscard]] static boost::json::value json(const T& value) {
        if constexpr (std::is_enum_v<T>) {
            return boost::json::value(std::string_view{to_string(value)});
        } else if constexpr (std::is_same_v<T, time_point>) {
            return value.time_since_epoch().count();
        } else {
            return boost::json::value(value);
        }
    }
    template <class T>
    [[nodiscard]] static boost::json::value json(const std::optional<T>& value) {
        return json(*value); // an empty one is the default
    }

    boost::json::object out_{};
};

class event_reader {
public:
    explicit event_reader(const boost::json::object& in)
        : in_{in} {}

    template <class T>
    void operator()(std::string_view name, T& value, const T&) {
        const boost::json::value* v = in_.if_contains(name);
        if (v == nullptr) {
            return;
        }
        ++used_;
        good_ = good_ && read(*v, value);
    }
    /// Whether every member had a name and a value that an event can have.
    [[nodiscard]] bool is_good() const noexcept { return good_ && used_ == in_.size(); }

private:
    template <class T>
    [[nodiscard]] static bool read(const boost::json::value& v, T& to) {
        if constexpr (std::is_enum_v<T>) {
            return v.is_string() && read_name(v.get_string(), to);
        } else if constexpr (std::is_same_v<T, bool>) {
            to = v.is_bool() && v.get_bool();
            return v.is_bool();
        } else if constexpr (std::is_same_v<T, std::string>) {
            to = v.is_string() ? std::string{std::string_view{v.get_string()}} : std::string{};
            return v.is_string();
        } else if constexpr (std::is_same_v<T, time_point>) {
            std::int64_t n = 0;
            const bool good = read(v, n);
            to = time_point{duration{n}};
            return good;
        } else {
            boost::json::error_code ec;
            to = v.to_number<T>(ec);
            return !ec && !v.is_double();
        }
    }
    template <class T>
    [[nodiscard]] static bool read(const boost::json::value& v, std::optional<T>& to) {
        return read(v, to.emplace());
    }
    /// Finds an enumerator by its text, which must not be the one that says it is unknown.
    template <class T>
    [[nodiscard]] static bool read_name(std::string_view text, T& to) {
        constexpr int end = std::numeric_limits<std::uint8_t>::max(); // no enumerator, ever
        for (int n = 0; n < end && text != to_string(static_cast<T>(end)); ++n) {
            const auto candidate = static_cast<T>(n);
            if (to_string(candidate) == text) {
                to = candidate;
                return true;
            }
        }
        return false;
    }

    const boost::json::object& in_;
    std::size_t used_ = 0;
    bool good_ = true;
};

template <class Visitor, class Event>
void for_each_member(Visitor& visit, Event& e) {
    const event usual;
    visit("queue", e.queue, usual.queue);
    visit("message", e.message, usual.message);
    visit("consumer", e.consumer, usual.consumer);
    visit("at", e.at, usual.at);
    visit("id", e.id, usual.id);
    visit("key", e.key, usual.key);
    visit("delivery_count", e.delivery_count, usual.delivery_count);
    visit("failure_count", e.failure_count, usual.failure_count);
    visit("redelivered", e.redelivered, usual.redelivered);
    visit("deadline", e.deadline, usual.deadline);
    visit("ready_at", e.ready_at, usual.ready_at);
    visit("expires_at", e.expires_at, usual.expires_at);
    visit("target", e.target, usual.target);
    visit("reason", e.reason, usual.reason);
    visit("level", e.level, usual.level);
    visit("crash", e.crash, usual.crash);
    visit("partition", e.partition, usual.partition);
    visit("offset", e.offset, usual.offset);
}

} // namespace detail

/// One event as one line, its end included: `{"kind":"acked","queue":"orders","message":7}`. Times
/// are nanoseconds. A process that may be killed writes it with one `write`, so that the line is
/// there or not, or is the last one and torn.
[[nodiscard]] inline std::string to_jsonl(const event& e) {
    std::string kind{to_string(e.kind)};
    detail::event_writer writer;
    writer("kind", kind, std::string{});
    detail::for_each_member(writer, e);
    return writer.line();
}
[[nodiscard]] inline std::string to_jsonl(const std::vector<event>& events) {
    std::string text;
    for (const event& e : events) {
        text.append(to_jsonl(e));
    }
    return text;
}

/// Reads lines that `to_jsonl` wrote. What follows the last end of a line is left out: a process
/// was killed while it wrote it. Throws `system_error` with `invalid_argument`, and the number of
/// the line, at one that is no event.
[[nodiscard]] inline std::vector<event> from_jsonl(std::string_view text) {
    std::vector<event> events;
    std::size_t number = 0;
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        ++number;
        boost::json::error_code ec;
        const boost::json::value v = boost::json::parse(line, ec);
        bool is_good = !ec && v.is_object();
        if (is_good) {
            detail::event_reader reader{v.get_object()};
            event& e = events.emplace_back();
            std::optional<event_kind> kind;
            reader("kind", kind, std::optional<event_kind>{});
            detail::for_each_member(reader, e);
            is_good = reader.is_good() && kind.has_value();
            e.kind = kind.value_or(event_kind::send_begun);
        }
        if (!is_good) {
            throw system_error(
                make_error_code(errc::invalid_argument),
                "line " + std::to_string(number) + " is no event");
        }
    }
    return events;
}

} // namespace railmq::testing
