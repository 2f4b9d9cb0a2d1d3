// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/bytes.hpp>
#include <railmq/detail/elements.hpp>
#include <railmq/model/codec.hpp>
#include <railmq/producer.hpp>
#include <railmq/storage/wire.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// How a producer sends many messages at once.
namespace railmq {

template <class T, class Runtime>
template <class Iterator, class End, class Forward>
std::size_t basic_producer<T, Runtime>::send_rows(
    Iterator& it, const End& end, Forward&& forward_element, std::uint64_t& record) {
    constexpr std::size_t most_bytes = std::size_t{256} << 10;
    std::vector<std::byte> buffer = std::exchange(spare_buffer(), {});
    std::vector<std::size_t> ends;
    std::size_t sent = 0;
    for (bool goes_on = true; goes_on && it != end;) {
        buffer.clear();
        ends.clear();
        storage::wire_writer w{buffer};
        auto look = it;
        for (; look != end && ends.size() < 1024 && buffer.size() < most_bytes; ++look) {
            const T& element = *look;
            if (payload_size<T>::of(element) > max_bytes_) {
                break; // sent alone, it says why not
            }
            const auto begin = w.begin_sized(payload_size<T>::of(element));
            codec<T>::encode(element, buffer);
            w.end_sized(begin);
            ends.push_back(buffer.size());
        }
        if (ends.empty()) {
            break;
        }
        const core::encoded_row encoded{buffer, ends};
        const auto make = [&](std::size_t, void* at) {
            ::new (at) T(forward_element(*it));
            ++it;
        };
        const std::size_t stored =
            queue_->locked_and_current([&](auto& m, time_point now, auto& fx) -> std::size_t {
                if (m.is_closed() || m.is_waited_for() ||
                    queue_->check_room(buffer.size() + 64) != errc{}) {
                    return 0;
                }
                fx.wanted_at = &record;
                errc failed{};
                const std::size_t n = m.store_row(encoded, make, now, fx, failed);
                m.serve(now, fx);
                return n;
            });
        sent += stored;
        goes_on = stored == ends.size();
    }
    spare_buffer() = std::move(buffer);
    return sent;
}

template <class T, class Runtime>
template <std::ranges::input_range Range>
requires detail::elements_for<Range, T> std::size_t
basic_producer<T, Runtime>::send_batch(Range&& range, error_code& ec) {
    ec = {};
    if (queue_ == nullptr) {
        ec = errc::closed;
        return 0;
    }
    const auto forward_element = [](auto&& element) -> decltype(auto) {
        if constexpr (detail::gives_up_elements<Range>) {
            return std::move(element);
        } else {
            return std::forward<decltype(element)>(element);
        }
    };
    auto it = std::ranges::begin(range);
    const auto end = std::ranges::end(range);
    std::size_t sent = 0;
    using element_type = decltype(forward_element(*it));
    // Once places are claimed nothing may fail, and what a range computes is asked for only once.
    constexpr bool has_elements = std::is_reference_v<decltype(*it)>;
    constexpr bool is_fixed = requires {
        requires payload_size<T>::is_fixed;
    };
    if constexpr (
        std::ranges::forward_range<Range> && std::ranges::sized_range<Range> &&
        (has_elements || (is_fixed&& noexcept(*it)&& noexcept(++it))) &&
        std::is_nothrow_constructible_v<T, element_type> &&
        std::same_as<std::remove_cvref_t<element_type>, T>) {
        auto& ring = *ring_;
        auto left = static_cast<std::size_t>(std::ranges::size(range));
        for (left = queue_->is_kept() ? 0 : left; left != 0;) {
            // As many as are small enough go in one claim.
            const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(left, 1024));
            std::uint32_t want = 0;
            if constexpr (is_fixed) {
                want = sizeof(T) <= max_bytes_ ? most : 0;
            } else {
                for (auto look = it; want < most; ++look, ++want) {
                    if (payload_size<T>::of(*look) > max_bytes_) {
                        break;
                    }
                }
            }
            const time_point now = owner_->clock().coarse_now();
            std::uint64_t first = 0;
            std::uint32_t count = 0;
            if (want == 0 || claim(want, now, first, count) != fast_result::sent) {
                send(forward_element(*it), ec); // it waits, if need be
                if (ec) {
                    return sent;
                }
                count = 1;
                ++it;
            } else {
                for (std::uint32_t i = 0; i < count;) {
                    const auto run = static_cast<std::uint32_t>(
                        std::min<std::uint64_t>(count - i, ring.run_from(first + i)));
                    publish_run(
                        it,
                        run,
                        ring.claimed(first + i),
                        ring.upcoming(first + i, stride),
                        now,
                        forward_element);
                    i += run;
                }
            }
            sent += count;
            left -= count;
        }
    }
    // What is kept is made safe once for all of them.
    std::uint64_t record = 0;
    const bool is_kept = queue_->is_kept();
    for (; it != end; ++it, ++sent) {
        if constexpr (
            std::ranges::forward_range<Range> && has_elements && encodable<T> &&
            std::is_constructible_v<T, element_type> &&
            std::same_as<std::remove_cvref_t<element_type>, T>) {
            if (is_kept) {
                sent += send_rows(it, end, forward_element, record);
                if (it == end) {
                    break;
                }
            }
        }
        if (is_kept) {
            (void)send_unconfirmed(forward_element(*it), nullptr, never, record, ec);
        } else {
            send(forward_element(*it), ec);
        }
        if (ec) {
            break;
        }
    }
    if (is_kept && sent != 0) {
        error_code failed;
        confirm(record, failed);
        ec = failed ? failed : ec;
    }
    return sent;
}

template <class T, class Runtime>
template <std::ranges::input_range Range>
requires std::same_as<T, bytes> &&
    std::convertible_to<std::ranges::range_reference_t<Range>, std::string_view>
        std::size_t basic_producer<T, Runtime>::send_batch(Range&& range, error_code& ec) {
    ec = queue_ == nullptr ? error_code{errc::closed} : error_code{};
    std::size_t sent = 0;
    auto it = std::ranges::begin(range);
    while (!ec && it != std::ranges::end(range)) {
        boost::container::small_vector<bytes, 64> copies;
        // What is kept waits for its record, so it goes in few; else in so many as the cache holds.
        const std::size_t most = queue_->is_kept() ? 1024 : copies.capacity();
        error_code failed;
        for (; copies.size() < most && it != std::ranges::end(range); ++it) {
            bytes one = copy(*it, failed);
            if (failed) {
                break;
            }
            copies.push_back(std::move(one));
        }
        // What was copied is sent, even when the next could not be copied any more.
        sent += send_batch(std::move(copies), ec);
        if (!ec) {
            ec = failed;
        }
    }
    return sent;
}

} // namespace railmq
