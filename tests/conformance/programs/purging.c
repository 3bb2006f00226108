/* Memory that comes back although the program does nothing, in a process of several threads. Each case waits until as much is
 * back as must be, and fails after half a minute. */
#include <inttypes.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"

enum { SIZE = 512, COUNT = (64 << 20) / SIZE };
static unsigned char *blocks[COUNT];

/* Parts of memory that went back to the system one by one, and calls that gave back many. */
static volatile unsigned single, together;

/* The library's calls come here, since a program's own functions come before those of the C library. */
int madvise(void *place, size_t size, int advice) {
    if (advice == MADV_DONTNEED)
        __atomic_add_fetch(&single, 1, __ATOMIC_RELAXED);
    return (int)syscall(SYS_madvise, place, size, advice);
}

long syscall(long number, ...) {
    long a[6];
    va_list list;
    va_start(list, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long result = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_process_madvise && result > 0)
        __atomic_add_fetch(&together, 1, __ATOMIC_RELAXED);
    return result;
}

/* What a thread has worked is how the library knows what huge pages cost, which may be much on a virtual machine. */
static volatile bool are_cheap;

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (are_cheap && clock == CLOCK_THREAD_CPUTIME_ID) {
        *time = (struct timespec){0};
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}

/* Resident bytes of this process: those of each mapping, counted page by page. On Linux 6.1 `statm` and `status` may tell 64 pages less or more for each thread, and
 * `smaps_rollup` leaves mappings out while others change them. */
static size_t resident(void) {
    char line[300];
    FILE *mappings = fopen("/proc/self/smaps", "r");
    CHECK(mappings != NULL, "/proc/self/smaps");
    size_t kilobytes = 0, more;
    while (fgets(line, sizeof line, mappings) != NULL)
        if (sscanf(line, "Rss: %zu kB", &more) == 1)
            kilobytes += more;
    fclose(mappings);
    CHECK(kilobytes != 0, "Rss is not in /proc/self/smaps");
    return kilobytes << 10;
}

static pthread_barrier_t started;

static void *sleep_for_ever(void *allocates) {
    if (allocates)
        free(malloc(1));
    pthread_barrier_wait(&started);
    for (;;)
        pause();
    return allocates;
}

/* Bytes of mappings that are marked for huge pages. */
static size_t marked(void) {
    char line[300];
    FILE *mappings = fopen("/proc/self/smaps", "r");
    CHECK(mappings != NULL, "/proc/self/smaps");
    size_t length = 0, bytes = 0;
    while (fgets(line, sizeof line, mappings) != NULL) {
        uintptr_t start, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2)
            length = end - start;
        else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL)
            bytes += length;
    }
    fclose(mappings);
    return bytes;
}

static size_t marked_when_full;

/* 64 MiB of blocks. */
static unsigned count = COUNT;

/* So many of the pages between the last live blocks are locked before they are freed: the helper thread looks there first. */
static unsigned locked;

/* Fills `count` blocks, frees all but one in `live` (0: all), and waits until no more than `allowed` bytes of them are resident. The
 * other thread `allocates`, too, or never asks for memory. */
static void free_and_wait(unsigned live, size_t allowed, bool allocates) {
    pthread_barrier_init(&started, NULL, 2);
    start_thread(sleep_for_ever, allocates ? &started : NULL);
    pthread_barrier_wait(&started);
    memset(blocks, 1, sizeof blocks);
    size_t before = resident();
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = malloc(SIZE);
        fill(blocks[i], SIZE, i);
    }
    size_t full = resident();
    CHECK(full - before >= (size_t)count * SIZE, "only %zu bytes became resident", full - before);
    marked_when_full = marked();
    for (unsigned i = 0; i < locked; i++)
        if (mlock(blocks[(count / live - 1 - i) * live + live / 2], 1) != 0)
            skip("mlock: %s", strerror(errno));
    for (unsigned i = 0; i < count; i++)
        if (live == 0 || i % live != 0)
            free(blocks[i]);
    size_t left = 0;
    for (unsigned tenths = 0; tenths < 300; tenths++) {
        left = resident() - before;
        if (left <= allowed)
            break;
        usleep(100000);
    }
    CHECK(left <= allowed, "%zu bytes are still resident, %zu may be", left, allowed);
    for (unsigned i = 0; live != 0 && i < count; i += live)
        CHECK(mismatch(blocks[i], 0, SIZE, i) == SIZE, "live block %u lost its content", i);
}

CASE(free_memory_comes_back_by_itself) { free_and_wait(0, 3 << 20, true); }

/* One block in fifty is live, so that hardly a span is empty: one page in six holds one. */
CASE(pages_between_live_blocks_come_back_by_themselves) { free_and_wait(50, 16 << 20, true); }

/* The system refuses a call for many parts the first of which is locked. That must not end such calls. */
CASE(pages_between_live_blocks_come_back_together_although_some_were_locked) {
    if (syscall(SYS_process_madvise, -10001, NULL, 0L, MADV_DONTNEED, 0L) != 0)
        skip("process_madvise does not serve the calling process: %s", strerror(errno));
    locked = 300;
    free_and_wait(50, 16 << 20, true);
    CHECK(together > 10 && single < COUNT / 50 / 2, "%u calls for many parts, %u for one", together, single);
}

/* Where only part of what was marked was used: what is marked the system fills again, although it was given back. */
CASE(what_was_given_back_is_marked_for_huge_pages_no_more) {
    /* An emulator of processors has some of its own. */
    size_t others = marked();
    are_cheap = true;
    count = COUNT / 4 * 3;
    free_and_wait(0, 3 << 20, true);
    if (marked_when_full == others)
        skip("the system gives no huge pages");
    for (unsigned tenths = 0; marked() > others; tenths++) {
        CHECK(tenths < 50, "%zu bytes are marked for huge pages", marked() - others);
        usleep(100000);
    }
}

/* As in a server whose main thread does all the work. */
CASE(free_memory_comes_back_where_only_one_thread_allocates) { free_and_wait(0, 3 << 20, false); }

/* A program of one thread may rely on being one (setns, unshare). */
CASE(a_program_of_one_thread_stays_one) {
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            blocks[i] = malloc(SIZE);
            fill(blocks[i], SIZE, i);
        }
        for (unsigned i = 0; i < COUNT; i++)
            free(blocks[i]);
    }
    CHECK(thread_count() == 1, "%u threads", thread_count());
}

/* Frees all blocks of `size` bytes but one in `live` in a program of one thread, where nobody looks around and which may sleep from now on: no more than `allowed` bytes
 * of them are resident. */
static void free_alone(size_t size, unsigned live, size_t allowed) {
    sleep(1);
    unsigned threads = thread_count();
    memset(blocks, 1, sizeof blocks);
    size_t before = resident();
    for (unsigned i = 0; i < COUNT; i++)
        fill(blocks[i] = malloc(size), size, i);
    for (unsigned i = 0; i < COUNT; i++)
        if (i % live != 0)
            free(blocks[i]);
    size_t left = resident() - before;
    CHECK(left <= allowed, "%zu bytes are resident, %zu may be", left, allowed);
    CHECK(thread_count() == threads, "%u threads instead of %u", thread_count(), threads);
    for (unsigned i = 0; i < COUNT; i += live)
        CHECK(mismatch(blocks[i], 0, size, i) == size, "live block %u lost its content", i);
}

/* One page in six holds a live block. */
CASE(most_of_what_one_thread_freed_comes_back_at_once) { free_alone(SIZE, 50, 24 << 20); }

/* Of 144 MiB; below 8 MiB nothing more goes back. */
CASE(nearly_all_of_what_one_thread_freed_comes_back_at_once) { free_alone(1152, COUNT, 12 << 20); }

/* A server that has just loaded, and whose processes may all sleep from now on. Half is live, so that nothing goes back before. */
CASE(what_is_free_goes_back_before_a_fork) {
    size_t before = resident();
    for (unsigned i = 0; i < COUNT; i++)
        fill(blocks[i] = malloc(SIZE), SIZE, i);
    size_t large = 24 << 20;
    unsigned char *text = malloc(large);
    fill(text, large, 1);
    for (unsigned i = 0; i < COUNT / 2; i++)
        if (i % 50 != 0)
            free(blocks[i]);
    free(text);
    size_t full = resident() - before;
    CHECK(full > (64 << 20), "%zu bytes only are resident before the fork", full);
    size_t allowed = (32 + 12) << 20;
    pid_t child = fork();
    size_t left = resident() - before;
    CHECK(left <= allowed, "%zu bytes are resident, %zu may be", left, allowed);
    for (unsigned i = 0; i < COUNT; i += 50)
        CHECK(mismatch(blocks[i], 0, SIZE, i) == SIZE, "live block %u lost its content", i);
    if (child == 0)
        _exit(0);
    CHECK(end_of(child) == 0, "the child");
}

/* 100 MB of blocks of each size: what is resident is what the allocator knows of them, and no page of theirs. */
CASE(blocks_that_nobody_touches_are_not_in_memory) {
    enum { BYTES = 100000000 };
    static const size_t sizes[] = {64, 500, 1000, 4000, 5000};
    static void *untouched[BYTES / 64];
    memset(untouched, 1, sizeof untouched);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t before = status_bytes("RssAnon:");
        for (size_t k = 0; k < BYTES / sizes[i]; k++)
            CHECK((untouched[k] = malloc(sizes[i])) != NULL, "no block of %zu bytes", sizes[i]);
        size_t more = status_bytes("RssAnon:") - before;
        CHECK(more <= BYTES / 16, "%zu bytes are resident for blocks of %zu", more, sizes[i]);
    }
}

/* Bytes of huge pages in the mapping that holds `address`. */
static size_t huge_pages_around(const void *address) {
    char line[300];
    FILE *mappings = fopen("/proc/self/smaps", "r");
    CHECK(mappings != NULL, "/proc/self/smaps");
    int found = 0;
    size_t kilobytes = 0;
    while (fgets(line, sizeof line, mappings) != NULL) {
        uintptr_t start, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2)
            found = start <= (uintptr_t)address && (uintptr_t)address < end;
        else if (found)
            sscanf(line, "AnonHugePages: %zu kB", &kilobytes);
    }
    fclose(mappings);
    return kilobytes << 10;
}

/* Where the system gives huge pages to all memory, one for the first blocks would be two megabytes. */
CASE(a_small_program_has_no_huge_pages) {
    unsigned char *block = NULL;
    for (unsigned i = 0; i < 1000; i++) {
        block = malloc(100);
        fill(block, 100, i);
    }
    CHECK(huge_pages_around(block) == 0, "%zu bytes in huge pages", huge_pages_around(block));
}
