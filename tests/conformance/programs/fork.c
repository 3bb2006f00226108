/* New processes out of a program whose threads never stop allocating. */
#include <signal.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

enum { WORKERS = 4, SLOTS = 256, ROUNDS = 200, PATIENCE_S = 20 };

/* Blocks of all workers, always some of them; a forked child may find any of them. */
static void *slots[WORKERS][SLOTS];
static volatile int stop;

static size_t random_size(uint64_t *state) {
    static const size_t limits[] = {64, 1000, 1000, 20000, 300000, 64, 256, 5000};
    return 1 + next_random(state) % limits[next_random(state) % 8];
}

static void *allocate_until_stopped(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    uint64_t state = me + 1;
    while (!stop) {
        size_t size = random_size(&state);
        unsigned char *block = malloc(size);
        CHECK(block != NULL, "no block of %zu bytes", size);
        block[0] = block[size - 1] = 1;
        /* Half of the frees are of another worker's block. */
        unsigned owner = (me + next_random(&state) % 2) % WORKERS;
        free(__atomic_exchange_n(&slots[owner][next_random(&state) % SLOTS], block, __ATOMIC_ACQ_REL));
    }
    return argument;
}

static pthread_t workers[WORKERS];

static void start_workers(void) {
    for (uintptr_t i = 0; i < WORKERS; i++)
        workers[i] = start_thread(allocate_until_stopped, (void *)i);
}

/* After this, all of the workers' blocks are still good. */
static void stop_workers(void) {
    stop = 1;
    for (unsigned i = 0; i < WORKERS; i++)
        join_thread(workers[i]);
    for (unsigned i = 0; i < WORKERS; i++)
        for (unsigned j = 0; j < SLOTS; j++)
            free(slots[i][j]);
}

static void exercise(unsigned seed) {
    uint64_t state = seed + 1;
    void *blocks[300];
    for (unsigned i = 0; i < 300; i++) {
        size_t size = random_size(&state);
        blocks[i] = i % 2 == 0 ? malloc(size) : calloc(size, 1);
        CHECK(blocks[i] != NULL, "no block of %zu bytes", size);
        memset(blocks[i], 1, size);
        blocks[i] = realloc(blocks[i], size + 100);
        CHECK(blocks[i] != NULL, "no block of %zu bytes", size + 100);
    }
    for (unsigned i = 0; i < 300; i++)
        free(blocks[i]);
}

static void *exercise_in_thread(void *argument) {
    exercise((unsigned)(uintptr_t)argument);
    return argument;
}

/* A child's life. SIGALRM ends it if it hangs. */
static void live_as_child(unsigned round) {
    alarm(PATIENCE_S);
    exercise(round);
    for (unsigned i = 0; i < WORKERS; i++)
        for (unsigned j = 0; j < SLOTS; j++)
            free(__atomic_exchange_n(&slots[i][j], NULL, __ATOMIC_ACQ_REL));
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        threads[i] = start_thread(exercise_in_thread, (void *)(round + i));
    for (unsigned i = 0; i < 3; i++)
        join_thread(threads[i]);
    exercise(round + 1);
}

static void await_child(pid_t child) {
    int status = 0;
    CHECK(child > 0, "fork");
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, "the child hung for %d s", PATIENCE_S);
    CHECK(status == 0, "the child's status is %#x", status);
}

CASE(fork_while_other_threads_allocate) {
    start_workers();
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0) {
            live_as_child(round);
            exit(0);
        }
        await_child(child);
        exercise(round);
    }
    stop_workers();
}

static void *fork_in_thread(void *argument) {
    for (unsigned round = 0; round < ROUNDS / 4; round++) {
        exercise(round);
        pid_t child = fork();
        if (child == 0) {
            live_as_child(round);
            _exit(0);
        }
        await_child(child);
    }
    return argument;
}

CASE(fork_from_several_threads_at_once) {
    start_workers();
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++)
        threads[i] = start_thread(fork_in_thread, NULL);
    for (unsigned i = 0; i < 2; i++)
        join_thread(threads[i]);
    stop_workers();
}

CASE(a_child_forks_again) {
    start_workers();
    for (unsigned round = 0; round < ROUNDS / 8; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE_S);
            live_as_child(round);
            start_workers();
            pid_t grandchild = fork();
            if (grandchild == 0) {
                live_as_child(round);
                _exit(0);
            }
            await_child(grandchild);
            stop_workers();
            _exit(0);
        }
        await_child(child);
    }
    stop_workers();
}

static unsigned handler_calls;
static void allocate_in_handler(void) {
    handler_calls++;
    exercise(handler_calls);
}

CASE(fork_handlers_allocate) {
    int error = pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler);
    CHECK(error == 0, "pthread_atfork: error %d", error);
    start_workers();
    for (unsigned round = 0; round < ROUNDS / 8; round++) {
        handler_calls = 0;
        pid_t child = fork();
        if (child == 0) {
            live_as_child(round);
            _exit(handler_calls == 2 ? 0 : 3);
        }
        await_child(child);
        CHECK(handler_calls == 2, "%u handlers called", handler_calls);
    }
    stop_workers();
}

CASE(posix_spawn_while_other_threads_allocate) {
    char *arguments[] = {(char *)"true", NULL};
    start_workers();
    for (unsigned round = 0; round < ROUNDS / 4; round++) {
        pid_t child = 0;
        int error = posix_spawnp(&child, "true", NULL, NULL, arguments, environ);
        CHECK(error == 0, "posix_spawnp: error %d", error);
        await_child(child);
        exercise(round);
    }
    stop_workers();
}

/* A reader holds its stream while it reallocates the line; a flush holds the list of streams, and wants the reader's;
   the fork wants the list. */
static FILE *lines;

static void *read_lines_until_stopped(void *unused) {
    char *line = NULL;
    size_t size = 0;
    while (!stop) {
        rewind(lines);
        while (getline(&line, &size, lines) > 0)
            continue;
        free(line);
        line = NULL;
        size = 0;
    }
    return unused;
}

static void *flush_until_stopped(void *unused) {
    while (!stop)
        fflush(NULL);
    return unused;
}

CASE(fork_while_other_threads_read_and_flush_streams) {
    lines = tmpfile();
    CHECK(lines != NULL, "no temporary file");
    for (unsigned line = 0; line < 5; line++) {
        for (unsigned i = 0; i < 300000; i++)
            fputc('a', lines);
        fputc('\n', lines);
    }
    pthread_t reader = start_thread(read_lines_until_stopped, NULL);
    pthread_t flusher = start_thread(flush_until_stopped, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0)
            _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d", status);
    }
    stop = 1;
    join_thread(reader);
    join_thread(flusher);
}

CASE(vfork_while_other_threads_allocate) {
    start_workers();
    for (unsigned round = 0; round < ROUNDS / 4; round++) {
        pid_t child = vfork();
        if (child == 0) {
            execlp("true", "true", (char *)NULL);
            _exit(127);
        }
        await_child(child);
        exercise(round);
    }
    stop_workers();
}

/* A handler may fork in a program of one thread, in the midst of a malloc or a free. */
enum { HANDLED = 300 };
static volatile unsigned handled;

static void set_timer(void) {
    struct itimerval soon = {.it_value = {.tv_usec = 300 + handled % 97}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void fork_once(int number) {
    (void)number;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %#x", (unsigned)status);
    handled++;
    set_timer();
}

CASE(a_signal_handler_forks) {
    struct sigaction action = {.sa_handler = fork_once, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    set_timer();
    enum { BLOCKS = 2000 };
    static void *blocks[BLOCKS];
    uint64_t state = 1;
    while (handled < HANDLED) {
        for (unsigned i = 0; i < BLOCKS; i++)
            CHECK((blocks[i] = malloc(1000 + next_random(&state) % 60000)) != NULL, "no block");
        for (unsigned i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
}
