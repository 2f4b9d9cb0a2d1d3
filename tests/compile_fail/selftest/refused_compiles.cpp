// expect: anything
// verdict: It compiles, but must not
int unused();
