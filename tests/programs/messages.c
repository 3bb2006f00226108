// Threads that decode messages into arenas of blocks, each twice as long as the one before it, and now and then one block for a long field; a few of the last messages stay.
// After so many frees of all threads malloc_trim is called, as protobuf's library for Python does: after 10 000.
//
// usage: messages THREADS MESSAGES FREES_BETWEEN_TRIMS (0: none)
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 64, BLOCKS = 12, FIRST = 256, KEPT = 16, FIELD_MAX = 200000 };

struct message {
    int count;
    void *blocks[BLOCKS + 1];
};

static int threads, messages;
static unsigned between;
static atomic_uint frees, trims;

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

static void add(struct message *message, size_t size) {
    void *block = malloc(size);
    memset(block, 1, size);
    message->blocks[message->count++] = block;
}

static void drop(struct message *message) {
    for (int i = 0; i < message->count; i++) {
        free(message->blocks[i]);
        if (between > 0 && atomic_fetch_add(&frees, 1) % between == between - 1) {
            malloc_trim(0);
            atomic_fetch_add(&trims, 1);
        }
    }
    message->count = 0;
}

static void *work(void *number) {
    uint64_t state = 88172645463325252u + 7919u * (uint64_t)(intptr_t)number;
    struct message kept[KEPT] = {0};
    for (int round = 0; round < messages; round++) {
        struct message *message = &kept[round % KEPT];
        drop(message);
        int blocks = 1 + (int)(draw(&state) % BLOCKS);
        for (int i = 0; i < blocks; i++) add(message, (size_t)FIRST << (i < 7 ? i : 7));
        if (draw(&state) % 4 == 0) add(message, draw(&state) % FIELD_MAX + 1);
    }
    for (int i = 0; i < KEPT; i++) drop(&kept[i]);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4) return fprintf(stderr, "usage: messages THREADS MESSAGES FREES_BETWEEN_TRIMS\n"), 2;
    threads = atoi(arguments[1]), messages = atoi(arguments[2]), between = (unsigned)atoi(arguments[3]);
    if (threads < 1 || threads > THREADS_MAX || messages < 1)
        return fprintf(stderr, "1 to %d threads, 1 message or more\n", THREADS_MAX), 2;
    pthread_t others[THREADS_MAX];
    for (int i = 1; i < threads; i++)
        if (pthread_create(&others[i], NULL, work, (void *)(intptr_t)i) != 0) return fprintf(stderr, "no thread\n"), 1;
    work((void *)0);
    for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
    printf("%u trims\n", atomic_load(&trims));
    return 0;
}
