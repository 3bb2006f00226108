/* The names that glibc's own malloc has besides: whoever calls them meets the same heap. */
#include "check.h"

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
extern void __libc_free(void *);

static void *named(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    CHECK(function != NULL && check_is_served(function), "%s is not served by %s", name, check_library());
    return function;
}

CASE(the_library_defines_them_all) {
    static const char *const names[] = {
        "__libc_malloc",   "__libc_free",   "__libc_calloc",  "__libc_realloc",   "__libc_memalign",
        "__libc_valloc",   "__libc_pvalloc", "__libc_cfree",  "__posix_memalign", "cfree",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        named(names[i]);
}

CASE(their_blocks_and_those_of_malloc_are_of_one_kind) {
    void (*libc_cfree)(void *) = (void (*)(void *))named("__libc_cfree");
    int (*libc_posix_memalign)(void **, size_t, size_t) =
        (int (*)(void **, size_t, size_t))named("__posix_memalign");
    void (*cfree_function)(void *) = (void (*)(void *))named("cfree");
    for (size_t size = 1; size < (4u << 20); size = size * 3 / 2 + 1) {
        void *blocks[8] = {__libc_malloc(size),           __libc_calloc(1, size), __libc_realloc(malloc(10), size),
                           __libc_memalign(256, size),    __libc_valloc(size),    __libc_pvalloc(size),
                           realloc(__libc_malloc(5), size), NULL};
        CHECK(libc_posix_memalign(&blocks[7], 128, size) == 0, "__posix_memalign");
        for (unsigned i = 0; i < 8; i++) {
            CHECK(malloc_usable_size(blocks[i]) >= size, "block %u of %zu bytes", i, size);
            fill(blocks[i], size, i);
        }
        for (unsigned i = 0; i < 8; i++) {
            CHECK(mismatch(blocks[i], 0, size, i) == size, "block %u of %zu bytes", i, size);
            if (i % 3 == 0)
                free(blocks[i]);
            else if (i % 3 == 1)
                __libc_free(blocks[i]);
            else if (i == 2)
                cfree_function(blocks[i]);
            else
                libc_cfree(blocks[i]);
        }
    }
    errno = 0;
    CHECK(__libc_malloc(SIZE_MAX) == NULL && errno == ENOMEM, "more than any address space holds");
}
