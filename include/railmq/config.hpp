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
#define RAILMQ_COLD __attribute__((noinline, cold))
#define RAILMQ_ALWAYS_INLINE __attribute__((always_inline)) inline
#else
#define RAILMQ_NOINLINE
#define RAILMQ_COLD
#define RAILMQ_ALWAYS_INLINE inline
#endif

/// Fetches the cache line of an address in order to write to it: one transfer between two cores
/// instead of one to read and another to own it. `__builtin_prefetch` fetches it for reading
/// unless the compiler is told that the processor can do better; one that cannot ignores this.
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define RAILMQ_PREFETCH_TO_WRITE(address)                                                          \
    __asm__ __volatile__("prefetchw %0" : : "m"(*reinterpret_cast<const char*>(address)))
#elif defined(__GNUC__) || defined(__clang__)
#define RAILMQ_PREFETCH_TO_WRITE(address) __builtin_prefetch(address, 1)
#else
#define RAILMQ_PREFETCH_TO_WRITE(address) static_cast<void>(address)
#endif
