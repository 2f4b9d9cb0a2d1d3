// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

namespace railmq::core {

/// The words of a topic pattern or a routing key, one after the other, without a copy.
///
/// Words are separated by dots. Empty words are words: "a..b" has three and "." has two; the empty
/// text has none (RabbitMQ, topic exchange).
class topic_words {
public:
    constexpr explicit topic_words(std::string_view text) noexcept
        : rest_{text}
        , more_{!text.empty()} {}

    /// Puts the next word into `word`; false, and `word` is as it was, when there is none.
    /// Cost: linear in the word.
    [[nodiscard]] constexpr bool next(std::string_view& word) noexcept {
        if (!more_) {
            return false;
        }
        const std::size_t dot = rest_.find('.');
        more_ = dot != std::string_view::npos;
        word = rest_.substr(0, dot);
        rest_.remove_prefix(more_ ? dot + 1 : rest_.size());
        return true;
    }

private:
    std::string_view rest_;
    bool more_;
};

/// Whether a word of a pattern stands for exactly one word, which may be empty. Only as a whole
/// word: "a*" is a literal.
[[nodiscard]] constexpr bool is_one_word(std::string_view word) noexcept {
    return word == "*";
}

/// Whether a word of a pattern stands for any number of words, none included. Only as a whole word:
/// "##" is a literal.
[[nodiscard]] constexpr bool is_any_words(std::string_view word) noexcept {
    return word == "#";
}

} // namespace railmq::core
