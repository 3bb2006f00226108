/* Alignments: 16 bytes to 1 GiB, and the odd ones as glibc has them. */
#include "check.h"

enum { LEAST = 16, MOST = 1 << 30 };

static const size_t sizes[] = {1, 16, 100, 250, 500, 700, 1000, 1024, 4096, 70000, 3u << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, FEW = 3, MANY = 100 };

static void check_block(unsigned char *block, size_t alignment, size_t size) {
    CHECK(block != NULL, "no block of %zu aligned to %zu", size, alignment);
    CHECK((uintptr_t)block % alignment == 0, "%p is not aligned to %zu", (void *)block, alignment);
    size_t usable = malloc_usable_size(block);
    CHECK(usable >= size, "%zu of %zu bytes usable", usable, size);
    fill(block, size, 3);
    block[usable - 1] = 1;
}

/* Several blocks of each size and alignment live at the same time, small ones in several spans; none overwrites another. */
static void check_all(void *(*allocate)(size_t alignment, size_t size)) {
    for (size_t alignment = LEAST; alignment <= MOST; alignment *= 2) {
        for (size_t s = 0; s < SIZES; s++) {
            unsigned char *blocks[MANY];
            unsigned count = sizes[s] <= 4096 && alignment <= 4096 ? MANY : FEW;
            for (unsigned i = 0; i < count; i++) {
                blocks[i] = allocate(alignment, sizes[s]);
                check_block(blocks[i], alignment, sizes[s]);
                fill(blocks[i], sizes[s], i);
            }
            for (unsigned i = 0; i < count; i++) {
                CHECK(mismatch(blocks[i], 0, sizes[s], i) == sizes[s], "block %u overwritten", i);
                free(blocks[i]);
            }
        }
    }
}

static void *by_posix_memalign(size_t alignment, size_t size) {
    void *block = NULL;
    int error = posix_memalign(&block, alignment, size);
    CHECK(error == 0, "posix_memalign(%zu, %zu): error %d", alignment, size, error);
    return block;
}

CASE(posix_memalign_from_16_bytes_to_1_gib) { check_all(by_posix_memalign); }
CASE(aligned_alloc_from_16_bytes_to_1_gib) { check_all(aligned_alloc); }
CASE(memalign_from_16_bytes_to_1_gib) { check_all(memalign); }

CASE(realloc_of_aligned_blocks) {
    for (size_t alignment = LEAST; alignment <= MOST; alignment *= 2) {
        for (size_t s = 0; s < SIZES; s++) {
            for (size_t t = 0; t < SIZES; t++) {
                unsigned char *block = aligned_alloc(alignment, sizes[s]);
                check_block(block, alignment, sizes[s]);
                fill(block, sizes[s], 3);
                block = realloc(block, sizes[t]);
                CHECK(block != NULL && (uintptr_t)block % 16 == 0, "realloc to %zu", sizes[t]);
                size_t kept = sizes[s] < sizes[t] ? sizes[s] : sizes[t];
                CHECK(mismatch(block, 0, kept, 3) == kept, "content lost, %zu to %zu bytes aligned to %zu",
                      sizes[s], sizes[t], alignment);
                fill(block, sizes[t], 4);
                free(block);
            }
        }
    }
}

/* Aligned blocks come back whole: neither the resident set nor the address space grows by use. */
CASE(aligned_blocks_are_reused) {
    size_t resident = 0, mapped = 0;
    for (unsigned round = 0; round < 60; round++) {
        for (size_t alignment = LEAST; alignment <= MOST; alignment *= 2) {
            unsigned char *block = aligned_alloc(alignment, 100000);
            check_block(block, alignment, 100000);
            free(block);
        }
        if (round == 10) {
            resident = status_bytes("VmRSS:");
            mapped = status_bytes("VmSize:");
        }
    }
    CHECK(status_bytes("VmRSS:") < resident + (64u << 20), "resident set grows from %zu to %zu bytes", resident,
          status_bytes("VmRSS:"));
    CHECK(status_bytes("VmSize:") < mapped + ((size_t)3 << 30), "address space grows from %zu to %zu bytes",
          mapped, status_bytes("VmSize:"));
}

CASE(posix_memalign_refuses_bad_alignments) {
    static const size_t bad[] = {0, 1, 2, 3, 4, 7, 9, 12, 24, 40, 48, 100, 4097, 6144, SIZE_MAX, SIZE_MAX - 7};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *untouched = &untouched;
        int error = posix_memalign(&untouched, bad[i], 100);
        CHECK(error == EINVAL, "alignment %zu: %d, not EINVAL", bad[i], error);
        CHECK(untouched == &untouched, "alignment %zu: a pointer was written", bad[i]);
    }
}

CASE(posix_memalign_of_zero_gives_distinct_blocks) {
    void *first = by_posix_memalign(64, 0), *second = by_posix_memalign(64, 0);
    CHECK(first != NULL && second != NULL && first != second, "%p and %p", first, second);
    CHECK((uintptr_t)first % 64 == 0 && (uintptr_t)second % 64 == 0, "%p and %p", first, second);
    free(first);
    free(second);
}

static size_t next_power_of_two(size_t value) {
    size_t power = 1;
    while (power < value)
        power *= 2;
    return power;
}

/* glibc rounds an alignment up to a power of two; zero means any. */
static void check_odd_alignments(void *(*allocate)(size_t alignment, size_t size)) {
    for (size_t alignment = 0; alignment < 20000; alignment += alignment < 300 ? 1 : 97) {
        unsigned char *block = allocate(alignment, 100);
        check_block(block, next_power_of_two(alignment), 100);
        CHECK((uintptr_t)block % 16 == 0, "%p is not aligned to 16", (void *)block);
        free(block);
    }
}

CASE(aligned_alloc_rounds_odd_alignments_up) { check_odd_alignments(aligned_alloc); }
CASE(memalign_rounds_odd_alignments_up) { check_odd_alignments(memalign); }

/* C17 leaves it to the implementation; glibc takes any size. */
CASE(aligned_alloc_takes_sizes_that_are_no_multiples) {
    for (size_t alignment = LEAST; alignment <= 65536; alignment *= 2) {
        for (size_t size = 1; size < 200000; size = size * 3 / 2 + 1) {
            unsigned char *block = aligned_alloc(alignment, size);
            check_block(block, alignment, size);
            free(block);
        }
        void *first = aligned_alloc(alignment, 0), *second = aligned_alloc(alignment, 0);
        CHECK(first != NULL && second != NULL && first != second, "aligned_alloc(%zu, 0)", alignment);
        CHECK((uintptr_t)first % alignment == 0, "%p is not aligned to %zu", first, alignment);
        free(first);
        free(second);
    }
}

/* 2^63 is the largest power of two: above it, an alignment is invalid; near it, there is no memory. */
CASE(impossible_alignments_fail_as_in_glibc) {
    static const struct {
        size_t alignment;
        int error;
    } impossible[] = {
        {SIZE_MAX / 2 + 2, EINVAL},   {SIZE_MAX, EINVAL},        {SIZE_MAX / 2 + 1, ENOMEM},
        {((size_t)1 << 62) + 1, ENOMEM}, {(size_t)1 << 62, ENOMEM}, {(size_t)1 << 50, ENOMEM},
    };
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        errno = 0;
        CHECK(aligned_alloc(impossible[i].alignment, 1) == NULL, "aligned to %#zx",
              impossible[i].alignment);
        CHECK(errno == impossible[i].error, "aligned_alloc(%#zx, 1): not error %d", impossible[i].alignment,
              impossible[i].error);
        errno = 0;
        CHECK(memalign(impossible[i].alignment, 1) == NULL, "aligned to %#zx",
              impossible[i].alignment);
        CHECK(errno == impossible[i].error, "memalign(%#zx, 1): not error %d", impossible[i].alignment,
              impossible[i].error);
    }
    void *untouched = &untouched;
    CHECK(posix_memalign(&untouched, SIZE_MAX / 2 + 1, 1) == ENOMEM, "posix_memalign aligned to 2^63");
    CHECK(posix_memalign(&untouched, (size_t)1 << 62, 1) == ENOMEM, "posix_memalign aligned to 2^62");
    CHECK(untouched == &untouched, "posix_memalign wrote a pointer although it failed");
}
