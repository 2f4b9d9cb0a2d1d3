// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/payload_ops.hpp>

#include <algorithm>
#include <cstddef>
#include <new>

namespace railmq::detail {

/// Memory for one payload on its way, which it ends unless it was moved on.
class raw_value {
public:
    explicit raw_value(const core::payload_ops& ops)
        : ops_{ops}
        , at_{::operator new(ops.size, align())} {}
    raw_value(const raw_value&) = delete;
    raw_value& operator=(const raw_value&) = delete;
    ~raw_value() {
        if (has_value_ && ops_.destroy != nullptr) {
            ops_.destroy(at_);
        }
        ::operator delete(at_, align());
    }
    /// Throws what the copy throws.
    void copy_of(const void* value) {
        ops_.copy(at_, value);
        has_value_ = true;
    }
    [[nodiscard]] void* get() const noexcept { return at_; }
    void was_moved() noexcept { has_value_ = false; }

private:
    [[nodiscard]] std::align_val_t align() const noexcept {
        return std::align_val_t{std::max<std::size_t>(ops_.align, alignof(void*))};
    }
    const core::payload_ops& ops_;
    void* at_;
    bool has_value_ = false;
};

} // namespace railmq::detail
