/* Threads that never ask for memory. At the end of each, after all destructors, the C library frees NULL, and then what held the thread-local variables of
 * stacks that it gives up: an allocator that takes such a thread into its books never hears that it has ended. */
#ifndef AMPLE_EMPTY_THREADS_H
#define AMPLE_EMPTY_THREADS_H

#include <unistd.h>

#include "check.h"

enum { EMPTY = 4000, EMPTY_STACK = 512 << 10, AT_ONCE = 100, PATIENCE_MS = 20000 };

static void *add_one(void *count) {
    __atomic_add_fetch((unsigned *)count, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* One after the other, then detached ones, more at a time than the C library keeps stacks of: all end, and cost nothing. */
static void empty_threads(void) {
    unsigned joined = 0, ended = 0;
    for (unsigned i = 0; i < 10; i++)
        join_thread(start_thread(add_one, &joined));
    CHECK(joined == 10, "%u threads ran", joined);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, EMPTY_STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    size_t before = 0;
    for (unsigned i = 1; i <= EMPTY; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, &attributes, add_one, &ended) == 0, "no thread %u", i);
        for (unsigned ms = 0; i % AT_ONCE == 0 && thread_count() > 1; ms++) {
            CHECK(ms < PATIENCE_MS, "%u threads of %u never end", thread_count() - 1, i);
            usleep(1000);
        }
        if (i == EMPTY / 4)
            before = status_bytes("VmRSS:");
    }
    CHECK(ended == EMPTY, "%u threads ran", ended);
    size_t after = status_bytes("VmRSS:");
    CHECK(after < before + (1u << 20), "resident set grows from %zu to %zu bytes", before, after);
}

#endif
