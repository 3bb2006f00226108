/* The loops whose instructions `cargo xtask instructions` counts.
 *
 *   loops pair  ROUNDS SIZE           allocate a block and free it: the only one
 *   loops pairL ROUNDS SIZE           the same, while four more blocks are live
 *   loops burst ROUNDS SIZE BLOCKS    allocate BLOCKS blocks, then free all of them
 *   loops churn ROUNDS SLOTS          replace the block in a random slot by one of 16 to 1024 bytes
 *
 *   loops aligned ROUNDS ALIGN SIZE   allocate an aligned block and free it
 *   loops calloc ROUNDS SIZE          allocate a block of zeros and free it
 *   loops moved ROUNDS SIZE LARGER    allocate a block, make it larger and free it
 *   loops kept ROUNDS SIZE            ask for a block to be as large as it is
 *   loops usable ROUNDS SIZE          ask how large a block is
 *
 * The clock is this program's: it goes on by a microsecond each time that somebody looks. Under valgrind work takes
 * many times as long, and longer where the machine is busy: what an allocator does from time to time would be
 * counted that much more often.
 *
 * A round of burst is BLOCKS pairs of malloc and free; a round of the others is one. SIZE is in bytes. During
 * the rounds nothing but these functions is called. Compile with -fno-builtin, so that every pair stays.
 *
 * Exit codes: 0 done, 1 out of memory, 2 usage. */

#define _POSIX_C_SOURCE 200809L

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIVE = 4, EARLIER = 100, SMALLEST = 16, LARGEST = 1024 };

/* In place of the C library's, for the allocator too. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    static long microseconds;
    (void)clock;
    microseconds++;
    now->tv_sec = 1 + microseconds / 1000000;
    now->tv_nsec = microseconds % 1000000 * 1000;
    return 0;
}

/* Every pointer passes through here: the compiler must assume that somebody reads it. */
static void *volatile passage;

static void *checked(void *allocated) {
    passage = allocated;
    void *block = passage;
    if (block == NULL) {
        fputs("loops: out of memory\n", stderr);
        exit(1);
    }
    return block;
}

static void *allocate(size_t size) { return checked(malloc(size)); }

static void release(void *block) {
    passage = block;
    free(passage);
}

static void pair(size_t rounds, size_t size) {
    for (size_t round = 0; round < rounds; round++)
        release(allocate(size));
}

static void pair_with_live_blocks(size_t rounds, size_t size) {
    void *live[LIVE];
    for (size_t i = 0; i < LIVE; i++)
        live[i] = allocate(size);
    pair(rounds, size);
    for (size_t i = 0; i < LIVE; i++)
        release(live[i]);
}

static void burst(size_t rounds, size_t size, size_t blocks) {
    void **block = allocate(blocks * sizeof *block);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < blocks; i++)
            block[i] = allocate(size);
        for (size_t i = 0; i < blocks; i++)
            release(block[i]);
    }
    release(block);
}

/* Marsaglia's xorshift generator: the same sequence in every run. */
static unsigned long long next_random(void) {
    static unsigned long long state = 88172645463325252ULL;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void churn(size_t rounds, size_t slots) {
    void **slot = allocate(slots * sizeof *slot);
    for (size_t i = 0; i < slots; i++)
        slot[i] = allocate(SMALLEST);
    for (size_t round = 0; round < rounds; round++) {
        unsigned long long random = next_random();
        size_t chosen = random % slots;
        release(slot[chosen]);
        slot[chosen] = allocate(SMALLEST + (random >> 32) % (LARGEST - SMALLEST + 1));
    }
    for (size_t i = 0; i < slots; i++)
        release(slot[i]);
    release(slot);
}

static void aligned(size_t rounds, size_t align, size_t size) {
    for (size_t round = 0; round < rounds; round++)
        release(checked(aligned_alloc(align, size)));
}

static void zeroed(size_t rounds, size_t size) {
    for (size_t round = 0; round < rounds; round++)
        release(checked(calloc(1, size)));
}

static void moved(size_t rounds, size_t size, size_t larger) {
    for (size_t round = 0; round < rounds; round++)
        release(checked(realloc(allocate(size), larger)));
}

/* A block that is none of a program's first ones, which allocators may serve otherwise. */
static void *later(size_t size) {
    void *earlier[EARLIER];
    for (size_t i = 0; i < EARLIER; i++)
        earlier[i] = allocate(size);
    void *block = allocate(size);
    for (size_t i = 0; i < EARLIER; i++)
        release(earlier[i]);
    return block;
}

static void kept(size_t rounds, size_t size) {
    void *block = later(size);
    for (size_t round = 0; round < rounds; round++)
        block = checked(realloc(block, size));
    release(block);
}

static void usable(size_t rounds, size_t size) {
    static volatile size_t found;
    void *block = later(size);
    for (size_t round = 0; round < rounds; round++) {
        passage = block;
        found = malloc_usable_size(passage);
    }
    release(block);
}

static void null(size_t rounds) {
    for (size_t round = 0; round < rounds; round++)
        release(NULL);
}

int main(int count, char **words) {
    size_t number[3] = {0, 0, 0};
    for (int i = 2; i < count && i < 5; i++)
        number[i - 2] = strtoull(words[i], NULL, 10);

    if (count == 4 && strcmp(words[1], "pair") == 0)
        pair(number[0], number[1]);
    else if (count == 4 && strcmp(words[1], "pairL") == 0)
        pair_with_live_blocks(number[0], number[1]);
    else if (count == 5 && strcmp(words[1], "burst") == 0)
        burst(number[0], number[1], number[2]);
    else if (count == 4 && strcmp(words[1], "churn") == 0 && number[1] > 0)
        churn(number[0], number[1]);
    else if (count == 5 && strcmp(words[1], "aligned") == 0)
        aligned(number[0], number[1], number[2]);
    else if (count == 4 && strcmp(words[1], "calloc") == 0)
        zeroed(number[0], number[1]);
    else if (count == 5 && strcmp(words[1], "moved") == 0)
        moved(number[0], number[1], number[2]);
    else if (count == 4 && strcmp(words[1], "kept") == 0)
        kept(number[0], number[1]);
    else if (count == 4 && strcmp(words[1], "usable") == 0)
        usable(number[0], number[1]);
    else if (count == 3 && strcmp(words[1], "null") == 0)
        null(number[0]);
    else {
        fputs("usage: loops pair|pairL|calloc|kept|usable ROUNDS SIZE | burst ROUNDS SIZE BLOCKS | churn ROUNDS SLOTS\n"
              "       | aligned ROUNDS ALIGN SIZE | moved ROUNDS SIZE LARGER | null ROUNDS\n",
              stderr);
        return 2;
    }
    return 0;
}
