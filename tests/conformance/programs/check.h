/* What every conformance program starts with: named cases, checks that say where and why they failed,
 * and the proof that the library under test serves this process.
 *
 * A program is a list of CASE(name) { … } blocks. `program NAME` runs one: it exits 0 if all its checks
 * hold, and 1 with one line on stderr at the first that does not. `program --list` prints the names.
 *
 * PROVE_SERVED may be defined as 0 before inclusion by a program that opens the library itself.
 * Compile with -D_GNU_SOURCE. Include this file after all others: it redefines the names of the malloc family.
 */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __GLIBC__
#include "glibc_names.h"
#endif

#ifndef PROVE_SERVED
#define PROVE_SERVED 1
#endif

/* Compilers believe what the headers declare of these functions (the result is aligned, is no other live
 * block, has so many bytes), and would delete checks of just that. Calls through these pointers tell them
 * nothing. */
#define OPAQUE(result, name, parameters) \
    __attribute__((unused)) static result (*volatile opaque_##name) parameters = name
OPAQUE(void *, malloc, (size_t));
OPAQUE(void, free, (void *));
OPAQUE(void *, calloc, (size_t, size_t));
OPAQUE(void *, realloc, (void *, size_t));
OPAQUE(void *, reallocarray, (void *, size_t, size_t));
OPAQUE(int, posix_memalign, (void **, size_t, size_t));
OPAQUE(void *, aligned_alloc, (size_t, size_t));
OPAQUE(void *, memalign, (size_t, size_t));
OPAQUE(void *, valloc, (size_t));
OPAQUE(void *, pvalloc, (size_t));
OPAQUE(size_t, malloc_usable_size, (void *));
#define malloc opaque_malloc
#define free opaque_free
#define calloc opaque_calloc
#define realloc opaque_realloc
#define reallocarray opaque_reallocarray
#define posix_memalign opaque_posix_memalign
#define aligned_alloc opaque_aligned_alloc
#define memalign opaque_memalign
#define valloc opaque_valloc
#define pvalloc opaque_pvalloc
#define malloc_usable_size opaque_malloc_usable_size

/* Ends the process with the place, the condition and a printf-like reason unless `condition` holds. */
#define CHECK(condition, ...)                                                         \
    do {                                                                              \
        if (!(condition)) {                                                           \
            int check_errno = errno;                                                  \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);           \
            fprintf(stderr, __VA_ARGS__);                                             \
            fprintf(stderr, " (errno %d)\n", check_errno);                            \
            _exit(1);                                                                 \
        }                                                                             \
    } while (0)

/* The machine does not allow this case. */
__attribute__((unused)) static void skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
    _exit(77);
}

#define CASE(name)                                                                    \
    static void name(void);                                                           \
    static struct check_case name##_case = {#name, name, NULL};                       \
    __attribute__((constructor)) static void name##_register(void) { check_add(&name##_case); } \
    static void name(void)

struct check_case {
    const char *name;
    void (*run)(void);
    struct check_case *next;
};

static struct check_case *check_cases;

static inline void check_add(struct check_case *item) {
    item->next = check_cases;
    check_cases = item;
}

/* Hides a pointer's origin from the optimiser, and keeps what it points to alive. */
static inline void *escape(void *pointer) {
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

/* The path of the library under test. */
static inline const char *check_library(void) {
    const char *path = getenv("CONFORMANCE_LIBRARY");
    CHECK(path != NULL, "set CONFORMANCE_LIBRARY to the path of the library under test");
    return path;
}

/* Whether `function` is defined in the library under test. */
static inline int check_is_served(void *function) {
    Dl_info info;
    struct stat defining, expected;
    return function != NULL && dladdr(function, &info) != 0 && stat(info.dli_fname, &defining) == 0 &&
           stat(check_library(), &expected) == 0 && defining.st_dev == expected.st_dev &&
           defining.st_ino == expected.st_ino;
}

/* Proves that this program's own references to the malloc family lead to the library under test. */
static inline void check_served(void) {
    void *const functions[] = {(void *)malloc, (void *)free, (void *)calloc, (void *)realloc,
                               (void *)posix_memalign};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        CHECK(check_is_served(functions[i]),
              "this program's malloc, free, calloc, realloc and posix_memalign are not all served by %s",
              check_library());
}

/* Fills a block with a pattern that depends on `tag` and the position. */
static inline void fill(void *block, size_t size, unsigned tag) {
    unsigned char *bytes = (unsigned char *)block;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(tag + i * 7 + (i >> 8));
}

/* The first position from `start` up to `size` that does not hold fill()'s pattern; `size` if all do. */
static inline size_t mismatch(const void *block, size_t start, size_t size, unsigned tag) {
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = start; i < size; i++)
        if (bytes[i] != (unsigned char)(tag + i * 7 + (i >> 8)))
            return i;
    return size;
}

/* A kB figure of /proc/self/status ("VmRSS:", "VmSize:"), in bytes. */
static inline size_t status_bytes(const char *field) {
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL, "/proc/self/status does not open");
    char line[256];
    size_t kilobytes = 0;
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            kilobytes = strtoul(line + strlen(field), NULL, 10);
    fclose(status);
    CHECK(kilobytes != 0, "%s is not in /proc/self/status", field);
    return kilobytes * 1024;
}

/* A step of a 64-bit linear congruential generator (Knuth's MMIX constants); its high bits are good. */
static inline uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* Threads of this process. */
static inline unsigned thread_count(void) {
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL, "no /proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Its stack is so small that it is no huge page: Linux before 6.7 gives stacks some, too, where it gives them to all memory. */
static inline pthread_t start_thread(void *(*body)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_t thread;
    int error = pthread_create(&thread, &attributes, body, argument);
    CHECK(error == 0, "pthread_create: error %d", error);
    pthread_attr_destroy(&attributes);
    return thread;
}

static inline void *join_thread(pthread_t thread) {
    void *result = NULL;
    int error = pthread_join(thread, &result);
    CHECK(error == 0, "pthread_join: error %d", error);
    return result;
}

/* How a child ended, as waitpid tells it; -1: it had not within a minute, and was killed. */
static inline int end_of(pid_t child) {
    CHECK(child > 0, "fork");
    int status = -1;
    for (unsigned ms = 0; waitpid(child, &status, WNOHANG) == 0; ms++) {
        if (ms == 60000) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return -1;
        }
        usleep(1000);
    }
    return status;
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "--list") == 0) {
        for (struct check_case *item = check_cases; item != NULL; item = item->next)
            puts(item->name);
        return 0;
    }
    for (struct check_case *item = check_cases; count == 2 && item != NULL; item = item->next) {
        if (strcmp(item->name, arguments[1]) == 0) {
            if (PROVE_SERVED)
                check_served();
            item->run();
            return 0;
        }
    }
    fprintf(stderr, "usage: %s CASE | --list\n", arguments[0]);
    return 2;
}

#endif
