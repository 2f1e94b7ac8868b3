// Shuffles and votes: every lane leaves its value in the warp's exchange buffer, then waits.
#pragma once
#include <algorithm>

#include "fibers.hpp"

namespace emulator {

// Returns lane `source`'s value; reading a lane that did not take part gives 0xFF bytes.
template <class T>
static EMULATOR_UNCHECKED T exchange(unsigned mask, T value, int source, int line) {
  static_assert(sizeof(T) <= 8);
  int parity = current->parity ^= 1;
  uint64_t* slots = warp_of_current().exchange[parity];
  memcpy(&slots[current->lane], &value, sizeof value);
  unsigned present = warp_sync(mask, line);
  T result;
  if (present >> source & 1)
    memcpy((void*)&result, &slots[source], sizeof result);
  else
    memset((void*)&result, 0xFF, sizeof result);
  return result;
}

template <class T>
static inline T shuffle(unsigned mask, T value, int source, int line, int width = 32) {
  int base = current->lane & ~(width - 1);
  return exchange(mask, value, base + (source & (width - 1)), line);
}
template <class T>
static inline T shuffle_down(unsigned mask, T value, int by, int line, int width = 32) {
  int base = current->lane & ~(width - 1), source = current->lane + by;
  return exchange(mask, value, source < base + width ? source : current->lane, line);
}
template <class T>
static inline T shuffle_up(unsigned mask, T value, int by, int line, int width = 32) {
  int base = current->lane & ~(width - 1), source = current->lane - by;
  return exchange(mask, value, source >= base ? source : current->lane, line);
}
template <class T>
static inline T shuffle_xor(unsigned mask, T value, int by, int line, int width = 32) {
  int base = current->lane & ~(width - 1), source = current->lane ^ by;
  return exchange(mask, value, source < base + width ? source : current->lane, line);
}

// The lanes of the warp that exist: TVM asks for them before it shuffles.
static inline unsigned active_mask() {
  int count = std::min<int>(32, (int)fibers.size() - current->warp * 32);
  unsigned mask = 0;
  for (int i = 0; i < count; i++)
    if (fibers[current->warp * 32 + i].state != DONE) mask |= 1u << i;
  return mask;
}

// The lanes whose predicate holds.
static inline unsigned ballot(unsigned mask, int predicate, int line) {
  int parity = current->parity ^ 1;  // the buffer that the exchange below uses
  exchange(mask, (uint64_t)(predicate != 0), current->lane, line);
  unsigned votes = 0;
  for (int lane = 0; lane < 32; lane++)
    if (current->present >> lane & 1 && warp_of_current().exchange[parity][lane]) votes |= 1u << lane;
  return votes;
}

}  // namespace emulator

#define __syncwarp(...) \
  ((void)emulator::warp_sync(0xffffffffu, __LINE__), (void)emulator::current->warp_epoch++)
#define __activemask() emulator::active_mask()
#define __shfl_sync(m, v, s, ...) emulator::shuffle(m, v, s, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_down_sync(m, v, s, ...) \
  emulator::shuffle_down(m, v, s, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_up_sync(m, v, s, ...) \
  emulator::shuffle_up(m, v, s, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_xor_sync(m, v, s, ...) \
  emulator::shuffle_xor(m, v, s, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __ballot_sync(m, p) emulator::ballot(m, p, __LINE__)
#define __any_sync(m, p) (emulator::ballot(m, p, __LINE__) != 0)
#define __all_sync(m, p) (emulator::ballot(m, !(p), __LINE__) == 0)
