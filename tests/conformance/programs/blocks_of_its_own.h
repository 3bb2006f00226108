/* Blocks with a header before them, from operators new and delete that a program defines in place of the library's: a block that goes
 * to another operator than those it belongs to is noticed. Include this file after check.h. */
#ifndef BLOCKS_OF_ITS_OWN_H
#define BLOCKS_OF_ITS_OWN_H

#include <new>

/* One kind of block; counts what was handed out and taken back. Its blocks are aligned to ALIGNMENT, as is the header's room. */
template <std::size_t TAG, std::size_t ALIGNMENT> struct Blocks {
    static inline std::size_t given, taken;

    static void *give(std::size_t size) {
        void *room = size > PTRDIFF_MAX ? nullptr : memalign(ALIGNMENT, size + ALIGNMENT);
        if (room == nullptr)
            throw std::bad_alloc();
        *static_cast<std::size_t *>(room) = TAG;
        given++;
        return static_cast<char *>(room) + ALIGNMENT;
    }

    static void take(void *block) {
        if (block == nullptr)
            return;
        void *room = static_cast<char *>(block) - ALIGNMENT;
        std::size_t *tag = static_cast<std::size_t *>(room);
        CHECK(*tag == TAG, "%p comes from another operator: %#zx", block, *tag);
        *tag = 0;
        taken++;
        free(room);
    }

    /* Whether so many blocks went each way since the last call. */
    static bool went(std::size_t count) {
        bool result = given == count && taken == count;
        given = taken = 0;
        return result;
    }
};

/* Allocates and frees a block of every size up to some pages, and uses it. */
template <typename New, typename Delete> std::size_t pass_blocks(New allocate, Delete release) {
    std::size_t count = 0;
    for (std::size_t size = 0; size < 20000; size = size * 5 / 4 + 1, count++) {
        void *block = escape(allocate(size));
        CHECK(block != nullptr, "no block of %zu bytes", size);
        fill(block, size, 9);
        CHECK(mismatch(escape(block), 0, size, 9) == size, "content of %zu bytes lost", size);
        release(block, size);
    }
    return count;
}

#endif
