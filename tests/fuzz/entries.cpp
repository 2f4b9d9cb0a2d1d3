// SPDX-License-Identifier: BSL-1.0
//
// A record of any content: reading its entries stays within it, takes no more memory than is due
// to its length, and what is understood is written and understood again as the same.
#include <railmq/storage/entries.hpp>
#include <railmq/storage/kept_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>
#include <vector>

using namespace railmq::storage;
using railmq::duration;
using railmq::core::message_image;

namespace {

std::size_t allocated = 0; ///< All of it, freed or not.

void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

/// Writes what it is told, so that it can be read once more.
struct writing_visitor {
    entry_writer& w;
    void clock(railmq::time_point now) { w.clock(now); }
    void queue(const queue_definition& d) { w.queue(d); }
    void deleted(std::uint64_t q) { w.deleted(q); }
    void exchange(const exchange_definition& d) { w.exchange(d); }
    void exchange_gone(std::uint64_t x) { w.exchange_gone(x); }
    void bound(const binding_definition& b) { w.bound(b); }
    void unbound(const binding_definition& b) { w.unbound(b); }
    void stored(std::uint64_t q, const message_image& m, const stored_content& c) {
        w.stored(q, m, c);
    }
    void changed(std::uint64_t q, const message_image& m) { w.changed(q, m); }
    void held(
        std::uint64_t q,
        std::uint64_t first,
        std::uint64_t n,
        std::uint32_t times,
        railmq::time_point at) {
        w.held(q, first, n, times, at);
    }
    void gone(std::uint64_t q, std::uint64_t first, std::uint64_t n) { w.gone(q, first, n); }
    // A range's length is not told: it is left out, and its messages are as if they had changed.
    void range(std::uint64_t, std::uint64_t, std::uint64_t) {}
    void listed(std::uint64_t q, const message_image& m, record_location, std::uint32_t) {
        w.changed(q, m);
    }
};

struct content_visitor : entry_visitor {
    duration wall;
    explicit content_visitor(duration w)
        : wall{w} {}
    void stored(std::uint64_t, const message_image&, const stored_content& c) const {
        message_image m;
        if (read_beside(c, wall, m)) {
            require((m.props != nullptr) == ((c.has & 1) != 0));
            require((m.deaths != nullptr) == ((c.has & 2) != 0));
        }
    }
};

[[nodiscard]] bool
write_again(std::span<const std::byte> record, duration wall, std::vector<std::byte>& out) {
    entry_writer w{out, wall};
    return read_entries(record, wall, writing_visitor{w});
}

} // namespace

void* operator new(std::size_t size) {
    allocated += size;
    if (void* const p = std::malloc(size)) {
        return p;
    }
    throw std::bad_alloc{};
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return std::malloc(size);
}
void* operator new[](std::size_t size) {
    return operator new(size);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
    std::free(p);
}
void operator delete[](void* p) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
    std::free(p);
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto record = std::as_bytes(std::span{data, size});
    const duration walls[] = {duration::zero(), std::chrono::hours{500'000}};
    for (const duration wall : walls) {
        allocated = 0;
        (void)read_entries(record, wall, content_visitor{wall});
        require(allocated <= 64 * size + 4096);

        std::vector<std::byte> once;
        std::vector<std::byte> twice;
        if (write_again(record, wall, once)) {
            require(write_again(once, wall, twice));
            require(once == twice);
        }
    }

    allocated = 0;
    kept_state state;
    const bool is_good = state.add(record, {1, segment_header::size});
    require(allocated <= 512 * size + 16'384);
    // The same once more does no harm.
    const bool is_good_again = state.add(record, {1, segment_header::size});
    require(is_good == is_good_again);
    for (auto& [number, queue] : state.queues) {
        require(queue.definition.number == number);
        std::size_t n = 0;
        bool is_first = true;
        std::uint64_t before = 0;
        queue.messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
            require(is_first || id > before);
            require(!m.is_empty());
            require(m.image(id).id == id);
            is_first = false;
            before = id;
            ++n;
            return true;
        });
        require(n == queue.messages.size());
        require(queue.definition.number <= state.last_queue);
    }
    return 0;
}
