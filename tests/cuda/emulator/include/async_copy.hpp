// cp.async: copies from global to shared memory that arrive late.
//
// They arrive as late as the rules allow, when their thread waits for their group; until then the
// destination holds poison, so that a kernel that reads too early gets NaN.
#pragma once
#include "fibers.hpp"
#include "shadow_memory.hpp"
#include "traffic.hpp"

namespace emulator {

// Issues a copy of `bytes`, of which the first `read` come from memory and the rest are zeros.
static EMULATOR_UNCHECKED void copy_async(unsigned to, const void* from, unsigned bytes,
                                                 unsigned read) {
  if ((uintptr_t)from % bytes) fail_here("a misaligned asynchronous copy");
  char* target = from_window(to, bytes);
  shadow_copy_issued(target, bytes);
  const void* site = __builtin_return_address(0);
  traffic_access(target, bytes, true, site);
  if (read) traffic_access(from, read, false, (const char*)site + 1);
  memset(target, kPoison, bytes);
  current->copies.push_back({target, (const char*)from, read, bytes - read});
}

static EMULATOR_UNCHECKED void commit_copies() { current->groups.push_back(current->copies.size()); }

// Waits until at most `pending` of the committed groups are still in flight.
static EMULATOR_UNCHECKED void wait_copies(size_t pending) {
  Fiber* fiber = current;
  if (fiber->groups.size() <= pending) return;
  size_t done = fiber->groups.size() - pending, end = fiber->groups[done - 1];
  for (size_t i = 0; i < end; i++) {
    const PendingCopy& copy = fiber->copies[i];
    memcpy(copy.to, copy.from, copy.bytes);
    memset(copy.to + copy.bytes, 0, copy.zeros);
    shadow_copy_arrived(copy.to, copy.bytes + copy.zeros);
  }
  fiber->copies.erase(fiber->copies.begin(), fiber->copies.begin() + end);
  fiber->groups.erase(fiber->groups.begin(), fiber->groups.begin() + done);
  for (size_t& group : fiber->groups) group -= end;
}

}  // namespace emulator
