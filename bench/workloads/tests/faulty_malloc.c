/* A faulty allocator to preload: glibc's malloc, except that blocks of 777 bytes, which no part of the
 * harness asks for, suffer the fault that the environment variable FAULT names. */

#include <stdlib.h>
#include <string.h>

enum { FAULTY_SIZE = 777 };

extern void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
    static char *previous;

    if (size != FAULTY_SIZE)
        return __libc_malloc(size);

    const char *fault = getenv("FAULT");
    if (fault == NULL)
        return __libc_malloc(size);
    if (strcmp(fault, "null") == 0)
        return NULL;
    if (strcmp(fault, "abort") == 0)
        abort();
    if (strcmp(fault, "misaligned") == 0)
        return (char *)__libc_malloc(size + 8) + 8;
    if (strcmp(fault, "overlap") == 0 && previous != NULL)
        return previous + 512;

    /* What remains is "lost-content": the block before this one loses a byte. */
    if (previous != NULL && strcmp(fault, "lost-content") == 0)
        previous[100] ^= 1;
    previous = __libc_malloc(size);
    return previous;
}
