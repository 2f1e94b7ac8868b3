// ld.shared, st.shared, ld.global and st.global: 32-bit registers, one or a vector of them.
#pragma once
#include "fibers.hpp"
#include "shadow_memory.hpp"
#include "traffic.hpp"

namespace emulator {

static EMULATOR_UNCHECKED void load_shared(void* registers, unsigned address, unsigned bytes) {
  const char* from = from_window(address, bytes);
  shadow_access(from, bytes, false);
  traffic_access(from, bytes, false, __builtin_return_address(0));
  memcpy(registers, from, bytes);
}

static inline void check_alignment(const void* address, unsigned bytes) {
  if ((uint64_t)address % bytes) fail_here("a vector that does not begin at a multiple of its size");
}

static EMULATOR_UNCHECKED void load_global(void* registers, const void* from, unsigned bytes) {
  check_alignment(from, bytes);
  traffic_access(from, bytes, false, __builtin_return_address(0));
  memcpy(registers, from, bytes);
}

static EMULATOR_UNCHECKED void store_global(void* to, const void* registers, unsigned bytes) {
  check_alignment(to, bytes);
  traffic_access(to, bytes, true, __builtin_return_address(0));
  memcpy(to, registers, bytes);
}

static EMULATOR_UNCHECKED void store_shared(unsigned address, const void* registers,
                                            unsigned bytes) {
  char* to = from_window(address, bytes);
  shadow_access(to, bytes, true);
  traffic_access(to, bytes, true, __builtin_return_address(0));
  memcpy(to, registers, bytes);
}

}  // namespace emulator
