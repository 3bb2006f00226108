/* A whole allocator for tests: takes blocks one after the other, and never frees any. Blocks of 777 bytes,
 * which nothing but a workload that is told so asks for, may suffer a fault: with OVERLAPS each lies in the
 * one before it, with LOSES_CONTENT the one before it loses a byte. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t ARENA = (size_t)1 << 32;
static uintptr_t next;

#ifdef DIES_LATE
__attribute__((constructor)) static void start(void) {
    const char *padding = getenv("PADDING");
    /* Only the timed pass pads the environment. */
    if (padding && *padding) abort();
}
#endif

static void *take(size_t alignment, size_t size) {
    if (!__atomic_load_n(&next, __ATOMIC_ACQUIRE)) {
        void *arena = mmap(0, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        uintptr_t none = 0;
        __atomic_compare_exchange_n(&next, &none, (uintptr_t)arena, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    size_t room = size + alignment + sizeof(size_t);
    uintptr_t begin = __atomic_fetch_add(&next, room, __ATOMIC_RELAXED) + sizeof(size_t);
    char *block = (char *)((begin + alignment - 1) / alignment * alignment);
    memcpy(block - sizeof(size_t), &size, sizeof size);
    return block;
}

size_t malloc_usable_size(void *block) {
    size_t size = 0;
    if (block) memcpy(&size, (char *)block - sizeof size, sizeof size);
    return size;
}
void *malloc(size_t size) {
    static char *previous;
    if (size != 777 || !previous) {
        char *block = take(16, size);
        if (size == 777) previous = block;
        return block;
    }
#if defined(OVERLAPS)
    return previous + 256;
#elif defined(LOSES_CONTENT)
    previous[100] ^= 1;
#endif
    return previous = take(16, size);
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return take(16, count * size); }
void *aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = take(alignment, size);
    return 0;
}
void *realloc(void *block, size_t size) {
    size_t old = malloc_usable_size(block);
    void *moved = take(16, size);
    if (block) memcpy(moved, block, old < size ? old : size);
    return moved;
}
