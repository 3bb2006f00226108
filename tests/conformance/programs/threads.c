/* Threads: blocks that travel, many threads at once, many one after the other, and a random mixture. */
#include "check.h"
#include "empty_threads.h"
#include "stacks.h"

/* Sizes from 1 byte to 64 KiB, each power of two as likely as the next. */
static size_t random_size(uint64_t *state) {
    unsigned bits = next_random(state) % 17;
    return ((size_t)1 << bits) - (next_random(state) & (((uint32_t)1 << bits) / 2));
}

enum { BATCH = 2000 };

struct batch {
    unsigned char *blocks[BATCH];
    size_t sizes[BATCH];
    unsigned seed;
};

static void *fill_batch(void *argument) {
    struct batch *batch = argument;
    uint64_t state = batch->seed;
    for (unsigned i = 0; i < BATCH; i++) {
        batch->sizes[i] = random_size(&state);
        batch->blocks[i] = malloc(batch->sizes[i]);
        CHECK(batch->blocks[i] != NULL, "no block of %zu bytes", batch->sizes[i]);
        fill(batch->blocks[i], batch->sizes[i], i);
    }
    return batch;
}

static void *free_batch(void *argument) {
    struct batch *batch = argument;
    for (unsigned i = 0; i < BATCH; i++) {
        CHECK(mismatch(batch->blocks[i], 0, batch->sizes[i], i) == batch->sizes[i], "block %u overwritten", i);
        free(batch->blocks[i]);
    }
    return batch;
}

CASE(blocks_of_an_ended_thread_are_freed_by_another) {
    static struct batch batch;
    size_t before = 0;
    for (unsigned round = 0; round < 60; round++) {
        batch.seed = round;
        join_thread(start_thread(fill_batch, &batch));
        if (round % 2 == 0)
            join_thread(start_thread(free_batch, &batch));
        else
            free_batch(&batch);
        if (round == 30)
            before = status_bytes("VmRSS:");
    }
    CHECK(status_bytes("VmRSS:") < before + (64u << 20), "memory does not come back to other threads");
}

/* A producer and a consumer at the same time; only the consumer ever frees. */
enum { RING = 256, TRANSFERS = 400000 };
static void *ring[RING];
static size_t ring_size(unsigned i) { return 8 + i % 1500; }

static void *consume(void *unused) {
    for (unsigned i = 0; i < TRANSFERS; i++) {
        unsigned char *block;
        while ((block = __atomic_exchange_n(&ring[i % RING], NULL, __ATOMIC_ACQUIRE)) == NULL)
            sched_yield();
        size_t size = ring_size(i);
        CHECK(block[0] == (unsigned char)i && block[size - 1] == (unsigned char)i, "block %u spoilt", i);
        free(block);
    }
    return unused;
}

CASE(a_thread_frees_what_another_allocates) {
    pthread_t consumer = start_thread(consume, NULL);
    for (unsigned i = 0; i < TRANSFERS; i++) {
        while (__atomic_load_n(&ring[i % RING], __ATOMIC_RELAXED) != NULL)
            sched_yield();
        size_t size = ring_size(i);
        unsigned char *block = malloc(size);
        CHECK(block != NULL, "no block of %zu bytes", size);
        memset(block, (unsigned char)i, size);
        __atomic_store_n(&ring[i % RING], block, __ATOMIC_RELEASE);
    }
    join_thread(consumer);
    CHECK(status_bytes("VmRSS:") < (128u << 20), "blocks freed elsewhere are not reused");
}

/* Many threads alive at the same time; each leaves its blocks to its neighbour. */
enum { ALIVE = 500, EACH = 200 };
static pthread_barrier_t barrier;
static unsigned char *left[ALIVE][EACH];

static void *live_together(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    uint64_t state = me;
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < EACH; i++) {
        size_t size = 16 + next_random(&state) % 2000;
        left[me][i] = malloc(size);
        CHECK(left[me][i] != NULL, "no block of %zu bytes", size);
        memset(left[me][i], (int)(me % 251), 16);
    }
    pthread_barrier_wait(&barrier);
    unsigned neighbour = (me + 1) % ALIVE;
    for (unsigned i = 0; i < EACH; i++) {
        CHECK(left[neighbour][i][15] == neighbour % 251, "block %u of %u spoilt", i, neighbour);
        free(left[neighbour][i]);
    }
    pthread_barrier_wait(&barrier);
    return argument;
}

CASE(five_hundred_threads_live_at_once) {
    static pthread_t threads[ALIVE];
    CHECK(pthread_barrier_init(&barrier, NULL, ALIVE) == 0, "pthread_barrier_init");
    for (unsigned i = 0; i < ALIVE; i++)
        threads[i] = start_thread(live_together, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < ALIVE; i++)
        join_thread(threads[i]);
}

/* What a thread costs that has one small block: its stack, its heap, its arena. 20.5 KiB were measured, 8 of them the stack. */
static void *hold_one(void *unused) {
    char *block = malloc(100);
    CHECK(block != NULL, "no block");
    *block = 1;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    free(block);
    return unused;
}

CASE(a_thread_with_a_block_costs_five_pages) {
    static pthread_t threads[ALIVE];
    CHECK(pthread_barrier_init(&barrier, NULL, ALIVE + 1) == 0, "pthread_barrier_init");
    free(malloc(100));
    size_t before = status_bytes("VmRSS:");
    for (unsigned i = 0; i < ALIVE; i++)
        threads[i] = start_thread(hold_one, NULL);
    pthread_barrier_wait(&barrier);
    size_t each = (status_bytes("VmRSS:") - before) / ALIVE;
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < ALIVE; i++)
        join_thread(threads[i]);
    CHECK(each < 23 << 10, "%zu bytes a thread", each);
}

/* How much of its stack a thread needs: what it wrote to of one that was painted before. */
enum { STACK = 128 << 10, PAINT = 0xa5 };
static size_t stack_of(void *(*run)(void *)) {
    static _Alignas(4096) unsigned char stack[STACK];
    memset(stack, PAINT, STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK) == 0,
          "pthread_attr_setstack");
    CHECK(pthread_create(&thread, &attributes, run, NULL) == 0, "pthread_create");
    join_thread(thread);
    size_t untouched = 0;
    while (untouched < STACK && stack[untouched] == PAINT)
        untouched++;
    return STACK - untouched;
}
static void *do_nothing(void *unused) {
    return unused;
}
static void *allocate_once(void *unused) {
    free(malloc(100));
    return unused;
}

/* Every thread has a stack of its own: a page more of it for the sake of its first malloc is a page in each. */
CASE(a_first_malloc_needs_little_stack) {
    size_t least = stack_of(do_nothing), used = stack_of(allocate_once);
    CHECK(used < least + 1536, "%zu bytes of stack, %zu without malloc", used, least);
}

/* Short-lived threads, one after the other; each allocates once more when it is almost gone. */
static pthread_key_t farewell_key;
static void say_farewell(void *block) {
    free(block);
    free(malloc(100));
}
static void *live_briefly(void *unused) {
    void *blocks[100];
    for (unsigned i = 0; i < 100; i++) {
        blocks[i] = malloc(16 + i * 40);
        CHECK(blocks[i] != NULL, "no block");
        memset(blocks[i], 1, 16 + i * 40);
    }
    CHECK(pthread_setspecific(farewell_key, malloc(10)) == 0, "pthread_setspecific");
    for (unsigned i = 0; i < 99; i++)
        free(blocks[i]);
    (void)unused;
    return blocks[99];
}

CASE(five_thousand_short_threads_leave_nothing_behind) {
    CHECK(pthread_key_create(&farewell_key, say_farewell) == 0, "no key");
    size_t before = 0;
    for (unsigned i = 0; i < 6000; i++) {
        if (i == 1000)
            before = status_bytes("VmRSS:");
        free(join_thread(start_thread(live_briefly, NULL)));
    }
    CHECK(status_bytes("VmRSS:") < before + (4u << 20), "resident set grows from %zu to %zu bytes", before,
          status_bytes("VmRSS:"));
}

/* Every thread allocates, reallocates, checks and frees at random, and swaps blocks with the others. */
enum { WORKERS = 8, SLOTS = 400, SHARED = 512, OPERATIONS = 100000 };

struct block {
    uint32_t size;
    uint32_t tag;
    unsigned char content[];
};
static struct block *shared[SHARED];

static struct block *make(uint64_t *state) {
    size_t size = sizeof(struct block) + random_size(state);
    uint32_t choice = next_random(state);
    struct block *block = NULL;
    switch (choice % 4) {
    case 0:
        block = calloc(1, size);
        break;
    case 1: {
        size_t alignment = (size_t)8 << (choice >> 8) % 11;
        int error = posix_memalign((void **)&block, alignment, size);
        CHECK(error == 0 && (uintptr_t)block % alignment == 0, "%p aligned to %zu", (void *)block, alignment);
        break;
    }
    default:
        block = malloc(size);
    }
    CHECK(block != NULL, "no block of %zu bytes", size);
    if (choice % 4 == 0)
        for (size_t i = 0; i < size; i++)
            CHECK(((unsigned char *)block)[i] == 0, "calloc of %zu: byte %zu", size, i);
    block->size = (uint32_t)(size - sizeof *block);
    block->tag = choice;
    fill(block->content, block->size, block->tag);
    return block;
}

static void check(const struct block *block) {
    size_t wrong = mismatch(block->content, 0, block->size, block->tag);
    CHECK(wrong == block->size, "byte %zu of %u at %p was overwritten", wrong, block->size,
          (const void *)block);
}

static void *work(void *argument) {
    uint64_t state = (uintptr_t)argument * 7919 + 1;
    struct block *slots[SLOTS] = {0};
    for (unsigned operation = 0; operation < OPERATIONS; operation++) {
        struct block **slot = &slots[next_random(&state) % SLOTS];
        uint32_t choice = next_random(&state) % 8;
        if (*slot == NULL) {
            *slot = make(&state);
        } else if (choice == 0) {
            *slot = __atomic_exchange_n(&shared[next_random(&state) % SHARED], *slot, __ATOMIC_ACQ_REL);
        } else if (choice == 1) {
            check(*slot);
            size_t size = random_size(&state);
            size_t kept = size < (*slot)->size ? size : (*slot)->size;
            struct block *moved = realloc(*slot, sizeof *moved + size);
            CHECK(moved != NULL, "no block of %zu bytes", size);
            CHECK(mismatch(moved->content, 0, kept, moved->tag) == kept, "realloc lost content");
            moved->size = (uint32_t)size;
            fill(moved->content, size, moved->tag);
            *slot = moved;
        } else {
            check(*slot);
            free(*slot);
            *slot = NULL;
        }
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[i] != NULL)
            check(slots[i]);
        free(slots[i]);
    }
    return argument;
}

CASE(a_random_mixture_keeps_every_block_whole) {
    for (unsigned round = 0; round < 2; round++) {
        pthread_t threads[WORKERS];
        for (uintptr_t i = 0; i < WORKERS; i++)
            threads[i] = start_thread(work, (void *)(i + round * WORKERS));
        for (unsigned i = 0; i < WORKERS; i++)
            join_thread(threads[i]);
    }
    for (unsigned i = 0; i < SHARED; i++) {
        if (shared[i] != NULL)
            check(shared[i]);
        free(shared[i]);
    }
}

CASE(stacks_are_given_up_while_memory_waits_to_come_back) { stacks_are_given_up(); }

CASE(threads_that_never_ask_for_memory_end) { empty_threads(); }
