// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The library's version: one number that can be compared, and its three parts.
#define RAILMQ_VERSION_MAJOR 0
#define RAILMQ_VERSION_MINOR 1
#define RAILMQ_VERSION_PATCH 0
#define RAILMQ_VERSION                                                                             \
    (RAILMQ_VERSION_MAJOR * 10000 + RAILMQ_VERSION_MINOR * 100 + RAILMQ_VERSION_PATCH)

/// Checks a contract of the library itself. On unless `NDEBUG` is defined; define it yourself
/// before the first include to send failures elsewhere.
#ifndef RAILMQ_ASSERT
#include <cassert>
#define RAILMQ_ASSERT(condition) assert(condition)
#endif

#if defined(__GNUC__) || defined(__clang__)
#define RAILMQ_NOINLINE __attribute__((noinline))
#define RAILMQ_ALWAYS_INLINE __attribute__((always_inline)) inline
#else
#define RAILMQ_NOINLINE
#define RAILMQ_ALWAYS_INLINE inline
#endif
