/* Requests that cannot be met: NULL, ENOMEM, nothing else touched. And errno where all went well. */
#include <sys/resource.h>

#include "check.h"

static const size_t too_large[] = {
    (size_t)PTRDIFF_MAX + 1, SIZE_MAX,      SIZE_MAX - 1,    SIZE_MAX - 15,
    SIZE_MAX - 16,           SIZE_MAX - 31, SIZE_MAX - 4094, SIZE_MAX - 4095,
    SIZE_MAX - 4096,         SIZE_MAX - 65536, SIZE_MAX / 2 + 4096, (size_t)PTRDIFF_MAX,
    (size_t)PTRDIFF_MAX - 65536, (size_t)1 << 62, (size_t)1 << 56, (size_t)1 << 48,
};
enum { TOO_LARGE = sizeof too_large / sizeof *too_large };

/* Evaluates an allocation that must fail. */
#define CHECK_FAILS(allocation, size)                                                      \
    do {                                                                                   \
        errno = 0;                                                                         \
        CHECK((allocation) == NULL, "a block of %#zx bytes", (size_t)(size));        \
        CHECK(errno == ENOMEM, "not ENOMEM for %#zx bytes", (size_t)(size));               \
    } while (0)

/* The heap is in order: small and large blocks can be had and used. */
static void check_heap(void) {
    for (size_t size = 1; size < (4u << 20); size *= 3) {
        unsigned char *block = malloc(size);
        CHECK(block != NULL, "no block of %zu bytes after a failure", size);
        memset(block, 1, size);
        free(block);
    }
}

CASE(malloc_of_too_much_fails) {
    for (size_t i = 0; i < TOO_LARGE; i++)
        CHECK_FAILS(malloc(too_large[i]), too_large[i]);
    check_heap();
}

CASE(calloc_of_too_much_fails) {
    for (size_t i = 0; i < TOO_LARGE; i++) {
        CHECK_FAILS(calloc(1, too_large[i]), too_large[i]);
        CHECK_FAILS(calloc(too_large[i], 1), too_large[i]);
    }
    check_heap();
}

CASE(calloc_overflow_fails) {
    static const size_t factors[][2] = {
        {SIZE_MAX / 2, 3},      {3, SIZE_MAX / 2},      {SIZE_MAX / 2 + 1, 2}, {SIZE_MAX, SIZE_MAX},
        {(size_t)1 << 32, (size_t)1 << 32}, {SIZE_MAX / 16 + 1, 16},
        {((size_t)1 << 32) + 1, (size_t)1 << 32}, {SIZE_MAX / 64 + 2, 64},
    };
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        CHECK_FAILS(calloc(factors[i][0], factors[i][1]), factors[i][0]);
    check_heap();
}

CASE(realloc_of_too_much_fails_and_keeps_the_block) {
    static const size_t held[] = {1, 100, 5000, 100000, 3u << 20};
    for (size_t h = 0; h < sizeof held / sizeof *held; h++) {
        void *block = malloc(held[h]);
        fill(block, held[h], 9);
        for (size_t i = 0; i < TOO_LARGE; i++) {
            CHECK_FAILS(realloc(NULL, too_large[i]), too_large[i]);
            CHECK_FAILS(realloc(block, too_large[i]), too_large[i]);
            CHECK(mismatch(block, 0, held[h], 9) == held[h], "the old block of %zu is spoilt", held[h]);
        }
        free(block);
    }
    check_heap();
}

CASE(reallocarray_overflow_fails_and_keeps_the_block) {
    void *block = malloc(1000);
    fill(block, 1000, 9);
    CHECK_FAILS(reallocarray(block, SIZE_MAX / 2, 3), SIZE_MAX);
    CHECK_FAILS(reallocarray(block, (size_t)1 << 32, (size_t)1 << 32), SIZE_MAX);
    CHECK_FAILS(reallocarray(block, SIZE_MAX, SIZE_MAX), SIZE_MAX);
    CHECK_FAILS(reallocarray(NULL, SIZE_MAX / 2, 3), SIZE_MAX);
    for (size_t i = 0; i < TOO_LARGE; i++) {
        CHECK_FAILS(reallocarray(block, 1, too_large[i]), too_large[i]);
        CHECK_FAILS(reallocarray(block, too_large[i], 1), too_large[i]);
    }
    CHECK(mismatch(block, 0, 1000, 9) == 1000, "the old block is spoilt");
    free(block);
    check_heap();
}

CASE(aligned_requests_of_too_much_fail) {
    for (size_t i = 0; i < TOO_LARGE; i++) {
        for (size_t alignment = sizeof(void *); alignment <= (1u << 30); alignment *= 2) {
            void *untouched = &untouched;
            CHECK_FAILS(aligned_alloc(alignment, too_large[i]), too_large[i]);
            CHECK_FAILS(memalign(alignment, too_large[i]), too_large[i]);
            int error = posix_memalign(&untouched, alignment, too_large[i]);
            CHECK(error == ENOMEM, "posix_memalign(%zu, %#zx): %d", alignment, too_large[i], error);
            CHECK(untouched == &untouched, "posix_memalign wrote a pointer although it failed");
        }
        CHECK_FAILS(valloc(too_large[i]), too_large[i]);
        CHECK_FAILS(pvalloc(too_large[i]), too_large[i]);
    }
    check_heap();
}

CASE(success_leaves_errno_alone) {
    errno = 77;
    for (size_t size = 0; size < (64u << 20); size = size * 5 / 4 + 1) {
        void *block = malloc(size);
        CHECK(block != NULL && errno == 77, "malloc(%zu)", size);
        block = realloc(block, size * 2 + 1);
        CHECK(block != NULL && errno == 77, "realloc to %zu", size * 2 + 1);
        block = realloc(block, size / 2 + 1);
        CHECK(block != NULL && errno == 77, "realloc to %zu", size / 2 + 1);
        (void)malloc_usable_size(block);
        free(block);
        CHECK(errno == 77, "free after malloc(%zu)", size);
        block = calloc(1, size);
        CHECK(block != NULL && errno == 77, "calloc(1, %zu)", size);
        free(block);
        CHECK(errno == 77, "free after calloc(1, %zu)", size);
        block = aligned_alloc(4096, size);
        CHECK(block != NULL && errno == 77, "aligned_alloc(4096, %zu)", size);
        free(block);
        CHECK(posix_memalign(&block, 1u << 20, size) == 0 && errno == 77, "posix_memalign of %zu", size);
        free(block);
        CHECK(errno == 77, "free after posix_memalign of %zu", size);
    }
}

static void *allocate_with_errno(void *unused) {
    (void)unused;
    errno = 77;
    void *block = malloc(100);
    CHECK(block != NULL && errno == 77, "a thread's first malloc changes errno");
    free(block);
    CHECK(errno == 77, "a thread's first free changes errno");
    return NULL;
}

CASE(the_first_call_of_a_thread_leaves_errno_alone) {
    for (unsigned i = 0; i < 100; i++)
        join_thread(start_thread(allocate_with_errno, NULL));
}

/* The address space ends: NULL and ENOMEM, and all that was given stays good. */
static void exhaust(size_t size) {
    struct node {
        struct node *next;
    } *blocks = NULL, *block;
    struct rlimit limit, unlimited;
    CHECK(getrlimit(RLIMIT_AS, &unlimited) == 0, "getrlimit");
    limit = unlimited;
    limit.rlim_cur = status_bytes("VmSize:") + (256u << 20);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
    size_t count = 0, freed = 0;
    errno = 0;
    while ((block = malloc(size)) != NULL) {
        memset(block, 1, size < 4096 ? size : 4096);
        block->next = blocks;
        blocks = block;
        count++;
        CHECK(count * size <= (512u << 20), "512 MiB in 256 MiB of address space");
    }
    CHECK(errno == ENOMEM, "malloc(%zu) failed after %zu blocks", size, count);
    CHECK(count * size >= (64u << 20), "only %zu blocks of %zu in 256 MiB of address space", count, size);
    while (blocks != NULL && freed++ < count / 2) {
        block = blocks->next;
        free(blocks);
        blocks = block;
    }
    block = malloc(size);
    CHECK(block != NULL, "no block of %zu although half were freed", size);
    free(block);
    CHECK(setrlimit(RLIMIT_AS, &unlimited) == 0, "setrlimit");
    while (blocks != NULL) {
        block = blocks->next;
        free(blocks);
        blocks = block;
    }
    check_heap();
}

CASE(exhaustion_by_small_blocks_is_survived) { exhaust(1000); }
CASE(exhaustion_by_medium_blocks_is_survived) { exhaust(20000); }
CASE(exhaustion_by_large_blocks_is_survived) { exhaust(1u << 20); }

/* A block that is freed twice ends the program; a handler that tells of it, as crash reporters do, may allocate. */
static void tell(int number) {
    (void)number;
    for (size_t size = 16; size < 100000; size += size / 4)
        free(memset(malloc(size), 1, size));
    _exit(3);
}

CASE(a_handler_of_sigabrt_allocates) {
    enum { BLOCKS = 20000 };
    static void *blocks[BLOCKS];
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, tell);
        for (unsigned i = 0; i < BLOCKS; i++)
            blocks[i] = malloc(48);
        for (unsigned i = 0; i < 2 * BLOCKS; i++)
            free(blocks[i % BLOCKS]);
        _exit(4);
    }
    int status = end_of(child);
    CHECK(status != -1, "the handler waits for ever");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3, "it ends with status %#x", (unsigned)status);
}
