// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace railmq::core {

/// The messages of one key in a queue that keeps order by key: one has left the line and is not
/// settled, the others wait behind it.
struct key_line {
    std::string key{};
    std::uint64_t owner = 0;
    std::deque<std::uint64_t> parked{};
};

/// All keys that have a message between its first hand-out and its settlement.
class key_lines {
public:
    /// The key's line, made for `owner` if the key was free; else none, and `id` is parked there.
    [[nodiscard]] key_line* enter(std::string_view key, std::uint64_t id) {
        auto it = lines_.find(std::string{key});
        if (it != lines_.end()) {
            it->second->parked.push_back(id);
            return nullptr;
        }
        auto made = std::make_unique<key_line>();
        made->key = std::string{key};
        made->owner = id;
        key_line* line = made.get();
        lines_.emplace(line->key, std::move(made));
        return line;
    }

    /// The owner has left. The id of the message that owned the line next, which the caller checks
    /// and hands its turn; none when the key is free again, and then `line` is gone.
    [[nodiscard]] std::optional<std::uint64_t> pass_on(key_line& line) {
        if (line.parked.empty()) {
            lines_.erase(line.key);
            return std::nullopt;
        }
        line.owner = line.parked.front();
        line.parked.pop_front();
        return line.owner;
    }

    [[nodiscard]] std::size_t size() const noexcept { return lines_.size(); }

private:
    std::unordered_map<std::string, std::unique_ptr<key_line>> lines_{};
};

} // namespace railmq::core
