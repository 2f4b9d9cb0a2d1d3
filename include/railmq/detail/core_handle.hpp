// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>

#include <memory>
#include <string>
#include <utility>

namespace railmq::detail {

/// What the handles of logs, topics and exchanges have in common: the shared part that they refer
/// to, and an error in the name of it where it is gone.
///
/// Thread safety: safe, as long as the handle itself is not changed.
template <class Core>
class core_handle {
public:
    /// Whether it refers to something that is neither closed nor deleted.
    [[nodiscard]] bool is_open() const noexcept {
        return core_ != nullptr && core_->closed() == errc{};
    }

protected:
    core_handle() noexcept = default;
    explicit core_handle(std::shared_ptr<Core> core) noexcept
        : core_{std::move(core)} {}

    static void require(const failure& f) {
        if (f) {
            throw system_error(f.code, f.what);
        }
    }
    /// Throws `closed`, or why it was closed.
    [[nodiscard]] const std::shared_ptr<Core>& shared_core() const {
        if (const errc why = core_ == nullptr ? errc::closed : core_->closed(); why != errc{}) {
            throw system_error(
                make_error_code(why),
                core_ == nullptr ? std::string{"the handle refers to nothing"}
                                 : "'" + core_->name() + "'");
        }
        return core_;
    }
    [[nodiscard]] Core& core() const { return *shared_core(); }

    friend bool operator==(const core_handle&, const core_handle&) noexcept = default;

    std::shared_ptr<Core> core_{};
};

} // namespace railmq::detail
