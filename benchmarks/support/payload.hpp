// SPDX-License-Identifier: BSL-1.0
//
// What travels through the queues. A payload says what is sent, what a queue stores, how to make
// the n-th one and how to read it. Every message carries a number, so that a run can check that
// it lost nothing; reading touches every cache line of the message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// Makes the compiler believe that the value is needed.
template <class T>
inline void keep(const T& value) {
    asm volatile("" : : "r"(value));
}

/// Eight equal words: the compiler then writes as wide as it copies, and no copy has to wait for
/// narrower writes to come together.
struct record {
    std::array<std::uint64_t, 8> words{};

    record() = default;
    explicit record(std::uint64_t sequence) { words.fill(sequence); }

    [[nodiscard]] std::uint64_t sequence() const { return words.front(); }
};
static_assert(sizeof(record) == 64);

struct record_payload {
    using sent = record;
    using stored = record;

    struct source {
        [[nodiscard]] record make(std::uint64_t sequence) const { return record{sequence}; }
    };

    /// What read() returns for the n-th message.
    static std::uint64_t number_of(std::uint64_t sequence) { return sequence; }

    /// First and last word: whatever the alignment, these are all of its cache lines.
    static std::uint64_t read(const record& value) {
        keep(value.words.back());
        return value.sequence();
    }
};

/// Sixteen texts, prepared beforehand and numbered, that are sent over and over: the clock runs
/// for sending a text, not for writing one.
template <std::size_t Size>
class prepared_texts {
public:
    static constexpr std::uint64_t count = 16;

    prepared_texts() {
        for (std::uint64_t number = 0; number < count; ++number) {
            std::memcpy(texts_[number].data(), &number, sizeof number);
        }
    }

    [[nodiscard]] const std::string& at(std::uint64_t sequence) const {
        return texts_[sequence % count];
    }

    [[nodiscard]] static std::uint64_t number_of(std::uint64_t sequence) {
        return sequence % count;
    }

    /// Reads one word of each cache line and returns the number at the front.
    [[nodiscard]] static std::uint64_t read(std::string_view text) {
        std::uint64_t sum = 0;
        for (std::size_t at = 64; at + sizeof sum <= text.size(); at += 64) {
            std::uint64_t word = 0;
            std::memcpy(&word, text.data() + at, sizeof word);
            sum += word;
        }
        keep(sum);
        std::uint64_t number = 0;
        std::memcpy(&number, text.data(), sizeof number);
        return number;
    }

private:
    std::vector<std::string> texts_ = std::vector<std::string>(count, std::string(Size, 'x'));
};

/// A std::string of that size, allocated for each message as programs do.
template <std::size_t Size>
struct string_payload : prepared_texts<Size> {
    using sent = std::string;
    using stored = std::string;

    struct source : prepared_texts<Size> {
        [[nodiscard]] std::string make(std::uint64_t sequence) const { return this->at(sequence); }
    };
};

/// The same text, but passed by view. `Stored` is what the queue keeps and shows with `view()`.
template <std::size_t Size, class Stored>
struct view_payload : prepared_texts<Size> {
    using sent = std::string_view;
    using stored = Stored;

    struct source : prepared_texts<Size> {
        [[nodiscard]] std::string_view make(std::uint64_t sequence) const {
            return this->at(sequence);
        }
    };

    static std::uint64_t read(const auto& value) {
        return prepared_texts<Size>::read(value.view());
    }
};

} // namespace bench
