/* A server with one thread a user, each of whose requests takes a buffer, fills it and gives it back. All do the
 * same work: where nothing is shared, the time does not depend on their number.
 *
 * usage: users THREADS REQUESTS [BYTES]: REQUESTS of each thread; BYTES are 200 KiB unless said */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static long requests;
static size_t bytes = 200 << 10;

static void *serve(void *user) {
    unsigned long sum = 0;
    for (long i = 0; i < requests; i++) {
        unsigned char *volatile buffer = malloc(bytes);
        if (!buffer) abort();
        memset(buffer, (int)(i + (intptr_t)user), bytes);
        sum += buffer[i % (long)bytes];
        free(buffer);
    }
    return (void *)sum;
}

int main(int count, char **words) {
    int users = count > 1 ? atoi(words[1]) : 0;
    requests = count > 2 ? atol(words[2]) : 0;
    if (count > 3) bytes = (size_t)atol(words[3]);
    if (users < 1 || users > MOST || requests < 1 || bytes < 1) {
        fprintf(stderr, "usage: users THREADS REQUESTS [BYTES], up to %d threads\n", MOST);
        return 2;
    }
    pthread_t threads[MOST];
    unsigned long sum = 0;
    for (intptr_t i = 0; i < users; i++)
        if (pthread_create(&threads[i], 0, serve, (void *)i)) return 1;
    for (int i = 0; i < users; i++) {
        void *part;
        if (pthread_join(threads[i], &part)) return 1;
        sum += (unsigned long)part;
    }
    printf("%lu\n", sum);
    return 0;
}
