/* The thread that gives memory back although the program does nothing: when there is one, and when there is none. */
#include <sched.h>
#include <sys/syscall.h>

#include "check.h"

enum { SIZE = 512, COUNT = (32 << 20) / SIZE, PATIENCE_MS = 20000 };

/* The helper's stack holds a copy of it, too. */
static _Thread_local unsigned char large[200000];

/* Asks for memory, tells so, and ends when it is told to. */
static void *wait_for_end(void *barrier) {
    large[0] = 1;
    free(malloc(100));
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

/* Leaves much to give back. */
static void churn(void) {
    static void *blocks[COUNT];
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT; i++)
            CHECK((blocks[i] = malloc(SIZE)) != NULL, "no block");
        for (unsigned i = 0; i < COUNT; i++)
            free(blocks[i]);
    }
}

static pthread_t start_other(pthread_barrier_t *barrier) {
    pthread_barrier_init(barrier, NULL, 2);
    pthread_t other = start_thread(wait_for_end, barrier);
    pthread_barrier_wait(barrier);
    return other;
}

/* Starts a thread, and leaves much to give back beside it: then there is a helper, too. */
static pthread_t start_helper(pthread_barrier_t *barrier) {
    pthread_t other = start_other(barrier);
    churn();
    CHECK(thread_count() == 3, "%u threads", thread_count());
    return other;
}

CASE(it_is_started_although_the_program_was_alone_before) {
    pthread_barrier_t end;
    churn();
    CHECK(thread_count() == 1, "%u threads", thread_count());
    start_helper(&end);
}

CASE(it_ends_when_the_program_is_alone_again) {
    pthread_barrier_t end;
    pthread_t other = start_helper(&end);
    pthread_barrier_wait(&end);
    join_thread(other);
    for (unsigned ms = 0; thread_count() > 1; ms++) {
        CHECK(ms < PATIENCE_MS, "%u threads", thread_count());
        usleep(1000);
    }
    churn();
    CHECK(thread_count() == 1, "%u threads", thread_count());
    start_helper(&end);
}

/* CPython 3.12 counts threads after a fork, in the parent, and warns of several. */
CASE(it_is_gone_when_a_program_forks_that_is_alone_again) {
    pthread_barrier_t end;
    pthread_t other = start_helper(&end);
    pthread_barrier_wait(&end);
    join_thread(other);
    /* The system may count a thread for a moment after it was joined. */
    for (unsigned ms = 0; thread_count() > 2; ms++) {
        CHECK(ms < PATIENCE_MS, "%u threads", thread_count());
        usleep(1000);
    }
    pid_t child = fork();
    if (child == 0) {
        free(malloc(100));
        _exit(0);
    }
    CHECK(thread_count() == 1, "%u threads", thread_count());
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    start_helper(&end);
}

CASE(there_is_none_after_a_thread_that_has_ended) {
    pthread_barrier_t end;
    pthread_t other = start_other(&end);
    pthread_barrier_wait(&end);
    join_thread(other);
    churn();
    CHECK(thread_count() == 1, "%u threads", thread_count());
}

static void *end_later(void *barrier) {
    usleep(20000);
    pthread_barrier_wait(barrier);
    return NULL;
}

/* Its first thread leaves before the last ones do. */
CASE(a_process_ends_with_its_last_thread) {
    static pthread_barrier_t end;
    pid_t child = fork();
    if (child == 0) {
        start_helper(&end);
        start_thread(end_later, &end);
        pthread_exit(NULL);
    }
    int status = end_of(child);
    CHECK(status != -1, "it never ends");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it ends with status %#x", (unsigned)status);
}

/* The helper's number as a thread; 0: there is none yet. */
static pid_t helper(void) {
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads != NULL, "/proc/self/task");
    pid_t found = 0;
    for (struct dirent *entry; found == 0 && (entry = readdir(threads)) != NULL;) {
        char path[300], name[20] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL && fgets(name, sizeof name, file) != NULL && strcmp(name, "ample-helper\n") == 0)
            found = atoi(entry->d_name);
        if (file != NULL)
            fclose(file);
    }
    closedir(threads);
    return found;
}

/* Confines itself to one processor, and to what others leave of it, before it makes the library start the helper. */
static void *start_it_confined(void *unused) {
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
    CPU_ZERO(&one);
    for (int i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    struct sched_param parameter = {0};
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    CHECK(syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &parameter) == 0, "sched_setscheduler");
    churn();
    pid_t thread;
    cpu_set_t its;
    for (unsigned ms = 0;; ms++) {
        thread = helper();
        if (thread != 0 && sched_getaffinity(thread, sizeof its, &its) == 0 && CPU_EQUAL(&its, &all) &&
            syscall(SYS_sched_getscheduler, thread) == SCHED_OTHER)
            return unused;
        CHECK(ms < PATIENCE_MS, "thread %d is confined as the one that started it", (int)thread);
        usleep(1000);
    }
}

CASE(it_runs_where_the_program_may_whoever_starts_it) { join_thread(start_thread(start_it_confined, NULL)); }
