/* A program into which the library is linked: no dynamic linker, no preload. */
#define PROVE_SERVED 0
#include <signal.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/wait.h>

#include "../../../allocator/abi/include/ample.h"
#include "check.h"
#include "empty_threads.h"
#include "stacks.h"

static size_t allocated(void) {
    char text[16384];
    CHECK(ample_statistics_json(text, sizeof text) < sizeof text, "no statistics");
    return strtoul(strchr(text, ':') + 1, NULL, 10);
}

static void *allocate(void *unused) {
    for (size_t size = 1; size < (8u << 20); size = size * 3 / 2 + 1) {
        unsigned char *block = calloc(1, size);
        CHECK(block != NULL, "no block of %zu bytes", size);
        fill(block, size, 3);
        block = realloc(block, size * 2);
        CHECK(block != NULL && mismatch(block, 0, size, 3) == size, "content of %zu bytes lost", size);
        free(block);
    }
    return unused;
}

CASE(the_library_serves_it) {
    size_t before = allocated();
    void *block = malloc(5 << 20);
    CHECK(allocated() - before >= 5u << 20, "malloc is another library's");
    free(block);
    /* What the C library itself allocates comes from here, too. */
    before = allocated();
    char *text = strdup("text"), *line = NULL;
    CHECK(asprintf(&line, "%s %0*d", text, 100000, 1) > 100000, "asprintf");
    CHECK(allocated() - before >= 100000, "the C library allocates elsewhere");
    free(text);
    free(line);
}

/* Our dlopen finds the C library's, which opens it, or says why it cannot. */
CASE(libraries_can_be_opened) {
    CHECK(dlopen("libm.so.6", RTLD_NOW) != NULL || dlerror() != NULL, "there is no dlopen");
    CHECK(dlopen("./no_such_library.so", RTLD_NOW | RTLD_DEEPBIND) == NULL && strstr(dlerror(), "no_such_library") != NULL,
          "what is not there is opened, or not named");
}

CASE(threads_and_forks_work) {
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++)
        threads[i] = start_thread(allocate, NULL);
    for (unsigned i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            allocate(NULL);
            _exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child ends with %#x", status);
    }
    for (unsigned i = 0; i < 4; i++)
        join_thread(threads[i]);
    CHECK(malloc(SIZE_MAX / 2) == NULL && errno == ENOMEM, "more than any address space holds");
}

/* In a copy of this program that runs with other rights than whoever started it. */
CASE(a_setuid_program_ignores_the_environment) {
    if (getauxval(AT_SECURE) != 0) {
        allocate(NULL);
        return;
    }
    if (getenv("WITH_OTHER_RIGHTS") != NULL) {
        puts("a setuid program gets no other rights here: is /tmp mounted nosuid?");
        exit(77);
    }
    char path[] = "/tmp/ample-setuid-XXXXXX", command[200], says[200] = "";
    int status = -1, file = mkstemp(path);
    CHECK(file >= 0, "mkstemp");
    close(file);
    snprintf(command, sizeof command, "cp /proc/%d/exe %s && chown nobody %s && chmod 4755 %s", (int)getpid(), path, path, path);
    int made = getuid() == 0 && system(command) == 0;
    if (made) {
        snprintf(command, sizeof command, "WITH_OTHER_RIGHTS=1 AMPLE_CONFIRM_CONF=1 AMPLE_CACHE=x %s %s 2>&1", path, __func__);
        FILE *output = popen(command, "r");
        CHECK(output != NULL, "popen");
        size_t length = fread(says, 1, sizeof says - 1, output);
        says[length] = 0;
        status = pclose(output);
    }
    unlink(path);
    if (!made) {
        puts("only root can make a program of another user's");
        exit(77);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        fputs(strstr(says, "a setuid"), stdout);
        exit(77);
    }
    CHECK(status == 0 && says[0] == 0, "status %#x; it says: %s", status, says);
}

CASE(stacks_are_given_up_while_memory_waits_to_come_back) { stacks_are_given_up(); }

CASE(threads_that_never_ask_for_memory_end) { empty_threads(); }

/* Although the C library's frees cannot all be told from the program's. */
CASE(the_helper_is_started) {
    static void *blocks[10000];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t other = start_thread(wait_for_all, &barrier);
    unsigned before = thread_count();
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 10000; i++)
            CHECK((blocks[i] = malloc(1000)) != NULL, "no block");
        for (unsigned i = 0; i < 10000; i++)
            free(blocks[i]);
    }
    CHECK(thread_count() == before + 1, "%u threads", thread_count());
    pthread_barrier_wait(&barrier);
    join_thread(other);
}
