/* Every function of the C interface: that the library defines it, and that it does its plain job. */
#include "check.h"

/* C23's names; no header of glibc 2.36 declares them. */
typedef void (*free_sized_function)(void *, size_t);
typedef void (*free_aligned_sized_function)(void *, size_t, size_t);

static void *lookup(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    CHECK(function != NULL, "%s is not defined", name);
    CHECK(check_is_served(function), "%s is not served by %s", name, check_library());
    return function;
}

/* Writes and reads every byte. */
static void use(void *block, size_t size) {
    CHECK(block != NULL, "no block of %zu bytes", size);
    CHECK((uintptr_t)block % 16 == 0, "%p is not aligned to 16", block);
    fill(block, size, 3);
    CHECK(mismatch(block, 0, size, 3) == size, "content lost at %p", block);
}

CASE(the_library_defines_every_function) {
    static const char *const names[] = {
        "malloc",        "free",     "calloc", "realloc", "reallocarray",       "posix_memalign",
        "aligned_alloc", "memalign", "valloc", "pvalloc", "malloc_usable_size", "free_sized",
        "free_aligned_sized",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        lookup(names[i]);
}

CASE(malloc_and_free) {
    for (size_t size = 1; size < 100000; size += 37) {
        void *block = malloc(size);
        use(block, size);
        free(block);
    }
}

CASE(malloc_gives_blocks_that_do_not_overlap) {
    enum { COUNT = 20000 };
    static unsigned char *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = malloc(1 + i % 700);
        CHECK(blocks[i] != NULL, "no block of %u bytes", 1 + i % 700);
        fill(blocks[i], 1 + i % 700, i);
    }
    for (unsigned i = 0; i < COUNT; i++)
        CHECK(mismatch(blocks[i], 0, 1 + i % 700, i) == 1 + i % 700, "block %u was overwritten", i);
    for (unsigned i = 0; i < COUNT; i++)
        free(blocks[i]);
}

CASE(calloc_gives_zeros) {
    for (size_t size = 1; size < 100000; size += 37) {
        unsigned char *block = calloc(size, 3);
        CHECK(block != NULL, "no block of 3 * %zu bytes", size);
        for (size_t i = 0; i < size * 3; i++)
            CHECK(block[i] == 0, "byte %zu of %zu is %d", i, size * 3, block[i]);
        use(block, size * 3);
        free(block);
    }
}

CASE(realloc_grows_and_shrinks) {
    unsigned char *block = realloc(NULL, 100);
    use(block, 100);
    block = realloc(block, 50000);
    CHECK(block != NULL && mismatch(block, 0, 100, 3) == 100, "content lost by growing");
    use(block, 50000);
    block = realloc(block, 10);
    CHECK(block != NULL && mismatch(block, 0, 10, 3) == 10, "content lost by shrinking");
    free(block);
}

CASE(reallocarray_grows_and_shrinks) {
    unsigned char *block = reallocarray(NULL, 10, 10);
    use(block, 100);
    block = reallocarray(block, 1000, 50);
    CHECK(block != NULL && mismatch(block, 0, 100, 3) == 100, "content lost by growing");
    use(block, 50000);
    block = reallocarray(block, 5, 2);
    CHECK(block != NULL && mismatch(block, 0, 10, 3) == 10, "content lost by shrinking");
    free(block);
}

CASE(posix_memalign_aligns) {
    for (size_t alignment = sizeof(void *); alignment <= 65536; alignment *= 2) {
        void *block = NULL;
        int error = posix_memalign(&block, alignment, 1000);
        CHECK(error == 0, "alignment %zu: error %d", alignment, error);
        CHECK((uintptr_t)block % alignment == 0, "%p is not aligned to %zu", block, alignment);
        use(block, 1000);
        free(block);
    }
}

CASE(aligned_alloc_aligns) {
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        void *block = aligned_alloc(alignment, 1000);
        CHECK((uintptr_t)block % alignment == 0, "%p is not aligned to %zu", block, alignment);
        use(block, 1000);
        free(block);
    }
}

CASE(memalign_aligns) {
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        void *block = memalign(alignment, 1000);
        CHECK((uintptr_t)block % alignment == 0, "%p is not aligned to %zu", block, alignment);
        use(block, 1000);
        free(block);
    }
}

CASE(valloc_aligns_to_pages) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t size = 1; size < 5 * page; size += 531) {
        void *block = valloc(size);
        CHECK((uintptr_t)block % page == 0, "%p is not aligned to a page", block);
        use(block, size);
        free(block);
    }
}

CASE(pvalloc_aligns_to_pages_and_gives_whole_ones) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t size = 1; size < 5 * page; size += 531) {
        void *block = pvalloc(size);
        size_t rounded = (size + page - 1) / page * page;
        CHECK((uintptr_t)block % page == 0, "%p is not aligned to a page", block);
        CHECK(malloc_usable_size(block) >= rounded, "%zu bytes of whole pages", malloc_usable_size(block));
        use(block, rounded);
        free(block);
    }
}

CASE(malloc_usable_size_covers_the_request) {
    for (size_t size = 1; size < 100000; size += 37) {
        void *block = malloc(size);
        CHECK(malloc_usable_size(block) >= size, "%zu of %zu bytes", malloc_usable_size(block), size);
        free(block);
    }
    CHECK(malloc_usable_size(NULL) == 0, "NULL has %zu usable bytes", malloc_usable_size(NULL));
}

CASE(free_sized_frees) {
    free_sized_function free_sized = (free_sized_function)lookup("free_sized");
    free_sized(NULL, 10);
    size_t before = 0;
    for (unsigned round = 0; round < 200; round++) {
        for (size_t size = 0; size < 300000; size = size * 9 / 8 + 1) {
            void *block = round % 2 == 0 ? malloc(size) : calloc(size, 1);
            use(block, size);
            free_sized(block, size);
        }
        if (round == 20)
            before = status_bytes("VmRSS:");
    }
    CHECK(status_bytes("VmRSS:") < before + (4u << 20), "blocks are not reused after free_sized");
}

CASE(free_aligned_sized_frees) {
    free_aligned_sized_function free_aligned_sized =
        (free_aligned_sized_function)lookup("free_aligned_sized");
    free_aligned_sized(NULL, 64, 128);
    size_t before = 0;
    for (unsigned round = 0; round < 200; round++) {
        for (size_t alignment = 16; alignment <= 65536; alignment *= 2) {
            void *block = aligned_alloc(alignment, alignment * 2);
            use(block, alignment * 2);
            free_aligned_sized(block, alignment, alignment * 2);
        }
        if (round == 20)
            before = status_bytes("VmRSS:");
    }
    CHECK(status_bytes("VmRSS:") < before + (4u << 20), "blocks are not reused after free_aligned_sized");
}
