/* glibc's thresholds: as long as nobody sets one, freed large blocks are kept and used again; whoever sets one ends that. Counted
 * are the calls into the system that give memory back or get it, and page faults. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "check.h"

enum { LARGE = 1 << 20, SMALLER = 300 << 10, ROUNDS = 100 };

static volatile unsigned calls;

/* The library's calls come here, since a program's own functions come before those of the C library. */
void *mmap(void *place, size_t size, int protection, int flags, int file, off_t offset) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return (void *)syscall(SYS_mmap, place, size, protection, flags, file, offset);
}

int munmap(void *place, size_t size) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return (int)syscall(SYS_munmap, place, size);
}

int madvise(void *place, size_t size, int advice) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return (int)syscall(SYS_madvise, place, size, advice);
}

/* Starts this case again with a variable set, unless it is set already. */
static void with(const char *name, const char *value, const char *this_case) {
    if (getenv(name) != NULL)
        return;
    CHECK(setenv(name, value, 1) == 0, "setenv");
    execl("/proc/self/exe", "/proc/self/exe", this_case, (char *)NULL);
    CHECK(0, "/proc/self/exe does not start");
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

struct cost {
    unsigned calls;
    long faults;
};

/* What it costs to allocate, use and free a block of `size` bytes again and again, once it was done a few times. */
static struct cost cost_of(size_t size) {
    struct cost before = {0, 0};
    /* So that a fault is one page. */
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "prctl");
    for (int round = -3; round < ROUNDS; round++) {
        if (round == 0)
            before = (struct cost){calls, faults()};
        unsigned char *block = malloc(size);
        CHECK(block != NULL, "no block of %zu bytes", size);
        fill(block, size, (unsigned)round);
        free(block);
    }
    return (struct cost){calls - before.calls, faults() - before.faults};
}

static void check_kept(size_t size) {
    struct cost cost = cost_of(size);
    CHECK(cost.calls <= 4 && cost.faults < 500, "%zu bytes: %u calls, %ld faults in %d rounds", size, cost.calls,
          cost.faults, ROUNDS);
}

static void check_returned(size_t size) {
    struct cost cost = cost_of(size);
    CHECK(cost.calls >= ROUNDS && cost.faults >= ROUNDS * (long)(size / 65536), "%zu bytes: %u calls, %ld faults in %d rounds",
          size, cost.calls, cost.faults, ROUNDS);
}

CASE(large_blocks_are_kept_as_long_as_nothing_is_set) {
    check_kept(LARGE);
    check_kept(16 * LARGE);
    check_kept(SMALLER);
}

CASE(a_threshold_set_by_mallopt_ends_that) {
    check_kept(LARGE);
    CHECK(mallopt(M_MMAP_THRESHOLD, 512 << 10) == 1, "mallopt");
    check_returned(LARGE);
    check_returned(16 * LARGE);
    check_kept(SMALLER);
    CHECK(mallopt(M_MMAP_THRESHOLD, 256 << 20) == 1, "mallopt");
    check_kept(LARGE);
}

CASE(a_threshold_set_by_a_variable_ends_that) {
    with("MALLOC_MMAP_THRESHOLD_", "524288", __func__);
    check_returned(LARGE);
    check_kept(SMALLER);
}

CASE(a_threshold_set_by_a_tunable_ends_that) {
    with("GLIBC_TUNABLES", "glibc.malloc.arena_max=2:glibc.malloc.mmap_threshold=0x80000", __func__);
    check_returned(LARGE);
    check_kept(SMALLER);
}

CASE(any_other_parameter_ends_that_too) {
    CHECK(mallopt(M_TOP_PAD, 64 << 10) == 1, "mallopt");
    check_returned(LARGE);
    check_returned(SMALLER);
    check_kept(100 << 10);
}

CASE(without_mappings_large_blocks_are_kept) {
    with("MALLOC_MMAP_MAX_", "0", __func__);
    check_kept(LARGE);
}

CASE(parameters_that_tune_nothing_end_nothing) {
    CHECK(mallopt(M_ARENA_MAX, 2) == 1 && mallopt(M_MXFAST, 64) == 1, "mallopt");
    check_kept(LARGE);
}

/* Bytes that stay resident when `count` blocks of a MiB, used, are freed. */
static size_t stays(unsigned count) {
    void *blocks[64];
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = malloc(LARGE);
        fill(blocks[i], LARGE, i);
    }
    size_t full = status_bytes("RssAnon:");
    for (unsigned i = 0; i < count; i++)
        free(blocks[i]);
    size_t left = status_bytes("RssAnon:");
    return (size_t)count * LARGE - (full > left ? full - left : 0);
}

CASE(free_memory_stays_up_to_the_trim_threshold) {
    CHECK(mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, 32 << 20) == 1 && mallopt(M_TOP_PAD, 4 << 20) == 1,
          "mallopt");
    size_t few = stays(20), many = stays(60);
    CHECK(few > 18u << 20, "of 20 MiB %zu bytes stay", few);
    CHECK(many < 34u << 20, "of 60 MiB %zu bytes stay", many);
    usleep(1500 * 1000);
    size_t before = status_bytes("RssAnon:");
    free(malloc(LARGE));
    CHECK(status_bytes("RssAnon:") + (1 << 20) > before, "age counts although a threshold is set");
    malloc_trim(0);
    CHECK(status_bytes("RssAnon:") < 4u << 20, "malloc_trim leaves %zu bytes", status_bytes("RssAnon:"));
}

CASE(trimming_can_be_turned_off) {
    CHECK(mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, -1) == 1, "mallopt");
    CHECK(stays(60) > 58u << 20, "free memory goes back");
}
