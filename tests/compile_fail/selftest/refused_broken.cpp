// expect: static
// verdict: The control does not compile
static_assert(false, "static");
