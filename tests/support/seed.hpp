// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace railmq::test {

/// The seed of everything that a test leaves to chance: the environment's RAILMQ_SEED, or a fixed
/// number, so that a plain run is repeatable. It is printed with every failure.
[[nodiscard]] std::uint64_t seed();

/// A seed of its own for the `n`-th random choice of a test, far from its neighbours.
[[nodiscard]] std::uint64_t seed(std::uint64_t n);

/// Hands the seed to rapidcheck too, unless RC_PARAMS is already set. Called by `main`.
void share_seed();

} // namespace railmq::test
