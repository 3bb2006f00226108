/* Does with malloc what its argument says, so that an observer has to tell just that. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 20000, LARGE = 1500, ROUNDS = 3000, THREADS = 4, STEPS = 30, MIB = 1 << 20 };

static void *blocks[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

static void *fill(void *unused) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(48);
    return unused;
}

static void *empty(void *unused) {
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return unused;
}

/* Two threads that take turns: one block each. */
static void *alternate(void *own) {
    for (int i = 0; i < BLOCKS / 2; i++) {
        pthread_mutex_lock(&lock);
        while (turn != (own != NULL)) pthread_cond_wait(&turned, &lock);
        blocks[2 * i + turn] = malloc(24);
        turn = !turn;
        pthread_cond_signal(&turned);
        pthread_mutex_unlock(&lock);
    }
    return own;
}

/* As long as there is time to look. */
static void hold(void) { usleep(600 * 1000); }

/* As long as the tool may take to ask of the last tenth of what memory there is, on a busy machine, too. */
static void hold_long(void) { usleep(4000 * 1000); }

/* Uses 6 MiB of its stack. */
static void *stack(void *unused) {
    free(malloc(48));
    volatile char place[6 * MIB];
    for (size_t i = 0; i < sizeof place; i += 4096) place[i] = 1;
    hold_long();
    return unused;
}

/* A MiB of blocks, of which every hundredth stays if so many are freed again. */
static void *step[STEPS][2 * 1024];

static void fill_step(int at) {
    for (int i = 0; i < 2 * 1024; i++) step[at][i] = memset(malloc(512), 1, 512);
}

static void both(void *(*first)(void *), void *(*second)(void *), int together) {
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, first, NULL);
    if (!together) pthread_join(threads[0], NULL);
    pthread_create(&threads[1], NULL, second, &threads);
    if (together) pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "hand-over")) both(fill, empty, 0);
    if (!strcmp(what, "alternate")) both(alternate, alternate, 1);
    if (!strcmp(what, "large"))
        for (int i = 0; i < LARGE; i++) {
            char *block = malloc(200 << 10);
            memset(block, i, 200 << 10);
            free(block);
        }
    if (!strcmp(what, "resize")) {
        char *block = NULL;
        for (int i = 1; i <= ROUNDS; i++) block = realloc(block, 16 * i);
        free(block);
        free(calloc(100, 8));
        void *aligned = NULL;
        if (posix_memalign(&aligned, 4096, 100)) return 1;
        free(aligned);
        if (malloc((size_t)1 << 60)) return 1;
    }
    if (!strcmp(what, "fork")) {
        fill(NULL);
        int status = 0;
        if (fork() == 0) {
            empty(NULL);
            execl("/proc/self/exe", "again", "resize", NULL);
            _exit(1);
        }
        wait(&status);
        return WEXITSTATUS(status);
    }
    if (!strcmp(what, "unwaited")) {
        signal(SIGCHLD, SIG_IGN);
        for (int child = 0; child < 2; child++)
            if (fork() == 0) {
                for (int i = 0; i < 20 * BLOCKS; i++) free(memset(malloc(64 + i % 64), 1, 64));
                _exit(0);
            }
        while (wait(NULL) > 0) {}
    }
    if (!strcmp(what, "map")) {
        /* Mapped by malloc, and beside it by the program. */
        memset(malloc(MIB), 1, MIB);
        for (int i = 0; i < 48; i++)
            memset(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, MIB);
        fill_step(0);
        hold_long();
    }
    if (!strcmp(what, "stacks")) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, stack, NULL);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    }
    if (!strcmp(what, "grow"))
        for (int at = 0; at < STEPS; at++) {
            fill_step(at);
            usleep(60 * 1000);
        }
    if (!strcmp(what, "keep")) {
        for (int at = 0; at < STEPS; at++) fill_step(at);
        hold();
        hold();
        for (int at = 0; at < STEPS; at++)
            for (int i = 0; i < 2 * 1024; i++)
                if (i % 100) free(step[at][i]);
        hold();
        hold();
    }
    if (!strcmp(what, "trim"))
        for (int i = 0; i < 100; i++) {
            free(memset(malloc(MIB), 1, MIB));
            malloc_trim(0);
        }
    if (!strcmp(what, "abort")) {
        fill(NULL);
        abort();
    }
    if (!strcmp(what, "sleep")) {
        fill(NULL);
        puts("ready");
        fflush(stdout);
        sleep(100);
    }
    return 7;
}
