// SPDX-License-Identifier: BSL-1.0
#include "support/instances.hpp"

#ifndef RAILMQ_TEST_CODE_IN_PCH
namespace railmq {

RAILMQ_TEST_INSTANCES(, threaded)
RAILMQ_TEST_INSTANCES(, simulated)

} // namespace railmq
#endif
