// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <cstdint>
#include <memory>

namespace railmq::detail {

/// What has deadlines of its own in a broker: a queue, or a group of a log.
///
/// Thread safety: any call by any thread.
class due_source {
public:
    due_source() = default;
    due_source(const due_source&) = delete;
    due_source& operator=(const due_source&) = delete;

    /// Keeps it alive; null when it is being destroyed this moment.
    [[nodiscard]] virtual std::shared_ptr<due_source> keep() noexcept = 0;
    /// Different for each in one broker.
    [[nodiscard]] virtual std::uint64_t number() const noexcept = 0;
    /// What is due happens. Called when the broker has taken it off its list.
    virtual void run_due(time_point now) = 0;
    /// The exact next deadline.
    [[nodiscard]] virtual time_point next_due(time_point now) = 0;
    /// Nothing is due before `exact`, though something was.
    virtual void refresh_due(time_point exact) = 0;

protected:
    ~due_source() = default;
};

} // namespace railmq::detail
