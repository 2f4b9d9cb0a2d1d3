// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace railmq::core {

struct message_details;

/// Where a message is in its life, as its slot says it.
enum class slot_state : std::uint8_t {
    empty,    ///< Claimed by nobody, or by a producer that has not published yet.
    ready,    ///< In line, in the order of sending.
    leased,   ///< Held by a consumer.
    settling, ///< Leaving: whoever set this state is ending the payload.
    done,     ///< Gone. The slot can be reused with its chunk.
    returned, ///< Ready again, out of line: listed by sequence number.
    waiting,  ///< Not ready: waiting for a time, for its key, or for its move to a dead-letter
              ///< queue.
};

/// A slot's state and everything that must change together with it, in one word.
///
/// | bits | meaning |
/// |---|---|
/// | 0-3 | `slot_state` |
/// | 4 | the slot has `message_details` |
/// | 5 | settling it needs the queue's lock |
/// | 6 | in a delivery's copy: its lease is known to be lost |
/// | 7 | details are being made for it |
/// | 8-15 | handles whose lease was taken away and that may still read the payload |
/// | 16-39 | the holder's number |
/// | 40-63 | times handed out, which is also the lease's generation |
class slot_word {
public:
    static constexpr std::uint64_t details_bit = 1ULL << 4;
    static constexpr std::uint64_t slow_bit = 1ULL << 5;
    static constexpr std::uint64_t stale_bit = 1ULL << 6;
    static constexpr std::uint64_t changing_bit = 1ULL << 7;
    static constexpr std::uint32_t max_pins = 0xff;
    static constexpr std::uint32_t max_owner = 0xffffff;
    static constexpr std::uint32_t max_tag = 0xffffff;

    constexpr slot_word() noexcept = default;
    explicit constexpr slot_word(std::uint64_t bits) noexcept
        : bits_{bits} {}
    explicit constexpr slot_word(slot_state s) noexcept
        : bits_{static_cast<std::uint64_t>(s)} {}

    [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }
    [[nodiscard]] constexpr slot_state state() const noexcept {
        return static_cast<slot_state>(bits_ & 0xf);
    }
    [[nodiscard]] constexpr bool has_details() const noexcept { return (bits_ & details_bit) != 0; }
    [[nodiscard]] constexpr bool is_slow() const noexcept { return (bits_ & slow_bit) != 0; }
    [[nodiscard]] constexpr bool is_changing() const noexcept {
        return (bits_ & changing_bit) != 0;
    }
    [[nodiscard]] constexpr std::uint32_t pins() const noexcept {
        return static_cast<std::uint32_t>(bits_ >> 8) & 0xff;
    }
    [[nodiscard]] constexpr std::uint32_t owner() const noexcept {
        return static_cast<std::uint32_t>(bits_ >> 16) & max_owner;
    }
    [[nodiscard]] constexpr std::uint32_t tag() const noexcept {
        return static_cast<std::uint32_t>(bits_ >> 40);
    }

    [[nodiscard]] constexpr slot_word with(slot_state s) const noexcept {
        return slot_word{(bits_ & ~0xfULL) | static_cast<std::uint64_t>(s)};
    }
    [[nodiscard]] constexpr slot_word with_flags(std::uint64_t flags) const noexcept {
        return slot_word{bits_ | flags};
    }
    [[nodiscard]] constexpr slot_word without_flags(std::uint64_t flags) const noexcept {
        return slot_word{bits_ & ~flags};
    }
    [[nodiscard]] constexpr slot_word with_pins(std::uint32_t n) const noexcept {
        return slot_word{(bits_ & ~(0xffULL << 8)) | (static_cast<std::uint64_t>(n) << 8)};
    }
    /// The word after handing the message to `owner` once more.
    [[nodiscard]] constexpr slot_word leased_to(std::uint32_t owner) const noexcept {
        constexpr std::uint64_t kept = 0xff00ULL | details_bit | slow_bit;
        // The generation wraps; a receipt would have to survive 16 million hand-outs to meet it.
        const std::uint64_t tag = ((bits_ >> 40) + 1) & max_tag;
        return slot_word{
            (bits_ & kept) | static_cast<std::uint64_t>(slot_state::leased) |
            (static_cast<std::uint64_t>(owner) << 16) | (tag << 40)};
    }
    /// The word of a message that was handed out that often before.
    [[nodiscard]] constexpr slot_word handed_out(std::uint32_t times) const noexcept {
        return slot_word{
            (bits_ & ~(std::uint64_t{max_tag} << 40)) | (std::uint64_t{times & max_tag} << 40)};
    }
    /// Whether both words speak of the same lease, whatever the flags and pins.
    [[nodiscard]] constexpr bool same_lease(slot_word other) const noexcept {
        constexpr std::uint64_t compared =
            ~(0xff00ULL | details_bit | slow_bit | stale_bit | changing_bit);
        return (bits_ & compared) == (other.bits_ & compared);
    }

    friend constexpr bool operator==(slot_word, slot_word) noexcept = default;

private:
    std::uint64_t bits_ = 0;
};

/// The fixed part of a message's place in memory; the payload follows it. 16 bytes, since at tens
/// of millions of messages a second every cache line counts. When a first lease ends is not here:
/// `lease_times` has it.
template <class Sync>
struct slot {
    typename Sync::template atomic<std::uint64_t> word{0};
    /// When it was sent, in nanoseconds of broker time; where the word says that there are details,
    /// their address. Atomic because its holder may ask for the time while they are made.
    typename Sync::template atomic<std::uint64_t> rest{0};

    [[nodiscard]] time_point enqueued() const noexcept {
        return time_point{
            duration{static_cast<std::int64_t>(rest.load(std::memory_order_acquire))}};
    }
    void set_enqueued(time_point t) noexcept {
        rest.store(
            static_cast<std::uint64_t>(t.time_since_epoch().count()), std::memory_order_relaxed);
    }
    [[nodiscard]] message_details* details() const noexcept {
        return reinterpret_cast<message_details*>(
            static_cast<std::uintptr_t>(rest.load(std::memory_order_relaxed)));
    }
    void set_details(message_details* d) noexcept {
        rest.store(reinterpret_cast<std::uintptr_t>(d), std::memory_order_release);
    }

    [[nodiscard]] slot_word load() const noexcept {
        return slot_word{word.load(std::memory_order_acquire)};
    }
    void store(slot_word w) noexcept { word.store(w.bits(), std::memory_order_release); }
};

[[nodiscard]] constexpr std::size_t align_up(std::size_t n, std::size_t alignment) noexcept {
    return (n + alignment - 1) / alignment * alignment;
}

/// Where the payload starts within a slot.
[[nodiscard]] constexpr std::size_t payload_offset(std::size_t alignment) noexcept {
    return align_up(16, alignment);
}

/// How far apart slots with a payload of that size and alignment lie.
[[nodiscard]] constexpr std::size_t slot_stride(std::size_t size, std::size_t alignment) noexcept {
    return align_up(payload_offset(alignment) + size, alignment < 8 ? 8 : alignment);
}

/// The slot `n` places behind `s`, or before it, in one chunk. Whoever goes through many knows the
/// stride: a constant where the payload's type is one.
template <class Sync>
[[nodiscard]] slot<Sync>* slot_after(slot<Sync>* s, std::ptrdiff_t n, std::size_t stride) noexcept {
    return reinterpret_cast<slot<Sync>*>(
        reinterpret_cast<std::byte*>(s) + n * static_cast<std::ptrdiff_t>(stride));
}

} // namespace railmq::core
