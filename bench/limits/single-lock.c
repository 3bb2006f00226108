/* single-lock: a malloc behind one lock, as vendors shipped it when machines had one CPU. A limit that allocators
 * are held against, and none itself.
 *
 * Every call takes the lock of the process, and is passed on to the next library that has the function: the C
 * library, unless others are preloaded behind this one. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT ((size_t)16)
#define ARENA ((size_t)64 << 10)

/* The next library's functions. */
static struct {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    size_t (*malloc_usable_size)(void *);
} next;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* What this thread holds the lock for, if not for one call. */
static __thread __attribute__((tls_model("initial-exec"))) enum { NOTHING, LOOKING, FORKING } holding;

/* What dlsym allocates while it looks for the next malloc; blocks lie one after the other, each behind its size. */
static struct {
    _Alignas(16) unsigned char bytes[ARENA];
    size_t used;
} arena;

static bool is_of_arena(const void *block) {
    return (uintptr_t)block - (uintptr_t)arena.bytes < ARENA;
}

/* Only the thread that looks calls this. Fresh bytes are zero, and freed ones do not come back. */
static void *take_from_arena(size_t size) {
    size_t room = ARENA - arena.used;
    if (size > room - ALIGNMENT || room < ALIGNMENT) {
        errno = ENOMEM;
        return NULL;
    }
    unsigned char *block = arena.bytes + arena.used + ALIGNMENT;
    memcpy(block - ALIGNMENT, &size, sizeof size);
    arena.used += ALIGNMENT + (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (arena.used > ARENA) arena.used = ARENA;
    return block;
}

static size_t size_in_arena(const void *block) {
    size_t size;
    memcpy(&size, (const unsigned char *)block - ALIGNMENT, sizeof size);
    return size;
}

static void *look_for(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (function != NULL) return function;
    static const char complaint[] = "single-lock: no library behind this one has a whole malloc family\n";
    ssize_t written = write(STDERR_FILENO, complaint, sizeof complaint - 1);
    (void)written;
    _exit(127);
}

static void look_for_all(void) {
    holding = LOOKING;
    next.free = look_for("free");
    next.calloc = look_for("calloc");
    next.realloc = look_for("realloc");
    next.posix_memalign = look_for("posix_memalign");
    next.aligned_alloc = look_for("aligned_alloc");
    next.memalign = look_for("memalign");
    next.malloc_usable_size = look_for("malloc_usable_size");
    next.malloc = look_for("malloc");
    holding = NOTHING;
}

static void lock(void) {
    if (holding == FORKING) return;
    pthread_mutex_lock(&mutex);
    if (next.malloc == NULL) look_for_all();
}

static void unlock(void) {
    if (holding != FORKING) pthread_mutex_unlock(&mutex);
}

/* glibc's lock of the list of streams. It is recursive, and exported for libraries that fork. */
extern void _IO_list_lock(void);
extern void _IO_list_unlock(void);
extern void _IO_list_resetlock(void);

/* Nobody is inside the next malloc while the process is copied. Meanwhile the handlers of others may allocate in
 * this thread. The streams come first: who flushes them all holds their list, and may wait for a stream whose
 * reader waits for memory. */
static void before_fork(void) {
    _IO_list_lock();
    lock();
    holding = FORKING;
}

static void after_fork_in_parent(void) {
    holding = NOTHING;
    unlock();
    _IO_list_unlock();
}

static void after_fork_in_child(void) {
    holding = NOTHING;
    unlock();
    _IO_list_resetlock();
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void *malloc(size_t size) {
    if (holding == LOOKING) return take_from_arena(size);
    lock();
    void *block = next.malloc(size);
    unlock();
    return block;
}

void free(void *block) {
    if (block == NULL || is_of_arena(block)) return;
    lock();
    next.free(block);
    unlock();
}

void *calloc(size_t count, size_t size) {
    if (holding == LOOKING) {
        size_t bytes;
        return take_from_arena(__builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes);
    }
    lock();
    void *block = next.calloc(count, size);
    unlock();
    return block;
}

void *realloc(void *old, size_t size) {
    if (holding == LOOKING || is_of_arena(old)) {
        void *block = malloc(size);
        if (old == NULL || block == NULL) return block;
        size_t before = size_in_arena(old);
        return memcpy(block, old, before < size ? before : size);
    }
    lock();
    void *block = next.realloc(old, size);
    unlock();
    return block;
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    lock();
    int error = next.posix_memalign(result, alignment, size);
    unlock();
    return error;
}

void *aligned_alloc(size_t alignment, size_t size) {
    lock();
    void *block = next.aligned_alloc(alignment, size);
    unlock();
    return block;
}

void *memalign(size_t alignment, size_t size) {
    lock();
    void *block = next.memalign(alignment, size);
    unlock();
    return block;
}

size_t malloc_usable_size(void *block) {
    if (is_of_arena(block)) return size_in_arena(block);
    lock();
    size_t size = next.malloc_usable_size(block);
    unlock();
    return size;
}
