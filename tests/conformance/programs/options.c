/* Options in the environment, and the library's own functions. */
#include "check.h"

#include <sys/wait.h>

enum { LINE = 64, BLOCKS = 4000 };

/* Starts this case again with a variable set, unless it is set already. */
static void with(const char *name, const char *value, const char *this_case) {
    if (getenv(name) != NULL)
        return;
    CHECK(setenv(name, value, 1) == 0, "setenv");
    execl("/proc/self/exe", "/proc/self/exe", this_case, (char *)NULL);
    CHECK(0, "/proc/self/exe does not start");
}

static int by_address(const void *a, const void *b) {
    uintptr_t first = *(const uintptr_t *)a, second = *(const uintptr_t *)b;
    return first < second ? -1 : first > second;
}

/* No two of the blocks, the sizes of which `size_of` tells, lie on one line. */
static void check_isolated(uintptr_t *blocks, size_t (*size_of)(size_t)) {
    static uintptr_t ends[2 * BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        ends[2 * i] = blocks[i] / LINE;
        ends[2 * i + 1] = (blocks[i] + size_of(i) - 1) / LINE;
    }
    /* First and last line of each: sorted by the first, a last line is below the next block's first one. */
    qsort(ends, BLOCKS, 2 * sizeof *ends, by_address);
    for (size_t i = 0; i + 1 < BLOCKS; i++)
        CHECK(ends[2 * i + 1] < ends[2 * i + 2], "two blocks share line %#zx", (size_t)ends[2 * i + 1]);
}

static size_t many_sizes(size_t index) {
    return 1 + index * 37 % 2000;
}

CASE(isolated_blocks_have_their_lines_to_themselves) {
    with("AMPLE_ISOLATE_LINES", "1", __func__);
    static uintptr_t blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = many_sizes(i);
        void *block = i % 3 == 0 ? calloc(1, size) : malloc(size);
        if (i % 3 == 1)
            block = realloc(block, size);
        fill(block, size, (unsigned)i);
        blocks[i] = (uintptr_t)block;
    }
    check_isolated(blocks, many_sizes);
    for (size_t i = 0; i < BLOCKS; i++)
        free((void *)blocks[i]);
}

CASE(shared_blocks_have_their_lines_to_themselves) {
    void *(*shared)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "ample_malloc_shared");
    CHECK(shared != NULL && check_is_served((void *)shared), "the library has no ample_malloc_shared");
    static uintptr_t blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = (uintptr_t)shared(many_sizes(i));
        CHECK(blocks[i] != 0, "no block of %zu bytes", many_sizes(i));
        fill((void *)blocks[i], many_sizes(i), (unsigned)i);
        /* An ordinary block beside it. */
        fill(malloc(many_sizes(i)), many_sizes(i), (unsigned)i);
    }
    check_isolated(blocks, many_sizes);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(mismatch((void *)blocks[i], 0, many_sizes(i), (unsigned)i) == many_sizes(i), "block %zu", i);
    CHECK(shared(SIZE_MAX) == NULL && errno == ENOMEM, "more than any address space holds");
}

static void *allocate_and_free(void *argument) {
    uint64_t state = (uintptr_t)argument;
    static _Thread_local void *slots[500];
    for (unsigned round = 0; round < 50000; round++) {
        void **slot = &slots[next_random(&state) % 500];
        free(*slot);
        size_t size = 1 + next_random(&state) % 3000;
        *slot = malloc(size);
        fill(*slot, size < 16 ? size : 16, round);
    }
    for (unsigned i = 0; i < 500; i++)
        free(slots[i]);
    return NULL;
}

CASE(without_caches_everything_works) {
    with("AMPLE_CACHE", "0", __func__);
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        threads[i] = start_thread(allocate_and_free, (void *)(i + 1));
    for (unsigned i = 0; i < 3; i++)
        join_thread(threads[i]);
    /* What a block's free leaves is found at once: nothing lies in a magazine in between. */
    void *first = malloc(3000), *second = malloc(3000);
    free(first);
    free(second);
    CHECK(malloc(3000) == (first < second ? first : second), "the lowest address does not come first");
}

/* What the program of the case `child` prints on stderr with `name` set, and how it ends. */
static int child_says(const char *name, const char *value, const char *child, char *text, size_t room) {
    int ends[2], status;
    CHECK(pipe(ends) == 0, "pipe");
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        dup2(ends[1], 2);
        setenv(name, value, 1);
        execl("/proc/self/exe", "/proc/self/exe", child, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], text + length, room - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = 0;
    close(ends[0]);
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}

CASE(a_process_that_does_nothing) {
}

CASE(a_bad_value_is_told_in_one_line_and_ignored) {
    char text[4096];
    int status = child_says("AMPLE_CACHE", "many", "a_process_that_does_nothing", text, sizeof text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
    const char *line = "ample: AMPLE_CACHE=many is ignored: it takes a whole number from 0 to 1\n";
    CHECK(strcmp(text, line) == 0, "it says: %s", text);
    CHECK(setenv("AMPLE_ABORT_CONF", "1", 1) == 0, "setenv");
    status = child_says("AMPLE_CACHE", "many", "a_process_that_does_nothing", text, sizeof text);
    CHECK(WIFSIGNALED(status), "AMPLE_ABORT_CONF=1 does not end the process: status %#x", status);
}

CASE(the_options_in_force_are_printed_on_request) {
    char text[4096];
    CHECK(setenv("AMPLE_ISOLATE_LINES", "1", 1) == 0, "setenv");
    child_says("AMPLE_CONFIRM_CONF", "1", "a_process_that_does_nothing", text, sizeof text);
    CHECK(strstr(text, "ample: AMPLE_ISOLATE_LINES=1\n") != NULL, "it says: %s", text);
    CHECK(strstr(text, "ample: AMPLE_CACHE=1\n") != NULL, "it says: %s", text);
}

CASE(statistics_are_told_as_json_and_cut_off_where_there_is_no_room) {
    size_t (*statistics)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "ample_statistics_json");
    const char *(*version)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "ample_version");
    int (*trim)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "ample_trim");
    CHECK(statistics != NULL && version != NULL && trim != NULL, "the library lacks functions of its own");
    CHECK(strchr(version(), '.') != NULL, "version %s", version());
    void *large = malloc(5 << 20);
    char text[1024], cut[12];
    size_t length = statistics(text, sizeof text);
    CHECK(length == strlen(text) && text[0] == '{' && text[length - 1] == '}', "it says: %s", text);
    const char *place = strstr(text, "\"large_bytes\":");
    CHECK(place != NULL && strtoul(place + 14, NULL, 10) >= 5 << 20, "it says: %s", text);
    CHECK(statistics(cut, sizeof cut) >= length - 20 && strlen(cut) == sizeof cut - 1, "cut off: %s", cut);
    CHECK(statistics(NULL, 0) > 0, "no length without room");
    free(large);
    CHECK(trim() == 1, "nothing was given back");
}

CASE(statistics_are_printed_at_the_end_on_request) {
    char text[4096];
    int status = child_says("AMPLE_SHOW_STATS", "1", "a_process_that_does_nothing", text, sizeof text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
    CHECK(strstr(text, "active_bytes = ") != NULL, "it says: %s", text);
}
