/* The C interface of TBB's scalable allocator, as far as Ample has it: for code that was written for it. Its blocks are
 * blocks like any other: free takes them too. */
#ifndef AMPLE_TBB_H
#define AMPLE_TBB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What scalable_allocation_mode and scalable_allocation_command return. */
typedef enum {
    TBBMALLOC_OK,
    TBBMALLOC_INVALID_PARAM,
    TBBMALLOC_UNSUPPORTED,
    TBBMALLOC_NO_MEMORY,
    TBBMALLOC_NO_EFFECT
} ScalableAllocationResult;

/* Modes: both are unsupported. */
typedef enum { TBBMALLOC_USE_HUGE_PAGES, TBBMALLOC_SET_SOFT_HEAP_LIMIT } AllocationModeParam;

/* Commands: both give memory back to the system. */
typedef enum { TBBMALLOC_CLEAN_ALL_BUFFERS, TBBMALLOC_CLEAN_THREAD_BUFFERS } ScalableAllocationCmd;

void *scalable_malloc(size_t size);
void scalable_free(void *block);
void *scalable_calloc(size_t count, size_t size);
void *scalable_realloc(void *block, size_t size);
int scalable_posix_memalign(void **result, size_t align, size_t size);
void *scalable_aligned_malloc(size_t size, size_t align);
void *scalable_aligned_realloc(void *block, size_t size, size_t align);
void scalable_aligned_free(void *block);
size_t scalable_msize(void *block);
int scalable_allocation_mode(int mode, intptr_t value);
int scalable_allocation_command(int command, void *reserved);

#ifdef __cplusplus
}
#endif

#endif
