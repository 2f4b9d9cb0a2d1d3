// expect: names must be short
#ifdef RAILMQ_CONTROL
constexpr int length = 1;
#else
constexpr int length = 1000;
#endif
static_assert(length < 250, "names must be short");
