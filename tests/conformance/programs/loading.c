/* A program without any preload opens the library itself. */
#define PROVE_SERVED 0
#include "check.h"

static void *(*library_malloc)(size_t);
static void (*library_free)(void *);
static void *(*library_realloc)(void *, size_t);

static void *open_library(int mode) {
    void *library = dlopen(check_library(), mode);
    CHECK(library != NULL, "%s", dlerror());
    library_malloc = (void *(*)(size_t))dlsym(library, "malloc");
    library_free = (void (*)(void *))dlsym(library, "free");
    library_realloc = (void *(*)(void *, size_t))dlsym(library, "realloc");
    CHECK(check_is_served((void *)library_malloc) && check_is_served((void *)library_free) &&
              check_is_served((void *)library_realloc),
          "dlsym leads elsewhere than to %s", check_library());
    return library;
}

static void *exercise(void *unused) {
    for (size_t size = 0; size < (4u << 20); size = size * 5 / 4 + 1) {
        unsigned char *block = library_malloc(size);
        CHECK(block != NULL, "no block of %zu bytes", size);
        fill(block, size, 3);
        block = library_realloc(block, size * 2 + 1);
        CHECK(block != NULL && mismatch(block, 0, size, 3) == size, "content of %zu bytes lost", size);
        library_free(block);
    }
    return unused;
}

static void exercise_with_threads(void) {
    exercise(NULL);
    pthread_t threads[8];
    for (unsigned i = 0; i < 8; i++)
        threads[i] = start_thread(exercise, NULL);
    for (unsigned i = 0; i < 8; i++)
        join_thread(threads[i]);
}

CASE(it_opens_with_all_symbols_bound) {
    open_library(RTLD_NOW | RTLD_LOCAL);
    exercise_with_threads();
}

/* The program's malloc stays the C library's; a name that stands for another means the library's own. */
CASE(its_other_names_lead_to_itself) {
    void *library = open_library(RTLD_NOW | RTLD_LOCAL);
    void *(*other_malloc)(size_t) = (void *(*)(size_t))dlsym(library, "scalable_malloc");
    void *(*other_calloc)(size_t, size_t) = (void *(*)(size_t, size_t))dlsym(library, "scalable_calloc");
    size_t (*usable)(void *) = (size_t (*)(void *))dlsym(library, "malloc_usable_size");
    void (*other_free)(void *) = (void (*)(void *))dlsym(library, "scalable_free");
    CHECK(other_malloc != NULL && other_calloc != NULL && usable != NULL && other_free != NULL, "%s", dlerror());
    void *own = library_malloc(2000);
    CHECK(usable(own) == 2112, "%zu usable bytes, which the C library's block might have", usable(own));
    for (unsigned i = 0; i < 100; i++) {
        void *blocks[] = {other_malloc(2000), other_calloc(4, 500)};
        for (unsigned k = 0; k < 2; k++) {
            CHECK(usable(blocks[k]) == 2112, "%zu usable bytes: the C library's", usable(blocks[k]));
            other_free(blocks[k]);
        }
    }
    library_free(own);
}

CASE(it_opens_lazily_and_globally) {
    open_library(RTLD_LAZY | RTLD_GLOBAL);
    exercise_with_threads();
}

/* Threads that were there before it was opened use it, too. */
static pthread_barrier_t opened;
static void *await_and_exercise(void *unused) {
    pthread_barrier_wait(&opened);
    return exercise(unused);
}

CASE(threads_older_than_it_use_it) {
    pthread_t threads[4];
    CHECK(pthread_barrier_init(&opened, NULL, 5) == 0, "pthread_barrier_init");
    for (unsigned i = 0; i < 4; i++)
        threads[i] = start_thread(await_and_exercise, NULL);
    open_library(RTLD_NOW);
    pthread_barrier_wait(&opened);
    for (unsigned i = 0; i < 4; i++)
        join_thread(threads[i]);
}

/* A thread that has used it ends after it was closed. */
static pthread_barrier_t closed;
static void *exercise_and_wait(void *unused) {
    exercise(unused);
    pthread_barrier_wait(&opened);
    pthread_barrier_wait(&closed);
    return unused;
}

CASE(closing_it_harms_no_thread) {
    CHECK(pthread_barrier_init(&opened, NULL, 5) == 0, "pthread_barrier_init");
    CHECK(pthread_barrier_init(&closed, NULL, 5) == 0, "pthread_barrier_init");
    for (unsigned round = 0; round < 10; round++) {
        pthread_t threads[4];
        void *library = open_library(RTLD_NOW);
        for (unsigned i = 0; i < 4; i++)
            threads[i] = start_thread(exercise_and_wait, NULL);
        pthread_barrier_wait(&opened);
        CHECK(dlclose(library) == 0, "%s", dlerror());
        pthread_barrier_wait(&closed);
        for (unsigned i = 0; i < 4; i++)
            join_thread(threads[i]);
    }
}

CASE(it_opens_bound_to_itself_first) {
    open_library(RTLD_NOW | RTLD_DEEPBIND);
    exercise_with_threads();
}

/* Nothing tells it then that a thread ends. */
CASE(it_serves_although_no_key_is_left) {
    pthread_key_t key;
    unsigned count = 0;
    while (pthread_key_create(&key, NULL) == 0)
        count++;
    CHECK(count > 0, "there was none to begin with");
    open_library(RTLD_NOW);
    for (unsigned round = 0; round < 20; round++)
        exercise_with_threads();
}
