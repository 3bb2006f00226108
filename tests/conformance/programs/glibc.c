/* What glibc's callers ask besides blocks: the heap's figures, and memory back. */
#include <sys/resource.h>

#include "check.h"

enum { BLOCKS = 20000, SIZE = 1000, LARGE = 3 << 20 };

static void *blocks[BLOCKS];

static void allocate_all(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(SIZE);
        fill(blocks[i], SIZE, i);
    }
}

static void free_all(void) {
    for (unsigned i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

CASE(the_library_answers_all_of_them) {
    static const char *const names[] = {
        "mallinfo", "mallinfo2", "malloc_info", "malloc_stats", "malloc_trim", "mallopt",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(check_is_served(dlsym(RTLD_DEFAULT, names[i])), "%s is not served by %s", names[i], check_library());
}

CASE(mallinfo2_follows_what_is_allocated) {
    struct mallinfo2 before = mallinfo2();
    allocate_all();
    void *large = malloc(LARGE);
    struct mallinfo2 during = mallinfo2();
    size_t more = during.uordblks - before.uordblks, asked = (size_t)BLOCKS * SIZE + LARGE;
    CHECK(more >= asked && more < asked + asked / 5, "%zu more bytes are allocated, %zu were asked for", more, asked);
    CHECK(during.hblks == before.hblks + 1, "%zu large blocks, %zu before", during.hblks, before.hblks);
    CHECK(during.hblkhd - before.hblkhd >= LARGE, "%zu bytes in large blocks", during.hblkhd);
    CHECK(during.arena >= (size_t)BLOCKS * SIZE, "arena %zu", during.arena);
    free(large);
    free_all();
    malloc_trim(0);
    struct mallinfo2 after = mallinfo2();
    CHECK(after.uordblks < before.uordblks + asked / 20, "%zu bytes stay allocated", after.uordblks);
    CHECK(after.hblks == before.hblks, "%zu large blocks stay", after.hblks);
}

CASE(mallinfo_says_the_same_in_small) {
    allocate_all();
    struct mallinfo2 wide = mallinfo2();
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo narrow = mallinfo();
    CHECK((size_t)narrow.uordblks == wide.uordblks && (size_t)narrow.arena == wide.arena, "%d, %zu",
          narrow.uordblks, wide.uordblks);
    free_all();
}

CASE(malloc_trim_gives_memory_back_at_once) {
    allocate_all();
    size_t full = status_bytes("RssAnon:");
    free_all();
    int first = malloc_trim(0), second = malloc_trim(0);
    CHECK(first == 1, "nothing was given back");
    CHECK(second == 0, "something was given back twice");
    size_t trimmed = status_bytes("RssAnon:");
    CHECK(full - trimmed > (size_t)BLOCKS * SIZE * 9 / 10, "%zu bytes of %zu stay resident", trimmed, full);
}

/* A large block that is filled, and freed. */
static void use_large(unsigned tag) {
    enum { EACH = 256 << 10 };
    void *block = malloc(EACH);
    fill(block, EACH, tag);
    free(block);
}

/* Milliseconds since some moment. */
static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* protobuf's library for Python trims after every 10 000 frees. */
CASE(whoever_trims_by_habit_pays_for_it_at_a_pace_only) {
    enum { ROUNDS = 2000, AT_ONCE = 8, PACE_MS = 125 };
    int (*ample_trim)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "ample_trim");
    CHECK(ample_trim != NULL, "no ample_trim");
    allocate_all();
    long start = now_ms(), served = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        use_large(round);
        served += malloc_trim(0);
    }
    long most = AT_ONCE + (now_ms() - start) / PACE_MS + 1;
    CHECK(served >= AT_ONCE && served <= most, "%ld trims, of %d to %ld", served, AT_ONCE, most);
    use_large(ROUNDS);
    CHECK(ample_trim() == 1, "ample_trim keeps to a pace");
    /* A quarter of the memory and 8 MiB go back at any pace, unless they have already: then, only less than that stays. */
    size_t full = status_bytes("RssAnon:");
    free_all();
    malloc_trim(0);
    size_t trimmed = status_bytes("RssAnon:"), most_kept = 8 << 20;
    CHECK(full - trimmed > (size_t)BLOCKS * SIZE * 9 / 10 - most_kept, "%zu bytes of %zu stay resident", trimmed, full);
}

CASE(malloc_info_and_mallinfo2_agree) {
    allocate_all();
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream != NULL, "open_memstream");
    struct mallinfo2 info = mallinfo2();
    CHECK(malloc_info(0, stream) == 0, "malloc_info");
    CHECK(malloc_info(1, stream) == EINVAL, "malloc_info takes options");
    fclose(stream);
    CHECK(strncmp(text, "<malloc version=\"1\">", 20) == 0, "it begins: %.40s", text);
    CHECK(strcmp(text + length - 10, "</malloc>\n") == 0, "it ends: %s", text + length - 10);
    const char *place = strstr(text, "allocated=\"");
    CHECK(place != NULL, "no allocated bytes in %s", text);
    size_t allocated = strtoul(place + strlen("allocated=\""), NULL, 10);
    size_t apart = allocated > info.uordblks ? allocated - info.uordblks : info.uordblks - allocated;
    CHECK(apart < 64 << 10, "%zu and %zu", allocated, info.uordblks);
    free_all();
}

CASE(mallopt_takes_what_it_knows) {
    const int known[] = {M_MXFAST, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_TEST, M_ARENA_MAX};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK(mallopt(known[i], 64) == 1, "parameter %d", known[i]);
    CHECK(mallopt(12345, 1) == 0, "an unknown parameter is taken");
    CHECK(mallopt(M_PERTURB, 0) == 1 && mallopt(M_CHECK_ACTION, 0) == 1, "nothing is asked for");
    CHECK(mallopt(M_PERTURB, 1) == 0, "what is not done is taken");
}

CASE(malloc_stats_prints_to_standard_error) {
    int ends[2];
    CHECK(pipe(ends) == 0, "pipe");
    int before = dup(2);
    dup2(ends[1], 2);
    malloc_stats();
    dup2(before, 2);
    close(ends[1]);
    char text[4096];
    ssize_t length = read(ends[0], text, sizeof text - 1);
    CHECK(length > 0, "nothing was printed");
    text[length] = 0;
    CHECK(strstr(text, "bytes") != NULL, "it says: %s", text);
}

static void *allocate_free_and_wait(void *argument) {
    enum { COUNT = 100000 };
    void **mine = malloc(COUNT * sizeof *mine);
    for (unsigned i = 0; i < COUNT; i++) {
        mine[i] = malloc(512);
        fill(mine[i], 512, i);
    }
    pthread_barrier_wait(argument);
    for (unsigned i = 0; i < COUNT; i++)
        free(mine[i]);
    free(mine);
    pthread_barrier_wait(argument);
    /* From here on nobody allocates or frees. */
    pthread_barrier_wait(argument);
    return NULL;
}

CASE(memory_comes_back_although_the_program_does_nothing) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 3);
    pthread_t threads[2] = {start_thread(allocate_free_and_wait, &barrier), start_thread(allocate_free_and_wait, &barrier)};
    pthread_barrier_wait(&barrier);
    size_t full = status_bytes("RssAnon:"), left = full;
    pthread_barrier_wait(&barrier);
    for (unsigned looks = 0; looks < 100 && left > full / 20; looks++) {
        usleep(100 * 1000);
        left = status_bytes("RssAnon:");
    }
    CHECK(left <= full / 20, "after ten seconds %zu bytes of %zu stay resident", left, full);
    pthread_barrier_wait(&barrier);
    join_thread(threads[0]);
    join_thread(threads[1]);
}

CASE(large_blocks_move_without_a_page_fault_for_each_page) {
    const size_t size = 64 << 20;
    unsigned char *block = malloc(size);
    fill(block, size, 5);
    for (unsigned rounds = 0; rounds < 3; rounds++) {
        /* Behind it there is no room. */
        void *wall = malloc(1 << 20);
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        block = realloc(block, size * (rounds + 2));
        getrusage(RUSAGE_SELF, &after);
        long faults = after.ru_minflt - before.ru_minflt;
        CHECK(faults < (long)(size / 4096 / 8), "%ld page faults", faults);
        CHECK(mismatch(block, 0, size, 5) == size, "the content is lost");
        block[size * (rounds + 2) - 1] = 1;
        free(wall);
    }
    free(block);
    unsigned char *zeroed = calloc(1, 4 * size);
    for (size_t i = 0; i < 4 * size; i += 4096)
        CHECK(zeroed[i] == 0, "byte %zu is not zero", i);
    free(zeroed);
}

/* A number after `name` in a text. */
static size_t number_after(const char *text, const char *name) {
    const char *place = strstr(text, name);
    CHECK(place != NULL, "no %s in %s", name, text);
    return strtoul(place + strlen(name), NULL, 10);
}

CASE(all_figures_come_from_one_place) {
    size_t (*statistics)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "ample_statistics_json");
    CHECK(statistics != NULL, "the library has no ample_statistics_json");
    static char json[16384], xml[16384];
    allocate_all();
    void *large = malloc(LARGE);
    for (unsigned i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
    FILE *stream = fmemopen(xml, sizeof xml, "w");
    CHECK(stream != NULL, "fmemopen");
    setvbuf(stream, NULL, _IONBF, 0);
    /* Nobody allocates from here on. */
    struct mallinfo2 info = mallinfo2();
    CHECK(malloc_info(0, stream) == 0 && statistics(json, sizeof json) < sizeof json, "no figures");
    CHECK(info.uordblks == number_after(json, "\"allocated_bytes\":"), "%zu in %s", info.uordblks, json);
    CHECK(info.uordblks == number_after(xml, "allocated=\""), "%zu in %s", info.uordblks, xml);
    CHECK(info.hblkhd == number_after(json, "\"large_bytes\":") && info.hblks == number_after(json, "\"large_blocks\":"), "%s", json);
    CHECK(info.ordblks == number_after(json, "\"room_blocks\":"), "%zu in %s", info.ordblks, json);
    CHECK(info.keepcost == number_after(json, "\"retained_bytes\":"), "%zu in %s", info.keepcost, json);
    CHECK(info.fordblks == number_after(json, "\"room_bytes\":") + info.keepcost, "%zu in %s", info.fordblks, json);
    CHECK(info.fordblks == number_after(strstr(xml, "rest"), "size=\""), "%s", xml);
    CHECK(info.arena + info.hblkhd == number_after(json, "\"active_bytes\":") + info.keepcost, "%zu in %s", info.arena, json);
    CHECK(number_after(xml, "resident=\"") == number_after(json, "\"resident_bytes\":"), "%s %s", xml, json);
    /* The class of the blocks: half of them are live. */
    char name[64];
    snprintf(name, sizeof name, "{\"block_bytes\":%zu,", malloc_usable_size(blocks[1]));
    const char *class = strstr(json, name);
    CHECK(class != NULL, "no %s in %s", name, json);
    size_t live = number_after(class, "\"live_blocks\":"), cached = number_after(class, "\"cached_blocks\":");
    CHECK(live >= BLOCKS / 2 && live < BLOCKS / 2 + BLOCKS / 10, "%zu live of %d", live, BLOCKS / 2);
    CHECK(live + cached + number_after(class, "\"room_blocks\":") >= BLOCKS, "%zu and %zu", live, cached);
    snprintf(name, sizeof name, "block_bytes=\"%zu\"", malloc_usable_size(blocks[1]));
    CHECK(live == number_after(strstr(xml, name), "live=\""), "%s", xml);
    for (unsigned i = 1; i < BLOCKS; i += 2)
        free(blocks[i]);
    free(large);
}
