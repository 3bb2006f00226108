/* The loops whose instructions `cargo xtask instructions` counts.
 *
 *   loops pair  ROUNDS SIZE           allocate a block and free it: the only one
 *   loops pairL ROUNDS SIZE           the same, while four more blocks are live
 *   loops burst ROUNDS SIZE BLOCKS    allocate BLOCKS blocks, then free all of them
 *   loops churn ROUNDS SLOTS          replace the block in a random slot by one of 16 to 1024 bytes
 *
 * A round of burst is BLOCKS pairs of malloc and free; a round of the others is one. SIZE is in bytes. During
 * the rounds nothing but malloc and free is called. Compile with -fno-builtin, so that every pair stays.
 *
 * Exit codes: 0 done, 1 out of memory, 2 usage. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIVE = 4, SMALLEST = 16, LARGEST = 1024 };

/* Every pointer passes through here: the compiler must assume that somebody reads it. */
static void *volatile passage;

static void *allocate(size_t size) {
    passage = malloc(size);
    void *block = passage;
    if (block == NULL) {
        fputs("loops: out of memory\n", stderr);
        exit(1);
    }
    return block;
}

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
    else {
        fputs("usage: loops pair|pairL ROUNDS SIZE | burst ROUNDS SIZE BLOCKS | churn ROUNDS SLOTS\n", stderr);
        return 2;
    }
    return 0;
}
