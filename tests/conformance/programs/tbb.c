/* The C interface of TBB's scalable allocator. The functions are looked up: this program links no such library. */
#include "../../../allocator/abi/include/ample_tbb.h"

#include "check.h"

#define FUNCTION(result, name, parameters)                                            \
    result(*name) parameters = (result(*) parameters)dlsym(RTLD_DEFAULT, "scalable_" #name); \
    CHECK(name != NULL && check_is_served((void *)name), "the library has no scalable_" #name)

CASE(blocks_are_allocated_resized_and_freed) {
    FUNCTION(void *, malloc, (size_t));
    FUNCTION(void *, calloc, (size_t, size_t));
    FUNCTION(void *, realloc, (void *, size_t));
    FUNCTION(void, free, (void *));
    FUNCTION(size_t, msize, (void *));
    unsigned char *block = malloc(1000);
    fill(block, 1000, 1);
    CHECK(msize(block) >= 1000, "%zu bytes", msize(block));
    block = realloc(block, 300000);
    CHECK(mismatch(block, 0, 1000, 1) == 1000, "the content is lost");
    free(block);
    unsigned char *zeroed = calloc(100, 100);
    for (unsigned i = 0; i < 10000; i++)
        CHECK(zeroed[i] == 0, "byte %u", i);
    (opaque_free)(zeroed);
    errno = 0;
    CHECK(msize(NULL) == 0 && errno == EINVAL, "NULL has a size");
}

CASE(aligned_blocks_are_aligned_and_resized) {
    FUNCTION(void *, aligned_malloc, (size_t, size_t));
    FUNCTION(void *, aligned_realloc, (void *, size_t, size_t));
    FUNCTION(void, aligned_free, (void *));
    FUNCTION(int, posix_memalign, (void **, size_t, size_t));
    for (size_t align = 1; align <= 1 << 20; align *= 2) {
        unsigned char *block = aligned_malloc(100, align);
        CHECK((uintptr_t)block % align == 0, "alignment %zu", align);
        fill(block, 100, 3);
        block = aligned_realloc(block, 5000, align);
        CHECK((uintptr_t)block % align == 0 && mismatch(block, 0, 100, 3) == 100, "alignment %zu", align);
        CHECK(aligned_realloc(block, 0, align) == NULL, "alignment %zu", align);
    }
    errno = 0;
    CHECK(aligned_malloc(10, 3) == NULL && errno == EINVAL, "alignment 3");
    errno = 0;
    CHECK(aligned_malloc(0, 16) == NULL && errno == EINVAL, "size 0");
    void *block = NULL;
    CHECK(posix_memalign(&block, 256, 10) == 0 && (uintptr_t)block % 256 == 0, "posix_memalign");
    aligned_free(block);
}

CASE(commands_and_modes_answer_what_they_do) {
    FUNCTION(int, allocation_mode, (int, intptr_t));
    FUNCTION(int, allocation_command, (int, void *));
    CHECK(allocation_mode(TBBMALLOC_USE_HUGE_PAGES, 1) == TBBMALLOC_UNSUPPORTED, "huge pages");
    CHECK(allocation_mode(TBBMALLOC_USE_HUGE_PAGES, 7) == TBBMALLOC_INVALID_PARAM, "huge pages 7");
    CHECK(allocation_mode(99, 0) == TBBMALLOC_INVALID_PARAM, "mode 99");
    (opaque_free)((opaque_malloc)(4 << 20));
    int first = allocation_command(TBBMALLOC_CLEAN_ALL_BUFFERS, NULL);
    int second = allocation_command(TBBMALLOC_CLEAN_THREAD_BUFFERS, NULL);
    CHECK(first == TBBMALLOC_OK && second == TBBMALLOC_NO_EFFECT, "%d, %d", first, second);
    CHECK(allocation_command(TBBMALLOC_CLEAN_ALL_BUFFERS, &first) == TBBMALLOC_INVALID_PARAM, "a parameter");
    CHECK(allocation_command(99, NULL) == TBBMALLOC_INVALID_PARAM, "command 99");
}
