// Sees each load and store of a kernel that is compiled with -fsanitize=thread.
//
// The compiler calls a hook before each access; these stand in for the sanitizer's own library. The
// return address tells which instruction it is.
#pragma once
#include "traffic.hpp"

#ifdef EMULATOR_CHECKED
namespace emulator {

static void EMULATOR_UNCHECKED see_access(const void* address, size_t bytes, bool writes,
                                          const void* site) {
  if (!current || seeing || error[0]) return;
  seeing = true;  // looking at it accesses memory too
  shadow_access(address, bytes, writes);
  traffic_access(address, (unsigned)bytes, writes, site);
  seeing = false;
}

}  // namespace emulator

extern "C" {
#define EMULATOR_HOOK(name, bytes, writes)                                      \
  void EMULATOR_UNCHECKED name(void* a) {                                       \
    emulator::see_access(a, bytes, writes, __builtin_return_address(0));        \
  }
#define EMULATOR_HOOKS(n)                                                                  \
  EMULATOR_HOOK(__tsan_read##n, n, false) EMULATOR_HOOK(__tsan_write##n, n, true)          \
  EMULATOR_HOOK(__tsan_unaligned_read##n, n, false)                                        \
  EMULATOR_HOOK(__tsan_unaligned_write##n, n, true)                                        \
  EMULATOR_HOOK(__tsan_volatile_read##n, n, false)                                         \
  EMULATOR_HOOK(__tsan_volatile_write##n, n, true)
EMULATOR_HOOKS(1) EMULATOR_HOOKS(2) EMULATOR_HOOKS(4) EMULATOR_HOOKS(8) EMULATOR_HOOKS(16)
void EMULATOR_UNCHECKED __tsan_read_range(void* a, size_t n) {
  emulator::see_access(a, n, false, __builtin_return_address(0));
}
void EMULATOR_UNCHECKED __tsan_write_range(void* a, size_t n) {
  emulator::see_access(a, n, true, __builtin_return_address(0));
}
void EMULATOR_UNCHECKED __tsan_vptr_update(void*, void*) {}
void EMULATOR_UNCHECKED __tsan_init() {}
void EMULATOR_UNCHECKED __tsan_func_entry(void*) {}
void EMULATOR_UNCHECKED __tsan_func_exit() {}
}
#endif
