/* Two threads that allocate and free blocks too large for a thread's own cache in glibc, and touch each. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *work(void *nothing) {
    for (int i = 0; i < 40000; i++) {
        char *volatile block = malloc(1500);
        if (!block) abort();
        memset(block, i, 1500);
        free(block);
    }
    return nothing;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], 0, work, 0)) return 1;
    for (int i = 0; i < 2; i++)
        if (pthread_join(threads[i], 0)) return 1;
    /* However fast the machine is, the program does not end too soon to be compared. */
    usleep(20000);
    return 0;
}
