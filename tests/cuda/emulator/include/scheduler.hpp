// Runs the fibers of one block: warp by warp, in a fixed order, until all are done or a fault ends it.
//
// The order is forward, or backward with EMULATOR_ORDER=rev: a kernel whose result depends on the
// order of its threads gives different numbers in the two.
#pragma once
#include <algorithm>

#include "fibers.hpp"
#include "shadow_memory.hpp"
#include "traffic.hpp"

namespace emulator {

static constexpr size_t kStackBytes = 256 << 10;

static void start_fiber(Fiber& fiber, int index) {
  fiber.state = READY;
  fiber.parity = fiber.warp_epoch = 0;
  fiber.copies.clear();
  fiber.groups.clear();
  // Stack tops are staggered so that they do not share cache sets.
  void** top = (void**)(fiber.stack + kStackBytes - 64 - index % 61 * 192);
  *--top = nullptr;
  *--top = (void*)fiber_entry;
  for (int saved = 0; saved < 6; saved++) *--top = nullptr;
  fiber.stack_pointer = top;
}

// Releases warp operations whose every live lane has arrived; tells whether any was.
static bool release_warp(Fiber* lanes, int count) {
  unsigned live = 0;
  for (int i = 0; i < count; i++)
    if (lanes[i].state != DONE) live |= 1u << i;
  bool released = false;
  for (int i = 0; i < count; i++) {
    if (lanes[i].state != AT_WARP) continue;
    unsigned need = lanes[i].mask & live, have = 0;
    for (int j = 0; j < count; j++)
      if (lanes[j].state == AT_WARP && lanes[j].mask == lanes[i].mask &&
          lanes[j].line == lanes[i].line)
        have |= 1u << j;
    if ((have & need) != need) continue;
    for (int j = 0; j < count; j++)
      if (have >> j & 1) {
        lanes[j].state = READY;
        lanes[j].present = have;
      }
    released = true;
  }
  return released;
}

// Runs every fiber of a warp until all of them wait or are done; tells whether any moved.
static bool run_warp(int warp) {
  int count = std::min<int>(32, (int)fibers.size() - warp * 32);
  Fiber* lanes = &fibers[warp * 32];
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < count; i++) {
      Fiber* fiber = &lanes[reversed ? count - 1 - i : i];
      if (fiber->state != READY) continue;
      current = fiber;
      emulator_switch(&scheduler_stack, fiber->stack_pointer);
      if (error[0]) return false;
      again = true;
    }
    again |= release_warp(lanes, count);
    moved |= again;
  }
  return moved;
}

// Opens the barrier when all threads wait at the same one; tells whether the block may go on.
static bool open_barrier() {
  int line = -1;
  for (Fiber& fiber : fibers) {
    current = &fiber;
    if (fiber.state == DONE) return fail("__syncthreads after some threads returned"), false;
    if (line >= 0 && line != fiber.line)
      return fail("threads wait at different __syncthreads"), false;
    line = fiber.line;
  }
  for (Fiber& fiber : fibers) fiber.state = READY;
  traffic.barriers++;
  shadow_barrier();
  return true;
}

static bool run_block() {
  if (static_bytes()) memset(static_begin, kPoison, static_bytes());
  if (dynamic_bytes) memset(dynamic_shared, kPoison, dynamic_bytes);
  shadow_new_block();
  traffic_new_block();
  for (size_t i = 0; i < fibers.size(); i++) start_fiber(fibers[i], (int)i);
  int warp_count = (int)warps.size();
  for (;;) {
    bool moved = false;
    for (int i = 0; i < warp_count; i++) moved |= run_warp(reversed ? warp_count - 1 - i : i);
    if (error[0]) return false;
    size_t done = 0, waiting = 0;
    for (Fiber& fiber : fibers) {
      done += fiber.state == DONE;
      waiting += fiber.state == AT_BARRIER;
    }
    if (done == fibers.size()) return traffic_end_block(), true;
    if (waiting && done + waiting == fibers.size()) {
      if (!open_barrier()) return false;
    } else if (!moved) {
      for (Fiber& fiber : fibers)
        if (fiber.state == AT_WARP) current = &fiber;
      return fail("deadlock: divergent barrier or warp operation"), false;
    }
  }
}

}  // namespace emulator
