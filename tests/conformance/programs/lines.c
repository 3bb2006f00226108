/* Cache lines: whose blocks lie on them, told from addresses, after threads have handed blocks to each other for long. */
#include "check.h"

enum { THREADS = 2, SLOTS = 4000, SWAPS = 4096, STEPS = 300 * SLOTS, LEAST = 16, LARGEST = 256, LINE = 64 };

struct slot {
    unsigned char *block;
    size_t size;
};
static struct slot tables[THREADS][SLOTS];
/* Blocks on their way from one thread to another. */
static void *travelling[SWAPS];
static pthread_barrier_t together;

/* Replaces blocks at random. One in five of those that it has done with it leaves to whoever comes by, and frees what another left instead. */
static void *replace(void *argument) {
    struct slot *table = argument;
    uint64_t state = (uint64_t)(table - tables[0]) + 1;
    pthread_barrier_wait(&together);
    for (unsigned step = 0; step < STEPS; step++) {
        struct slot *slot = &table[next_random(&state) % SLOTS];
        void *old = slot->block;
        if (next_random(&state) % 5 == 0)
            old = __atomic_exchange_n(&travelling[next_random(&state) % SWAPS], old, __ATOMIC_ACQ_REL);
        free(old);
        slot->size = LEAST + next_random(&state) % (LARGEST - LEAST + 1);
        slot->block = malloc(slot->size);
        CHECK(slot->block != NULL, "no block of %zu bytes", slot->size);
    }
    /* Nobody ends while the other one goes on: a thread may have what an ended one left. */
    pthread_barrier_wait(&together);
    return table;
}

struct part {
    uintptr_t line;
    unsigned thread;
};

static int by_line(const void *left, const void *right) {
    uintptr_t a = ((const struct part *)left)->line, b = ((const struct part *)right)->line;
    return a < b ? -1 : a > b;
}

CASE(blocks_of_two_threads_that_hand_some_over_share_no_line) {
    static struct part parts[THREADS * SLOTS * (LARGEST / LINE + 2)];
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&together, NULL, THREADS) == 0, "a barrier");
    for (unsigned i = 0; i < THREADS; i++)
        threads[i] = start_thread(replace, tables[i]);
    for (unsigned i = 0; i < THREADS; i++)
        join_thread(threads[i]);
    size_t count = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned j = 0; j < SLOTS; j++) {
            struct slot slot = tables[i][j];
            uintptr_t first = (uintptr_t)slot.block / LINE;
            for (uintptr_t line = first; slot.size > 0 && line <= ((uintptr_t)slot.block + slot.size - 1) / LINE; line++)
                parts[count++] = (struct part){line, i};
        }
    }
    qsort(parts, count, sizeof parts[0], by_line);
    size_t shared = 0;
    for (size_t i = 1; i < count; i++)
        shared += parts[i].line == parts[i - 1].line && parts[i].thread != parts[i - 1].thread;
    CHECK(shared == 0, "%zu lines hold blocks of both threads", shared);
}
