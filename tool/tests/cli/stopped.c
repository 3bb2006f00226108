// stopped graceful|stubborn: says "ready" and waits to be told to end.
//
// Graceful, it takes its time after a SIGINT, and ends with 5; stubborn, it takes no notice of that. A SIGTERM cuts either off: 6.
// (It waits for the signals themselves. A shell with traps can miss one that comes just before it reads, until there is something to read.)

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int main(int count, char **words) {
    int graceful = count > 1 && strcmp(words[1], "graceful") == 0;
    sigset_t both, term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    both = term;
    sigaddset(&both, SIGINT);
    sigprocmask(SIG_BLOCK, &both, NULL);
    puts("ready");
    fflush(stdout);
    while (sigwaitinfo(&both, NULL) != SIGTERM) {
        if (!graceful) {
            puts("no");
            fflush(stdout);
        } else if (sigtimedwait(&term, NULL, &(struct timespec){.tv_nsec = 300000000}) != SIGTERM) {
            puts("in peace");
            return 5;
        } else {
            break;
        }
    }
    puts("cut off");
    return 6;
}
