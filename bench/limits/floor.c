/* floor: the least that a malloc can do. A limit that allocators are held against, and none itself.
 *
 * Blocks of one size on a list for each thread, last in, first out. Nothing is checked, nothing is locked,
 * nothing is given back to the system, and a thread's list is lost with the thread:
 *
 *   malloc   the list, or else bump
 *   bump     the next bytes of the thread's chunk, or of a new one
 *   free     the list of the thread that frees
 *
 * The size is AMPLE_FLOOR_SIZE in bytes. A larger request is bumped and comes back to the list as a block like
 * the others: every block has the size at least. So does a smaller one: it gets a whole block. */

#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OUT_OF_LINE __attribute__((noinline, cold))
#define PER_THREAD static __thread __attribute__((tls_model("initial-exec")))

#define ALIGNMENT ((size_t)16)
#define CACHE_LINE ((size_t)64)
#define PAGE ((size_t)4096)
/* Addresses that a thread takes at once. */
#define CHUNK ((size_t)4 << 20)
/* All addresses there are, or the half, or the half of that, where the system has no room for so many. Only what
 * is written to becomes memory. */
#define RESERVATION ((size_t)1 << 40)
#define DEFAULT_SIZE ((size_t)64)
/* So that the reservation holds some ten thousand blocks. */
#define LARGEST_SIZE ((size_t)16 << 20)
/* From this size on, blocks are spread over the sets of a cache. */
#define SPREAD_FROM ((size_t)512)

struct block {
    struct block *next;
};

PER_THREAD struct block *list;

PER_THREAD struct {
    uintptr_t next;
    uintptr_t end;
} chunk;

/* 0 until the first call, which therefore goes out of line. */
static size_t block_size;

static struct {
    _Atomic uintptr_t next;
    uintptr_t end;
} reservation;

static size_t round_up(size_t bytes, size_t step) {
    return (bytes + step - 1) & ~(step - 1);
}

/* Room for a block of this many bytes. Large blocks are an odd number of cache lines long, so that their first
 * lines, which the list runs through, do not all fall into the same few sets. */
static size_t with_room(size_t size) {
    if (size < SPREAD_FROM) return size < ALIGNMENT ? ALIGNMENT : round_up(size, ALIGNMENT);
    return (round_up(size, CACHE_LINE) / CACHE_LINE | 1) * CACHE_LINE;
}

static size_t size_from_environment(void) {
    static const char complaint[] = "floor: AMPLE_FLOOR_SIZE must be a number of bytes up to 16777216; 64 is used\n";
    const char *text = getenv("AMPLE_FLOOR_SIZE");
    if (text == NULL) return DEFAULT_SIZE;
    char *end;
    unsigned long long size = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == '\0' && size <= LARGEST_SIZE) return size;
    ssize_t written = write(STDERR_FILENO, complaint, sizeof complaint - 1);
    (void)written;
    return DEFAULT_SIZE;
}

/* Runs in the first call of the process, when there is one thread. */
static bool start(void) {
    int saved = errno;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t bytes = RESERVATION;
    void *begin;
    while ((begin = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0)) == MAP_FAILED) {
        bytes /= 2;
        if (bytes < CHUNK) return false;
    }
    reservation.end = (uintptr_t)begin + bytes;
    atomic_store_explicit(&reservation.next, (uintptr_t)begin, memory_order_relaxed);
    block_size = with_room(size_from_environment());
    errno = saved;
    return true;
}

/* That many fresh bytes, at the beginning of a page; 0 where there are no more. */
static uintptr_t take(size_t bytes) {
    bytes = round_up(bytes, PAGE);
    uintptr_t begin = atomic_fetch_add_explicit(&reservation.next, bytes, memory_order_relaxed);
    if (begin <= reservation.end && bytes <= reservation.end - begin) return begin;
    atomic_fetch_sub_explicit(&reservation.next, bytes, memory_order_relaxed);
    return 0;
}

/* A block that was never used before, and reads as zero. `alignment` is a power of two, 16 at least. */
OUT_OF_LINE static void *bump(size_t alignment, size_t size) {
    if (block_size == 0 && !start()) goto none;
    if (size > RESERVATION || alignment > RESERVATION) goto none;
    size = round_up(size < block_size ? block_size : size, ALIGNMENT);
    uintptr_t begin = round_up(chunk.next, alignment);
    if (begin + size > chunk.end) {
        if (size + alignment > CHUNK) {
            uintptr_t own = take(size + alignment);
            if (own == 0) goto none;
            return (void *)round_up(own, alignment);
        }
        uintptr_t fresh = take(CHUNK);
        if (fresh == 0) goto none;
        chunk.end = fresh + CHUNK;
        begin = round_up(fresh, alignment);
    }
    chunk.next = begin + size;
    return (void *)begin;
none:
    errno = ENOMEM;
    return NULL;
}

static void *with_alignment(size_t alignment, size_t size) {
    return alignment <= ALIGNMENT ? malloc(size) : bump(alignment, size);
}

void *malloc(size_t size) {
    struct block *block = list;
    if (size > block_size || block == NULL) return bump(ALIGNMENT, size);
    list = block->next;
    return block;
}

void free(void *pointer) {
    struct block *block = pointer;
    if (block == NULL) return;
    block->next = list;
    list = block;
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
    void *block = malloc(bytes);
    /* A larger one is fresh. */
    return block != NULL && bytes <= block_size ? memset(block, 0, bytes) : block;
}

void *realloc(void *old, size_t size) {
    if (old != NULL && size <= block_size) return old;
    void *block = malloc(size);
    if (old == NULL || block == NULL) return block;
    /* How long the old block is, nobody knows: what follows it is copied as well. */
    size_t readable = reservation.end - (uintptr_t)old;
    memmove(block, old, size < readable ? size : readable);
    free(old);
    return block;
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) return EINVAL;
    int saved = errno;
    void *block = with_alignment(alignment, size);
    errno = saved;
    if (block == NULL) return ENOMEM;
    *result = block;
    return 0;
}

void *aligned_alloc(size_t alignment, size_t size) {
    if ((alignment & (alignment - 1)) == 0) return with_alignment(alignment, size);
    errno = EINVAL;
    return NULL;
}

void *memalign(size_t alignment, size_t size) {
    return aligned_alloc(alignment, size);
}

size_t malloc_usable_size(void *block) {
    return block == NULL ? 0 : block_size;
}
