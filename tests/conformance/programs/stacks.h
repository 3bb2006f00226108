/* Threads end, and the C library gives up their stacks, and frees what held their thread-local variables, while it holds a lock that whoever starts a
 * thread takes: a free that starts one would wait for itself. That free must be the one after which there is much to give back, so several children
 * come with more and more of it. */
#ifndef AMPLE_STACKS_H
#define AMPLE_STACKS_H

#include "check.h"

/* glibc keeps 40 MiB of stacks. */
enum { STACKS = 400, STACK_SIZE = 512 << 10, PIECES = 5000, PIECE = 320, STEPS = 24 };

static void *wait_for_all(void *barrier) {
    pthread_barrier_wait(barrier);
    return NULL;
}

/* `given` blocks are free already. */
static void end_threads(unsigned given) {
    static void *pieces[PIECES];
    static pthread_t ids[STACKS];
    pthread_barrier_t barrier, end;
    pthread_attr_t attributes;
    pthread_barrier_init(&barrier, NULL, STACKS + 1);
    /* A program of one thread gets no other one. */
    pthread_barrier_init(&end, NULL, 2);
    pthread_t last = start_thread(wait_for_all, &end);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    for (unsigned i = 0; i < STACKS; i++)
        CHECK(pthread_create(&ids[i], &attributes, wait_for_all, &barrier) == 0, "thread %u", i);
    for (unsigned i = 0; i < given; i++)
        pieces[i] = malloc(PIECE);
    for (unsigned i = 0; i < given; i++)
        free(pieces[i]);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < STACKS; i++)
        join_thread(ids[i]);
    pthread_barrier_wait(&end);
    join_thread(last);
}

/* Every child comes to its end. */
static void stacks_are_given_up(void) {
    for (unsigned step = 0; step < STEPS; step++) {
        pid_t child = fork();
        if (child == 0) {
            end_threads(PIECES * step / STEPS);
            _exit(0);
        }
        int status = end_of(child);
        CHECK(status != -1, "pthread_join waits for ever after %u blocks were freed", PIECES * step / STEPS);
        CHECK(status == 0, "a child ends with %#x", status);
    }
}

#endif
