/* Ample's own functions, beside those of malloc. Link with -lample, or look them up with dlsym in a program that
 * may run on another allocator. */
#ifndef AMPLE_H
#define AMPLE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A block of at least `size` bytes that has its cache lines to itself: for objects that several threads write to. It is
 * aligned to 64 bytes. Give it back with free. NULL and ENOMEM: no memory.
 *
 * After Lever & Boreham (2000), whose conclusion asks for two mechanisms: one for objects of one thread, one for those
 * that are shared. */
void *ample_malloc_shared(size_t size);

#ifdef __cplusplus
}
#endif

#endif
