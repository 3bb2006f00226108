/* Programs that limit their own addresses, or lock all their memory: what is only reserved must not count. A case that this machine does not allow says
 * why and exits with 77. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"
#include "shortage.h"

/* Allocates 4 MiB at a time until it gets no more. */
static size_t all_that_comes(void) {
    enum { SIZE = 4 << 20, MOST = 1000 };
    static void *blocks[MOST];
    unsigned count = 0;
    while (count < MOST && (blocks[count] = malloc(SIZE)) != NULL) {
        fill(blocks[count], SIZE, count);
        count++;
    }
    CHECK(count < MOST && errno == ENOMEM, "there is no limit");
    for (unsigned i = 0; i < count; i++) {
        CHECK(mismatch(blocks[i], 0, SIZE, i) == SIZE, "block %u", i);
        free(blocks[i]);
    }
    return (size_t)count * SIZE;
}

static void live_with_few_addresses_from_now_on(int behind_its_back) {
    unsigned char *before = malloc(3 << 20);
    fill(before, 3 << 20, 1);
    limit_addresses(512u << 20, behind_its_back);
    CHECK(all_that_comes() > 380u << 20, "of 512 MiB of addresses only %zu come", all_that_comes());
    CHECK(mismatch(before, 0, 3 << 20, 1) == 3 << 20, "lost");
    free(before);
    free(NULL);
    malloc_trim(0);
    exercise((void *)3);
    pid_t child = fork();
    if (child == 0) {
        exercise((void *)4);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ends with %#x", status);
}

CASE(few_addresses_from_now_on) { live_with_few_addresses_from_now_on(0); }

CASE(few_addresses_from_now_on_by_another_hand) { live_with_few_addresses_from_now_on(1); }

static volatile int limited;

static void *exercise_across_the_limit(void *seed) {
    unsigned rounds = 0;
    for (int last = 0; !last; rounds++) {
        last = limited;
        exercise(seed);
    }
    return NULL;
}

CASE(few_addresses_from_now_on_in_several_threads) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        threads[i] = start_thread(exercise_across_the_limit, (void *)(i + 1));
    usleep(20000);
    limit_addresses(1u << 30, 0);
    for (uintptr_t i = 0; i < 4; i++)
        join_thread(start_thread(exercise, (void *)(i + 9)));
    limited = 1;
    for (unsigned i = 0; i < 4; i++)
        join_thread(threads[i]);
    exercise_with_threads();
    CHECK(all_that_comes() > 400u << 20, "of 1 GiB of addresses only %zu come", all_that_comes());
}

/* Locks what is there, and works on: memory comes and goes, in threads and children. */
static void live_with_locked_memory(int flags) {
    unsigned char *before = malloc(3 << 20);
    fill(before, 3 << 20, 1);
    size_t tables = status_bytes("VmPTE:");
    if (mlockall(flags) != 0)
        skip("mlockall: %s", strerror(errno));
    CHECK((flags & MCL_CURRENT) == 0 || status_bytes("VmLck:") < 128u << 20, "%zu bytes are locked", status_bytes("VmLck:"));
    CHECK(status_bytes("VmPTE:") < tables + (1u << 20), "%zu bytes of page tables", status_bytes("VmPTE:"));
    exercise_with_threads();
    CHECK(status_bytes("VmPTE:") < tables + (2u << 20), "%zu bytes of page tables", status_bytes("VmPTE:"));
    CHECK(mismatch(before, 0, 3 << 20, 1) == 3 << 20, "lost");
    free(before);
    free(NULL);
    pid_t child = fork();
    if (child == 0) {
        exercise_with_threads();
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ends with %#x", status);
    CHECK(munlockall() == 0, "munlockall");
    exercise((void *)5);
}

CASE(all_memory_is_locked) { live_with_locked_memory(MCL_CURRENT); }

CASE(all_memory_is_locked_from_now_on) { live_with_locked_memory(MCL_CURRENT | MCL_FUTURE); }

CASE(later_memory_is_locked) { live_with_locked_memory(MCL_FUTURE); }

CASE(memory_is_locked_where_little_may_be) {
    struct rlimit limit;
    free(malloc(100));
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0, "getrlimit");
    limit.rlim_cur = 64u << 20 < limit.rlim_max ? 64u << 20 : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
    if (getuid() == 0)
        CHECK(setresuid(65534, 65534, 65534) == 0, "setresuid");
    if (limit.rlim_cur < 64u << 20)
        skip("of memory only %zu bytes may be locked", (size_t)limit.rlim_cur);
    CHECK(mlockall(MCL_CURRENT) == 0, "%zu bytes are not enough to lock a small program", (size_t)limit.rlim_cur);
    exercise_with_threads();
}

/* Blocks of 5 MiB of which a page is locked now and then, and that are freed as they are. */
static void lock_and_free(void) {
    enum { COUNT = 20, SIZE = 5 << 20, EVERY = 7 };
    unsigned char *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = malloc(SIZE);
        fill(blocks[i], SIZE, i);
        if (i % EVERY == 0 && mlock(blocks[i], 1) != 0)
            skip("mlock: %s", strerror(errno));
    }
    for (unsigned i = 0; i < COUNT; i++)
        free(blocks[i]);
    malloc_trim(0);
}

CASE(memory_that_is_locked_as_it_is_freed_comes_back) {
    free(malloc(100));
    size_t before = status_bytes("VmRSS:");
    lock_and_free();
    CHECK(status_bytes("VmRSS:") < before + (4u << 20), "of 100 MiB %zu bytes are still there", status_bytes("VmRSS:"));
    lock_and_free();
    CHECK(status_bytes("VmRSS:") < before + (4u << 20), "of 100 MiB %zu bytes are still there", status_bytes("VmRSS:"));
    exercise_with_threads();
}

CASE(memory_that_is_free_stays_where_all_is_locked) {
    unsigned char *block = malloc(1 << 20);
    fill(block, 1 << 20, 1);
    if (mlockall(MCL_CURRENT) != 0)
        skip("mlockall: %s", strerror(errno));
    size_t locked = status_bytes("VmLck:");
    free(block);
    malloc_trim(0);
    CHECK(status_bytes("VmLck:") >= locked, "of %zu bytes %zu are still locked", locked, status_bytes("VmLck:"));
}
