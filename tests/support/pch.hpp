// SPDX-License-Identifier: BSL-1.0
//
// What nearly every test includes sooner or later, compiled once, the library included. Tests
// still include what they use, and tests/headers compiles the public headers without this.
#pragma once

#include "support/catch.hpp"
#include "support/instances.hpp"

#include <boost/asio.hpp>
#include <boost/system/result.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>
