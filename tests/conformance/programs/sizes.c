/* Sizes: nothing at all, every small size, every boundary, a gibibyte. */
#include "check.h"

/* The next size to try: every one while small, then 3 % more each time. */
static size_t next_size(size_t size) { return size + 1 + (size < 2048 ? 0 : size / 32); }

CASE(malloc_of_zero_gives_distinct_blocks) {
    void *first = malloc(0), *second = malloc(0);
    CHECK(first != NULL && second != NULL, "malloc(0) is NULL");
    CHECK(first != second, "two blocks at %p", first);
    CHECK((uintptr_t)first % 16 == 0, "%p is not aligned to 16", first);
    free(first);
    free(second);
}

CASE(calloc_of_zero_gives_distinct_blocks) {
    size_t zero = 0;
    void *blocks[] = {calloc(0, 8), calloc(8, 0), calloc(zero, zero), calloc(0, SIZE_MAX)};
    for (size_t i = 0; i < 4; i++) {
        CHECK(blocks[i] != NULL, "calloc of nothing (%zu) is NULL", i);
        for (size_t j = 0; j < i; j++)
            CHECK(blocks[i] != blocks[j], "two blocks at %p", blocks[i]);
    }
    for (size_t i = 0; i < 4; i++)
        free(blocks[i]);
}

CASE(realloc_to_zero_frees_and_gives_null) {
    errno = 77;
    CHECK(realloc(malloc(100), 0) == NULL, "realloc(p, 0) is not NULL");
    CHECK(reallocarray(malloc(100), 0, 8) == NULL, "reallocarray(p, 0, 8) is not NULL");
    CHECK(reallocarray(malloc(100), 8, 0) == NULL, "reallocarray(p, 8, 0) is not NULL");
    CHECK(errno == 77, "errno has changed");
    for (unsigned i = 0; i < 1000; i++)
        CHECK(realloc(malloc(1 << 20), 0) == NULL, "realloc(p, 0) is not NULL");
    for (unsigned i = 0; i < 100000; i++) {
        unsigned char *block = malloc(5000);
        memset(block, 1, 5000);
        CHECK(realloc(block, 0) == NULL, "realloc(p, 0) is not NULL");
    }
    CHECK(status_bytes("VmRSS:") < (64u << 20), "realloc(p, 0) does not free");
}

CASE(realloc_of_null_is_malloc) {
    for (size_t size = 0; size < 3000000; size = next_size(size)) {
        unsigned char *block = realloc(NULL, size);
        CHECK(block != NULL, "realloc(NULL, %zu) is NULL", size);
        CHECK((uintptr_t)block % 16 == 0, "%p is not aligned to 16", (void *)block);
        memset(block, 1, size);
        free(block);
    }
    void *block = reallocarray(NULL, 0, 8);
    CHECK(block != NULL, "reallocarray(NULL, 0, 8) is NULL");
    free(block);
}

CASE(free_of_null_does_nothing) {
    errno = 77;
    for (unsigned i = 0; i < 1000; i++)
        free(NULL);
    CHECK(errno == 77, "errno has changed");
}

CASE(valloc_and_pvalloc_of_zero_give_page_aligned_blocks) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *blocks[] = {valloc(0), valloc(0), pvalloc(0), pvalloc(0)};
    for (size_t i = 0; i < 4; i++) {
        CHECK(blocks[i] != NULL, "valloc or pvalloc (%zu) of zero is NULL", i);
        CHECK((uintptr_t)blocks[i] % page == 0, "%p is not aligned to a page", blocks[i]);
        for (size_t j = 0; j < i; j++)
            CHECK(blocks[i] != blocks[j], "two blocks at %p", blocks[i]);
    }
    for (size_t i = 0; i < 4; i++)
        free(blocks[i]);
}

CASE(every_block_is_aligned_to_16) {
    for (size_t size = 0; size <= 70000; size++) {
        void *blocks[] = {malloc(size), calloc(1, size), realloc(malloc(1), size + 1)};
        for (size_t i = 0; i < 3; i++) {
            CHECK(blocks[i] != NULL && (uintptr_t)blocks[i] % 16 == 0, "%p for %zu bytes", blocks[i], size);
            free(blocks[i]);
        }
    }
    for (size_t size = 70000; size < (64u << 20); size += size / 29) {
        void *block = malloc(size);
        CHECK(block != NULL && (uintptr_t)block % 16 == 0, "%p for %zu bytes", block, size);
        free(block);
    }
}

/* Zeros where there was something else before, with blocks of the size in use at both sides. */
CASE(calloc_gives_zeros_in_used_memory) {
    enum { MOST = 64 };
    for (size_t size = 1; size < (12u << 20); size = next_size(size) + size / 8) {
        unsigned char *blocks[MOST];
        size_t count = (4u << 20) / size;
        count = count > MOST ? MOST : count < 2 ? 2 : count;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = malloc(size);
            CHECK(blocks[i] != NULL, "no block of %zu bytes", size);
            memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
        }
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
        for (size_t i = 0; i < count; i++) {
            blocks[i] = calloc(1, size);
            CHECK(blocks[i] != NULL, "no block of %zu bytes", size);
            for (size_t at = 0; at < size; at++)
                CHECK(blocks[i][at] == 0, "byte %zu of %zu is %d", at, size, blocks[i][at]);
        }
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
    }
}

/* A realloc may move pages instead of copying; what the block leaves behind is used, given back and asked for again. */
CASE(calloc_gives_zeros_where_realloc_moved_a_block_away) {
    enum { BLOCKS = 16, SIZE = 2 << 20 };
    unsigned char *blocks[BLOCKS], *others[BLOCKS];
    for (unsigned round = 0; round < 8; round++) {
        for (unsigned i = 0; i < BLOCKS; i++)
            fill(blocks[i] = malloc(SIZE), SIZE, i);
        for (unsigned i = 0; i < BLOCKS; i++) {
            blocks[i] = realloc(blocks[i], 2 * SIZE + i);
            CHECK(mismatch(blocks[i], 0, SIZE, i) == SIZE, "content of block %u lost", i);
        }
        for (unsigned i = 0; i < BLOCKS; i++)
            fill(others[i] = malloc(SIZE), SIZE, i);
        for (unsigned i = 0; i < BLOCKS; i++)
            free(others[i]);
        malloc_trim(0);
        for (unsigned i = 0; i < BLOCKS; i++) {
            others[i] = calloc(1, SIZE);
            for (size_t byte = 0; byte < SIZE; byte++)
                CHECK(others[i][byte] == 0, "byte %zu of block %u is %d", byte, i, others[i][byte]);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            free(others[i]);
            free(blocks[i]);
        }
    }
}

CASE(realloc_keeps_content_across_every_boundary) {
    for (size_t size = 1; size < (24u << 20); size = next_size(size)) {
        static const unsigned eighths[] = {9, 16, 4, 1, 40};
        unsigned char *block = malloc(size);
        CHECK(block != NULL, "no block of %zu bytes", size);
        size_t held = size;
        fill(block, held, 5);
        for (size_t i = 0; i < 5 && (size < (1u << 20) || i < 3); i++) {
            size_t wanted = size * eighths[i] / 8 + 1;
            block = realloc(block, wanted);
            CHECK(block != NULL, "no block of %zu bytes", wanted);
            size_t kept = held < wanted ? held : wanted;
            CHECK(mismatch(block, 0, kept, 5) == kept, "byte %zu lost from %zu to %zu bytes",
                  mismatch(block, 0, kept, 5), held, wanted);
            fill(block, wanted, 5);
            held = wanted;
        }
        free(block);
    }
}

CASE(realloc_keeps_content_byte_by_byte) {
    enum { MOST = 70000 };
    unsigned char *block = NULL;
    for (size_t size = 1; size <= MOST; size++) {
        unsigned char *grown = realloc(block, size);
        CHECK(grown != NULL, "no block of %zu bytes", size);
        if (grown != block || size % 1000 == 0)
            CHECK(mismatch(grown, 0, size - 1, 0) == size - 1, "content lost at %zu bytes", size);
        block = grown;
        block[size - 1] = (unsigned char)((size - 1) * 7 + ((size - 1) >> 8));
    }
    for (size_t size = MOST; size >= 1; size--) {
        unsigned char *shrunk = realloc(block, size);
        CHECK(shrunk != NULL, "no block of %zu bytes", size);
        if (shrunk != block || size % 1000 == 0)
            CHECK(mismatch(shrunk, 0, size, 0) == size, "content lost at %zu bytes", size);
        block = shrunk;
    }
    free(block);
}

/* All usable bytes of blocks in use at the same time are written, then read. */
CASE(the_usable_size_is_writable_to_its_end) {
    enum { COUNT = 6 };
    for (size_t size = 0; size < (8u << 20); size = next_size(size)) {
        unsigned char *blocks[COUNT];
        for (unsigned i = 0; i < COUNT; i++) {
            blocks[i] = malloc(size);
            CHECK(blocks[i] != NULL, "no block of %zu bytes", size);
            CHECK(malloc_usable_size(blocks[i]) >= size, "%zu of %zu bytes usable",
                  malloc_usable_size(blocks[i]), size);
            fill(blocks[i], malloc_usable_size(blocks[i]), i);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            size_t usable = malloc_usable_size(blocks[i]);
            CHECK(mismatch(blocks[i], 0, usable, i) == usable, "byte %zu of %zu was overwritten",
                  mismatch(blocks[i], 0, usable, i), usable);
            free(blocks[i]);
        }
    }
}

CASE(a_gibibyte_is_usable) {
    size_t size = (size_t)1 << 30;
    unsigned char *block = malloc(size);
    CHECK(block != NULL, "no block of 1 GiB");
    block[0] = 1;
    block[size / 2] = 2;
    block[size - 1] = 3;
    CHECK(malloc_usable_size(block) >= size, "%zu bytes usable", malloc_usable_size(block));
    block = realloc(block, 2 * size);
    CHECK(block != NULL, "no block of 2 GiB");
    block[2 * size - 1] = 4;
    CHECK(block[0] == 1 && block[size / 2] == 2 && block[size - 1] == 3, "realloc lost content");
    block = realloc(block, size);
    CHECK(block != NULL && block[0] == 1 && block[size - 1] == 3, "realloc lost content");
    free(block);
    block = calloc(1024, 1 << 20);
    CHECK(block != NULL, "no zeroed block of 1 GiB");
    CHECK(block[0] == 0 && block[size / 2] == 0 && block[size - 1] == 0, "no zeros");
    free(block);
}
