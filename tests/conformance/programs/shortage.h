/* What programs share in which something is short. Include it after check.h. */
#ifndef SHORTAGE_H
#define SHORTAGE_H

#include <sys/resource.h>
#include <sys/syscall.h>

/* Blocks of all sizes, grown and shrunk, each with its content. */
static inline void *exercise(void *most) {
    enum { SLOTS = 200 };
    unsigned char *blocks[SLOTS] = {NULL};
    size_t sizes[SLOTS] = {0};
    uint64_t state = (uintptr_t)most;
    for (unsigned step = 0; step < 10000; step++) {
        unsigned slot = next_random(&state) % SLOTS;
        size_t size = 1 + next_random(&state) % ((size_t)1 << (4 + next_random(&state) % 14));
        CHECK(mismatch(blocks[slot], 0, sizes[slot], slot) == sizes[slot], "a block of %zu bytes is spoilt", sizes[slot]);
        if (step % 3 == 0) {
            free(blocks[slot]);
            blocks[slot] = step % 2 == 0 ? malloc(size) : calloc(1, size);
        } else {
            size_t kept = size < sizes[slot] ? size : sizes[slot];
            blocks[slot] = realloc(blocks[slot], size);
            CHECK(blocks[slot] != NULL && mismatch(blocks[slot], 0, kept, slot) == kept, "lost by realloc to %zu", size);
        }
        CHECK(blocks[slot] != NULL, "no block of %zu bytes", size);
        fill(blocks[slot], size, slot);
        sizes[slot] = size;
    }
    for (unsigned slot = 0; slot < SLOTS; slot++)
        free(blocks[slot]);
    return NULL;
}

static inline void exercise_with_threads(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        threads[i] = start_thread(exercise, (void *)(i + 1));
    exercise((void *)7);
    for (unsigned i = 0; i < 4; i++)
        join_thread(threads[i]);
    malloc_trim(0);
    exercise((void *)9);
}

/* From now on this process has so many bytes of addresses, by the system's own call or as programs do it. */
static inline void limit_addresses(size_t bytes, int behind_its_back) {
    struct rlimit limit = {bytes, bytes};
    int result = behind_its_back ? (int)syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL) : setrlimit(RLIMIT_AS, &limit);
    CHECK(result == 0, "setrlimit");
}

#endif
