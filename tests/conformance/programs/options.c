/* Options in the environment, and the library's own functions. */
#include "check.h"

#include <signal.h>
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

enum { HANDED = 20000, KEPT_OF = 8, HANDED_SIZE = 100, PAGE_OF = 4096 };
static uintptr_t kept[HANDED / KEPT_OF];
static pthread_barrier_t freed;

/* Frees all but each eighth of its blocks, and stays. */
static void *allocate_and_keep_an_eighth(void *unused) {
    static char *own[HANDED];
    for (unsigned i = 0; i < HANDED; i++)
        own[i] = malloc(HANDED_SIZE);
    for (unsigned i = 0; i < HANDED; i++)
        if (i % KEPT_OF == 0)
            kept[i / KEPT_OF] = (uintptr_t)own[i] / PAGE_OF;
        else
            free(own[i]);
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&freed);
    return unused;
}

static int by_number(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* Of a hundred blocks that this thread allocates, how many lie in pages with blocks of another thread, which freed most of them. */
static unsigned beside_anothers(void) {
    unsigned beside = 0;
    CHECK(pthread_barrier_init(&freed, NULL, 2) == 0, "barrier");
    pthread_t other = start_thread(allocate_and_keep_an_eighth, NULL);
    pthread_barrier_wait(&freed);
    qsort(kept, HANDED / KEPT_OF, sizeof *kept, by_number);
    for (unsigned i = 0; i < HANDED / 2; i++) {
        uintptr_t page = (uintptr_t)malloc(HANDED_SIZE) / PAGE_OF;
        beside += bsearch(&page, kept, HANDED / KEPT_OF, sizeof *kept, by_number) != NULL;
    }
    pthread_barrier_wait(&freed);
    join_thread(other);
    return beside * 100 / (HANDED / 2);
}

CASE(threads_of_one_arena_have_what_another_freed) {
    with("AMPLE_ARENAS", "1", __func__);
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        threads[i] = start_thread(allocate_and_free, (void *)(i + 1));
    for (unsigned i = 0; i < 3; i++)
        join_thread(threads[i]);
    unsigned beside = beside_anothers();
    CHECK(beside >= 50, "%u of 100 blocks lie in pages of another thread's", beside);
}

CASE(threads_have_no_pages_in_common_unless_asked_for) {
    unsigned beside = beside_anothers();
    CHECK(beside == 0, "%u of 100 blocks lie in pages of another thread's", beside);
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
    char text[16384], cut[12];
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

/* What a file says; NULL: there is none. */
static char *content_of(const char *path) {
    static char text[32768];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NULL;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

CASE(statistics_are_written_as_json_at_the_end) {
    char path[100], text[4096];
    snprintf(path, sizeof path, "/tmp/ample-statistics-%d-%%p.json", (int)getpid());
    int status = child_says("AMPLE_STATS_JSON", path, "a_process_that_does_nothing", text, sizeof text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0 && text[0] == 0, "status %#x; it says: %s", status, text);
    char command[200];
    snprintf(command, sizeof command, "cat /tmp/ample-statistics-%d-[0-9]*.json && rm /tmp/ample-statistics-%d-*", (int)getpid(), (int)getpid());
    FILE *output = popen(command, "r");
    CHECK(output != NULL, "popen");
    text[fread(text, 1, sizeof text - 1, output)] = 0;
    CHECK(pclose(output) == 0, "no file with the number of the process");
    CHECK(strncmp(text, "{\"allocated_bytes\":", 19) == 0 && strstr(text, "]}\n") != NULL, "it says: %s", text);
    child_says("AMPLE_STATS_JSON", "/nonexistent/folder/file", "a_process_that_does_nothing", text, sizeof text);
    CHECK(strncmp(text, "ample: the file that AMPLE_STATS_JSON names cannot be created", 61) == 0 && strstr(text, "allocated_bytes = ") != NULL,
          "where the file cannot be written it says: %s", text);
}

static void *sleep_in_calls(void *ends) {
    char byte;
    return read(*(int *)ends, &byte, 1) == 0 ? ends : NULL;
}

CASE(a_signal_asks_for_statistics) {
    static char path[100];
    if (getenv("AMPLE_STATS_SIGNAL") == NULL) {
        snprintf(path, sizeof path, "/tmp/ample-asked-%d.json", (int)getpid());
        CHECK(setenv("AMPLE_STATS_JSON", path, 1) == 0, "setenv");
    }
    with("AMPLE_STATS_SIGNAL", "10", __func__);
    const char *file = getenv("AMPLE_STATS_JSON");
    int ends[2];
    CHECK(pipe(ends) == 0, "pipe");
    pthread_t thread = start_thread(sleep_in_calls, ends);
    for (unsigned round = 0; round < 3; round++) {
        void *large = malloc((round + 5) << 20);
        unlink(file);
        CHECK(kill(getpid(), SIGUSR1) == 0, "kill");
        size_t told = 0;
        for (unsigned looks = 0; looks < 200 && told < (round + 5) << 20; looks++) {
            usleep(50 * 1000);
            const char *text = content_of(file), *place = text == NULL ? NULL : strstr(text, "\"large_bytes\":");
            told = place == NULL ? 0 : strtoul(place + 14, NULL, 10);
        }
        CHECK(told >= (round + 5) << 20, "after ten seconds the file tells of %zu bytes", told);
        free(large);
    }
    /* Calls that the signal interrupts are taken up again. */
    close(ends[1]);
    CHECK(join_thread(thread) == ends, "a read was interrupted");
    unlink(file);
    /* Nothing is left behind at the end. */
    _exit(0);
}

CASE(above_the_soft_limit_memory_goes_back_at_once) {
    with("AMPLE_SOFT_LIMIT", "32M", __func__);
    enum { COUNT = 60 };
    void *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = malloc(1 << 20);
        fill(blocks[i], 1 << 20, i);
    }
    size_t full = status_bytes("RssAnon:");
    for (unsigned i = 0; i < COUNT / 2 - 4; i++)
        free(blocks[i]);
    size_t left = status_bytes("RssAnon:");
    CHECK(full - left > (COUNT / 2 - 5) << 20, "%zu bytes of %zu stay", left, full);
    for (unsigned i = COUNT / 2 - 4; i < COUNT; i++)
        free(blocks[i]);
}

CASE(the_library_lists_its_options) {
    size_t (*options)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "ample_options_json");
    CHECK(options != NULL && check_is_served((void *)options), "no ample_options_json");
    size_t length = options(NULL, 0);
    char *text = malloc(length + 1);
    CHECK(options(text, length + 1) == length && strlen(text) == length, "its length changes");
    CHECK(text[0] == '[' && text[length - 1] == ']' && strstr(text, "\"AMPLE_SOFT_LIMIT\"") != NULL, "it says: %s", text);
    free(text);
}
