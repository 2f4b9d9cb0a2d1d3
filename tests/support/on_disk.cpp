// SPDX-License-Identifier: BSL-1.0
//
// Here so that the header before the tests of brokers on disks is compiled once.
#include "support/on_disk.hpp"
