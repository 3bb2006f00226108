/* A program that is linked with the shared library. */
#include <link.h>

#include "../../../allocator/abi/include/ample.h"
#include "check.h"

static int count_libraries(struct dl_phdr_info *object, size_t size, void *count) {
    (void)size;
    *(unsigned *)count += strstr(object->dlpi_name, "libample.so") != NULL;
    return 0;
}

/* Also where a copy is preloaded: the name that the program asks for is the copy's, too. */
CASE(one_library_serves_it) {
    unsigned libraries = 0;
    dl_iterate_phdr(count_libraries, &libraries);
    CHECK(libraries == 1, "there are %u", libraries);
}

static void *exercise(void *unused) {
    for (size_t size = 0; size < (4u << 20); size = size * 5 / 4 + 1) {
        unsigned char *block = malloc(size);
        CHECK(block != NULL, "no block of %zu bytes", size);
        fill(block, size, 3);
        block = realloc(block, size * 2 + 1);
        CHECK(block != NULL && mismatch(block, 0, size, 3) == size, "content of %zu bytes lost", size);
        free(block);
    }
    return unused;
}

CASE(threads_and_forks_work) {
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++)
        threads[i] = start_thread(exercise, NULL);
    pid_t child = fork();
    if (child == 0) {
        exercise(NULL);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
    for (unsigned i = 0; i < 4; i++)
        join_thread(threads[i]);
    CHECK(ample_trim() == 1, "what is free does not go back");
}
