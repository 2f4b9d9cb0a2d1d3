// SPDX-License-Identifier: BSL-1.0
#include "support/instances.hpp"

namespace railmq {

RAILMQ_TEST_INSTANCES(, threaded)
RAILMQ_TEST_INSTANCES(, simulated)

} // namespace railmq
