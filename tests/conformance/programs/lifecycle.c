/* Before main and after it; in a thread before its first call and after the allocator said goodbye to it. */
#include <limits.h>
#include <sys/wait.h>

#include "check.h"

/* Allocates, writes, checks and frees blocks of sizes from all layers of an allocator. */
static void exercise(void) {
    void *blocks[24];
    for (unsigned i = 0; i < 24; i++) {
        size_t size = ((size_t)1 << i) / 3 + 1;
        blocks[i] = i % 3 == 0 ? calloc(1, size) : malloc(size);
        CHECK(blocks[i] != NULL, "no block of %zu bytes", size);
        fill(blocks[i], size < 5000 ? size : 5000, i);
    }
    for (unsigned i = 0; i < 24; i++) {
        size_t size = ((size_t)1 << i) / 3 + 1;
        blocks[i] = realloc(blocks[i], size * 2);
        CHECK(blocks[i] != NULL, "no block of %zu bytes", size * 2);
        size = size < 5000 ? size : 5000;
        CHECK(mismatch(blocks[i], 0, size, i) == size, "content of block %u lost", i);
        free(blocks[i]);
    }
}

static void *exercise_in_thread(void *unused) {
    exercise();
    return unused;
}

/* Before any constructor of any library has run. */
static void *early_block;
static pthread_key_t early_key;
static int early_key_error;
static void run_destructor(void *value);
static void run_early(void) {
    early_key_error = pthread_key_create(&early_key, run_destructor);
    early_block = malloc(1000);
    fill(early_block, 1000, 1);
    exercise();
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = run_early;

static void *constructed_block;
__attribute__((constructor(101))) static void construct(void) {
    constructed_block = malloc(1000);
    fill(constructed_block, 1000, 2);
    exercise();
    join_thread(start_thread(exercise_in_thread, NULL));
}

CASE(blocks_from_before_all_constructors_live_on) {
    CHECK(early_block != NULL && mismatch(early_block, 0, 1000, 1) == 1000, "content lost");
    free(early_block);
}

CASE(blocks_from_constructors_live_on) {
    CHECK(constructed_block != NULL && mismatch(constructed_block, 0, 1000, 2) == 1000, "content lost");
    free(constructed_block);
}

CASE(constructors_of_an_opened_library_allocate) {
    for (unsigned round = 0; round < 20; round++) {
        void *library = dlopen("./lifecycle_library-c.so", RTLD_NOW);
        CHECK(library != NULL, "%s", dlerror());
        void **block = dlsym(library, "constructed_block");
        CHECK(block != NULL && *block != NULL, "the library's constructor has no block");
        CHECK(mismatch(*block, 0, 1000, 7) == 1000, "content lost");
        CHECK(dlclose(library) == 0, "%s", dlerror());
    }
}

/* Runs `main_part` in a child, which must end by an _exit(42) in a handler, not by exit's own status. */
static void check_at_exit(void (*main_part)(void)) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        main_part();
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "status %#x: the handlers did not all run", status);
}

static void *late_block;
static void end_with_42(void) {
    exercise();
    _exit(42);
}
static void free_late(void) {
    exercise();
    CHECK(mismatch(late_block, 0, 1000, 4) == 1000, "content lost");
    free(late_block);
    late_block = malloc(2000);
    CHECK(late_block != NULL, "no block");
    fill(late_block, 1000, 4);
    join_thread(start_thread(exercise_in_thread, NULL));
}
static void register_handlers(void) {
    late_block = malloc(1000);
    fill(late_block, 1000, 4);
    CHECK(atexit(end_with_42) == 0 && atexit(free_late) == 0 && atexit(free_late) == 0, "atexit");
}

CASE(atexit_handlers_allocate) { check_at_exit(register_handlers); }

static int end_in_destructor;
__attribute__((destructor(101))) static void destruct(void) {
    exercise();
    if (end_in_destructor) {
        free(constructed_block);
        _exit(42);
    }
}
static void reach_destructor(void) { end_in_destructor = 1; }

CASE(destructors_of_the_program_allocate) { check_at_exit(reach_destructor); }

static void *allocate_for_ever(void *unused) {
    for (;;) {
        void *block = malloc((uintptr_t)unused + 100);
        escape(block);
        free(block);
    }
    return unused;
}
static void exit_among_busy_threads(void) {
    for (uintptr_t i = 0; i < 4; i++)
        start_thread(allocate_for_ever, (void *)(i * 1000));
    register_handlers();
}

CASE(exit_while_other_threads_allocate) {
    for (unsigned round = 0; round < 20; round++)
        check_at_exit(exit_among_busy_threads);
}

/* Thread-specific destructors: one key from before all constructors, one from main, one that a thread makes
 * after its first call. Each comes back as often as POSIX allows, and allocates and frees each time. */
static pthread_key_t main_key, late_key;
static pthread_once_t late_key_once = PTHREAD_ONCE_INIT;
static void make_late_key(void) { CHECK(pthread_key_create(&late_key, run_destructor) == 0, "no key"); }

struct visits {
    pthread_key_t key;
    unsigned count;
    void *block;
};
static void *handed_over;
static _Atomic unsigned destructor_runs;

static void run_destructor(void *value) {
    struct visits *visits = value;
    CHECK(mismatch(visits->block, 0, 300, 6) == 300, "content lost");
    free(visits->block);
    exercise();
    destructor_runs++;
    if (++visits->count == PTHREAD_DESTRUCTOR_ITERATIONS) {
        /* The last block is freed by whoever takes it: another dying thread, or the main thread. */
        void *block = malloc(300);
        CHECK(block != NULL, "no block");
        free(__atomic_exchange_n(&handed_over, block, __ATOMIC_ACQ_REL));
        free(visits);
        return;
    }
    visits->block = malloc(300);
    fill(visits->block, 300, 6);
    CHECK(pthread_setspecific(visits->key, visits) == 0, "pthread_setspecific");
}

static void visit(pthread_key_t key) {
    struct visits *visits = malloc(sizeof *visits);
    *visits = (struct visits){key, 0, malloc(300)};
    fill(visits->block, 300, 6);
    CHECK(pthread_setspecific(key, visits) == 0, "pthread_setspecific");
}

static void *set_keys(void *unused) {
    visit(early_key);
    visit(main_key);
    exercise();
    pthread_once(&late_key_once, make_late_key);
    visit(late_key);
    return unused;
}

/* What is kept free for the next thread swings with the load; what dead threads left behind does not go. */
static size_t resident_after_trim(void) {
    malloc_trim(0);
    return status_bytes("VmRSS:");
}

CASE(thread_specific_destructors_allocate_in_every_round) {
    enum { THREADS = 8, ROUNDS = 100 };
    CHECK(early_key_error == 0, "no key");
    CHECK(pthread_key_create(&main_key, run_destructor) == 0, "no key");
    size_t before = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (unsigned i = 0; i < THREADS; i++)
            threads[i] = start_thread(set_keys, NULL);
        for (unsigned i = 0; i < THREADS; i++)
            join_thread(threads[i]);
        free(__atomic_exchange_n(&handed_over, NULL, __ATOMIC_ACQ_REL));
        if (round == ROUNDS / 2)
            before = resident_after_trim();
    }
    CHECK(destructor_runs == THREADS * ROUNDS * 3 * PTHREAD_DESTRUCTOR_ITERATIONS, "%u runs",
          destructor_runs);
    size_t after = resident_after_trim();
    CHECK(after < before + (1u << 20), "dying threads leak: %zu, then %zu bytes", before, after);
}

/* A thread whose very first call to the allocator is made by its destructor. */
static void allocate_first(void *unused) {
    (void)unused;
    exercise();
    destructor_runs++;
}
static void *only_set_key(void *unused) {
    CHECK(pthread_setspecific(main_key, &main_key) == 0, "pthread_setspecific");
    return unused;
}

CASE(the_first_call_of_a_thread_comes_from_its_destructor) {
    CHECK(pthread_key_create(&main_key, allocate_first) == 0, "no key");
    for (unsigned i = 0; i < 200; i++)
        join_thread(start_thread(only_set_key, NULL));
    CHECK(destructor_runs == 200, "%u runs", destructor_runs);
}
