// expect: names must be short
// verdict: The compiler does not say
#ifndef RAILMQ_CONTROL
static_assert(false, "something else");
#endif
