// Counts heap allocations of the process, and tells callgrind where a stretch of instructions begins and ends.
//
// Preloaded by bench/counts.py, which compiles it. The functions of the C library that take memory from the heap are
// wrapped; C++'s `new` and torch's allocators call these. Counting is of the whole process and not atomic: the
// benchmark has one thread.
#define _GNU_SOURCE
#include <stddef.h>
#include <valgrind/callgrind.h>

extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* block, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);

static unsigned long allocations;

void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}

void* realloc(void* block, size_t size) {
  ++allocations;
  return __libc_realloc(block, size);
}

void* memalign(size_t alignment, size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  void* block = memalign(alignment, size);
  if (block == NULL) {
    return 12;  // ENOMEM
  }
  *result = block;
  return 0;
}

unsigned long flagos_allocations(void) {
  return allocations;
}

// Counts of what follows belong to the next dump alone.
void flagos_begin(void) {
  CALLGRIND_ZERO_STATS;
  CALLGRIND_START_INSTRUMENTATION;
}

void flagos_end(const char* name) {
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS_AT(name);
}
