/* Preloaded: counts calls of the allocator that ask for at least `smallest` bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static const size_t smallest = 4096;
static long count;

long large_allocations(void) { return count; }

int posix_memalign(void **result, size_t alignment, size_t size) {
  static int (*next)(void **, size_t, size_t);
  if (!next) next = dlsym(RTLD_NEXT, "posix_memalign");
  if (size >= smallest) __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
  return next(result, alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
  static void *(*next)(size_t, size_t);
  if (!next) next = dlsym(RTLD_NEXT, "aligned_alloc");
  if (size >= smallest) __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
  return next(alignment, size);
}

void *malloc(size_t size) {
  extern void *__libc_malloc(size_t);
  if (size >= smallest) __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
  return __libc_malloc(size);
}
