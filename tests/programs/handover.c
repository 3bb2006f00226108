// Bursts of blocks of random sizes, as servers have them: each thread frees some of its own, frees what another thread handed over, replaces some, and hands a burst over to the next thread.
// Few blocks of each size at a time, of many sizes; in the long run each thread frees as many of the others' as they free of its own.
//
// usage: handover THREADS ROUNDS BLOCKS LARGEST
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS_MAX = 64, PAGE = 4096 };

struct burst {
    int count;
    char **blocks;
};

static int threads, rounds, blocks, largest;
static pthread_barrier_t round_done;
// For each thread what another one handed to it in an even round, to be freed in the odd one that follows.
static struct burst boxes[THREADS_MAX];
static size_t sums[THREADS_MAX];

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

static char *fill(size_t size) {
    char *block = malloc(size);
    for (size_t at = 0; at < size; at += PAGE) block[at] = 1;
    block[size - 1] = 1;
    return block;
}

static void empty(struct burst *burst) {
    for (int i = 0; i < burst->count; i++) free(burst->blocks[i]);
    free(burst->blocks);
    *burst = (struct burst){0, NULL};
}

static void *work(void *number) {
    int own = (int)(intptr_t)number;
    uint64_t state = 88172645463325252u + 7919u * (uint64_t)own;
    char **slots = calloc((size_t)blocks, sizeof *slots);
    int freed = 0, filled = 0;
    for (int round = 0; round < rounds; round++) {
        int frees = (int)(draw(&state) % 100) + 10, fills = (int)(draw(&state) % 100) + 10;
        for (int i = 0; i < frees; i++, freed = (freed + 43) % blocks) {
            free(slots[freed]);
            slots[freed] = NULL;
        }
        if (round % 2 == 1) empty(&boxes[own]);
        for (int i = 0; i < fills; i++, filled = (filled + 37) % blocks) {
            size_t size = draw(&state) % (size_t)largest + 1;
            free(slots[filled]);
            slots[filled] = fill(size);
            sums[own] += size;
        }
        if (round % 2 == 0) {
            struct burst *next = &boxes[(own + 1) % threads];
            *next = (struct burst){fills, malloc((size_t)fills * sizeof *next->blocks)};
            for (int i = 0; i < fills; i++) next->blocks[i] = fill(draw(&state) % (size_t)largest + 1);
        }
        pthread_barrier_wait(&round_done);
    }
    for (int i = 0; i < blocks; i++) free(slots[i]);
    free(slots);
    return NULL;
}

static int number(int count, char **arguments, int index) { return count > index ? atoi(arguments[index]) : 0; }

int main(int count, char **arguments) {
    threads = number(count, arguments, 1), rounds = number(count, arguments, 2);
    blocks = number(count, arguments, 3), largest = number(count, arguments, 4);
    if (threads < 1 || threads > THREADS_MAX || rounds < 1 || blocks < 1 || largest < 1) {
        fprintf(stderr, "usage: handover THREADS ROUNDS BLOCKS LARGEST, up to %d threads\n", THREADS_MAX);
        return 2;
    }
    pthread_barrier_init(&round_done, NULL, (unsigned)threads);
    pthread_t running[THREADS_MAX];
    for (intptr_t i = 1; i < threads; i++)
        if (pthread_create(&running[i], NULL, work, (void *)i)) return fputs("handover: no thread\n", stderr), 1;
    work(NULL);
    size_t sum = sums[0];
    for (int i = 1; i < threads; i++) {
        pthread_join(running[i], NULL);
        sum += sums[i];
    }
    for (int i = 0; i < threads; i++) empty(&boxes[i]);
    printf("%zu\n", sum);
}
