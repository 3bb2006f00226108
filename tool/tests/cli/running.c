/* Has blocks, or does something with malloc for ever, as its argument says, so that a look from outside has to tell just that. It ends by itself after a minute. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 4, MIB = 1 << 20, BLOCKS = 8 * 1024, SLOTS = 500 };

static const char *what;
static pthread_barrier_t together;

static void *work(void *unused) {
    void **own = calloc(BLOCKS, sizeof *own);
    if (!strcmp(what, "keep"))
        for (int i = 0; i < BLOCKS; i++) own[i] = memset(malloc(1000), 1, 1000);
    pthread_barrier_wait(&together);
    if (!strcmp(what, "keep"))
        for (int i = 0; i < BLOCKS; i++)
            if (i % 4) free(own[i]);
    pthread_barrier_wait(&together);
    for (unsigned i = 0; !strcmp(what, "contend"); i++) {
        free(own[i % SLOTS]);
        own[i % SLOTS] = malloc(16 + i * 13 % 500);
    }
    while (!strcmp(what, "fresh")) free(memset(malloc(300 << 10), 1, 300 << 10));
    pause();
    return unused;
}

int main(int count, char **arguments) {
    what = count > 1 ? arguments[1] : "";
    alarm(60);
    pthread_barrier_init(&together, NULL, THREADS + 1);
    pthread_t thread;
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&together);
    if (!strcmp(what, "map")) memset(mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 32 * MIB);
    pthread_barrier_wait(&together);
    if (!strcmp(what, "fork")) {
        char *block = memset(malloc(32 * MIB), 1, 32 * MIB);
        if (fork()) pause();
        alarm(60);
        memset(block, 2, 8 * MIB);
    }
    puts("ready");
    fflush(stdout);
    while (!strcmp(what, "grow")) {
        for (int i = 0; i < 200; i++) memset(malloc(1000), 1, 1000);
        usleep(2000);
    }
    pause();
    return 1;
}
