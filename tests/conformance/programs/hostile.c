/* Places that are short of something: addresses, mappings, memory; and libraries that see another malloc. A case that this
 * machine does not allow says why and exits with 77. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "shortage.h"

/* A number in a file; -1: there is none. */
static long number_in(const char *path) {
    char text[64] = "";
    int file = open(path, O_RDONLY);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? strtol(text, NULL, 10) : -1;
}

static int write_to(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    if (file < 0)
        return 0;
    int done = write(file, text, strlen(text)) == (ssize_t)strlen(text);
    close(file);
    return done;
}

/* What becomes of the pages of large blocks that are to move. */
static enum {
    THEY_MOVE,
    THOSE_OF_ONE_MAPPING_MOVE,
    NOT_EACH_MAPPING_MOVES,
    THEIR_PLACE_IS_UNMAPPED,
    THEIR_PLACE_IS_TAKEN
} pages_that_move;
static unsigned moves, refused_moves;
static unsigned char *taken;
enum { TAKEN = 64 << 10, MOVED_FROM = 512 << 10 };

/* Whether all of it lies in one mapping. (Without a call of malloc's: this is asked in the middle of one.) */
static int in_one_mapping(uintptr_t start, size_t size) {
    static char text[1 << 20];
    size_t length = 0;
    int file = open("/proc/self/maps", O_RDONLY);
    CHECK(file >= 0, "/proc/self/maps");
    for (ssize_t count; (count = read(file, text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)count;
    close(file);
    text[length] = 0;
    for (char *line = text; *line != 0; line = strchr(line, '\n') + 1) {
        char *rest;
        uintptr_t first = strtoul(line, &rest, 16), end = strtoul(rest + 1, NULL, 16);
        if (first <= start && start < end)
            return start + size <= end;
    }
    return 0;
}

/* Whether the system moves these pages, as it is to be. */
static int they_move(void *from, size_t size) {
    switch (pages_that_move) {
    case THEY_MOVE:
        return 1;
    case THOSE_OF_ONE_MAPPING_MOVE:
        return in_one_mapping((uintptr_t)from, size);
    case NOT_EACH_MAPPING_MOVES:
        return in_one_mapping((uintptr_t)from, size) && moves % 3 != 2;
    default:
        return 0;
    }
}

/* As Linux does before 6.17 where the pages lie in several mappings: where it refuses it has made a hole already. Another thread may map something there. */
void *mremap(void *from, size_t size, size_t wanted, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *to = va_arg(rest, void *);
    va_end(rest);
    int is_large = (flags & MREMAP_FIXED) && (pages_that_move < THEIR_PLACE_IS_UNMAPPED || size >= MOVED_FROM);
    int is_moved = !is_large || they_move(from, size);
    moves += (unsigned)is_large;
    if (is_moved)
        return (void *)syscall(SYS_mremap, from, size, wanted, flags, to);
    CHECK(munmap(to, wanted) == 0, "munmap");
    refused_moves++;
    if (pages_that_move == THEIR_PLACE_IS_TAKEN) {
        taken = mmap(to, TAKEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(taken == to, "mmap");
        fill(taken, TAKEN, 5);
    }
    errno = EFAULT;
    return MAP_FAILED;
}

/* Blocks that grow until they are long, each beside others, so that they cannot where they lie. */
static void grow_beside_others(void) {
    enum { ROUNDS = 3, LONG = 40 << 20, OTHER = 3 << 20 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned char *others[20], *block = NULL;
        unsigned count = 0;
        for (size_t size = 0, more = MOVED_FROM; size < LONG; more = size + size / 3) {
            block = realloc(block, more);
            CHECK(block != NULL && errno == 0, "no %zu bytes", more);
            CHECK(mismatch(block, 0, size, 1) == size, "lost by realloc to %zu", more);
            fill(block, more, 1);
            size = more;
            others[count] = malloc(OTHER);
            fill(others[count], OTHER, count);
            count++;
        }
        free(block);
        for (unsigned i = 0; i < count; i++) {
            CHECK(mismatch(others[i], 0, OTHER, i) == OTHER, "block %u is spoilt", i);
            free(others[i]);
        }
    }
    exercise_with_threads();
    if (refused_moves == 0)
        skip("nothing was to move: this system does not do it right, or addresses are limited");
}

CASE(a_system_that_moves_the_pages_of_one_mapping_at_a_time) {
    pages_that_move = THOSE_OF_ONE_MAPPING_MOVE;
    grow_beside_others();
    /* Once it is known, none is asked for that would be refused, but where a block was never moved. */
    CHECK(moves > 5 * refused_moves, "%u of %u moves were refused", refused_moves, moves);
}

CASE(pages_of_one_mapping_that_move_and_of_the_next_that_do_not) {
    pages_that_move = NOT_EACH_MAPPING_MOVES;
    /* Twice: how many mappings a block lies in, and so how many moves meet a second one, differs from run to run. */
    grow_beside_others();
    grow_beside_others();
    CHECK(refused_moves > 5, "only %u of %u moves were refused", refused_moves, moves);
}

CASE(a_system_that_unmaps_a_place_before_it_refuses_to_move_pages_there) {
    pages_that_move = THEIR_PLACE_IS_UNMAPPED;
    grow_beside_others();
    CHECK(refused_moves > 3, "only %u were to move", refused_moves);
}

CASE(a_place_that_another_takes_while_pages_were_to_move_there) {
    pages_that_move = THEIR_PLACE_IS_TAKEN;
    grow_beside_others();
    CHECK(refused_moves == 1, "%u were to move", refused_moves);
    CHECK(mismatch(taken, 0, TAKEN, 5) == TAKEN, "what another mapped there is spoilt");
}

static void *one_block(void *unused) {
    (void)unused;
    void *block = malloc(100);
    CHECK(block != NULL, "no block");
    free(block);
    return NULL;
}

CASE(no_more_mappings) {
    long most = number_in("/proc/sys/vm/max_map_count");
    if (most < 0 || most > 300000)
        skip("a process may have %ld mappings: to fill them would take too long", most);
    char *kept = malloc(10 << 20);
    fill(kept, 10 << 20, 1);
    /* Every second page has another protection, and is a mapping of its own. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size_t)most * 2;
    char *area = mmap(NULL, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(area != MAP_FAILED, "mmap");
    size_t made = 0;
    while (made < pages && mprotect(area + made * page, page, PROT_READ) == 0)
        made += 2;
    CHECK(made < pages, "there is no limit");
    unsigned failed = 0;
    void *blocks[100];
    for (unsigned i = 0; i < 100; i++) {
        blocks[i] = malloc((size_t)(i + 1) << 16);
        if (blocks[i] == NULL) {
            CHECK(errno == ENOMEM, "another error");
            failed++;
        } else {
            fill(blocks[i], (size_t)(i + 1) << 16, i);
        }
    }
    char *grown = realloc(kept, 30 << 20);
    if (grown != NULL)
        kept = grown;
    CHECK(mismatch(kept, 0, 10 << 20, 1) == 10 << 20, "lost by realloc");
    CHECK(failed > 0, "330 MiB come without a mapping");
    CHECK(munmap(area, pages * page) == 0, "munmap");
    for (unsigned i = 0; i < 100; i++) {
        CHECK(blocks[i] == NULL || mismatch(blocks[i], 0, (size_t)(i + 1) << 16, i) == (size_t)(i + 1) << 16, "block %u", i);
        free(blocks[i]);
    }
    free(kept);
    join_thread(start_thread(one_block, NULL));
    exercise_with_threads();
}

CASE(few_addresses_from_the_beginning) {
    if (getenv("FEW_ADDRESSES") == NULL) {
        struct rlimit limit = {256u << 20, 256u << 20};
        CHECK(setenv("FEW_ADDRESSES", "1", 1) == 0 && setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
        execl("/proc/self/exe", "/proc/self/exe", __func__, (char *)NULL);
        CHECK(0, "/proc/self/exe does not start");
    }
    exercise((void *)3);
    CHECK(malloc(300 << 20) == NULL && errno == ENOMEM, "300 MiB in 256 MiB of addresses");
    exercise((void *)4);
}

CASE(strict_overcommit) {
    long mode = number_in("/proc/sys/vm/overcommit_memory");
    if (mode != 2)
        skip("vm.overcommit_memory is %ld here; to make it 2 would change the whole machine", mode);
    exercise_with_threads();
}

/* The folder of this process's group for memory; its limit's file, its list of processes. */
static void own_group(char folder[600], const char **limit) {
    char line[512];
    FILE *groups = fopen("/proc/self/cgroup", "r");
    folder[0] = 0;
    while (groups != NULL && fgets(line, sizeof line, groups) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':') + 1, *path = strchr(controllers, ':') + 1;
        if (strncmp(controllers, "memory:", 7) == 0) {
            snprintf(folder, 600, "/sys/fs/cgroup/memory%s", path);
            *limit = "memory.limit_in_bytes";
            break;
        }
        if (controllers[0] == ':' && access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0) {
            snprintf(folder, 600, "/sys/fs/cgroup%s", path);
            *limit = "memory.max";
        }
    }
    if (groups != NULL)
        fclose(groups);
}

/* A member of what ample_statistics_json says. */
static size_t told(const char *name) {
    size_t (*statistics)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "ample_statistics_json");
    static char text[16384];
    CHECK(statistics != NULL && statistics(text, sizeof text) < sizeof text, "no statistics");
    const char *place = strstr(text, name);
    CHECK(place != NULL, "no %s in %s", name, text);
    return strtoul(place + strlen(name) + 2, NULL, 10);
}

static void live_in_64_mib(void) {
    enum { COUNT = 50 };
    void *blocks[COUNT];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            blocks[i] = malloc(1 << 20);
            CHECK(blocks[i] != NULL, "no block");
            fill(blocks[i], 1 << 20, i);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            CHECK(mismatch(blocks[i], 0, 1 << 20, i) == 1 << 20, "block %u", i);
            free(blocks[i]);
            /* Above three quarters of the limit nothing that is free stays. */
            if (i == 0)
                CHECK(told("retained_bytes") == 0, "%zu bytes are kept", told("retained_bytes"));
        }
        for (unsigned i = 0; i < 2; i++)
            exercise((void *)(uintptr_t)(round + 1));
    }
    _exit(0);
}

CASE(a_control_group_of_64_mib) {
    char folder[600], group[700], path[800], number[32];
    const char *limit = NULL;
    own_group(folder, &limit);
    if (folder[0] == 0)
        skip("there is no control group for memory");
    snprintf(group, sizeof group, "%s/ample-conformance-%d", folder, (int)getpid());
    if (mkdir(group, 0755) != 0)
        skip("%s: %s", group, strerror(errno));
    snprintf(path, sizeof path, "%s/%s", group, limit);
    if (!write_to(path, "67108864")) {
        int error = errno;
        rmdir(group);
        skip("%s: %s", path, strerror(error));
    }
    pid_t child = fork();
    if (child == 0) {
        snprintf(path, sizeof path, "%s/cgroup.procs", group);
        snprintf(number, sizeof number, "%d", (int)getpid());
        if (!write_to(path, number))
            _exit(77);
        setenv("IN_64_MIB", "1", 1);
        execl("/proc/self/exe", "/proc/self/exe", "in_64_mib", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
    rmdir(group);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip("no process may be moved to %s", group);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}

CASE(in_64_mib) {
    if (getenv("IN_64_MIB") != NULL)
        live_in_64_mib();
}

/* PHP opens its extensions so. */
static void *library_bound_to_itself_first(void) {
    void *library = dlopen("./hostile_library-c.so", RTLD_NOW | RTLD_DEEPBIND);
    CHECK(library != NULL, "%s", dlerror());
    return library;
}

CASE(a_library_bound_to_itself_first) {
    void *library = library_bound_to_itself_first();
    void *(*give)(size_t) = (void *(*)(size_t))dlsym(library, "give");
    void *(*sees)(void) = (void *(*)(void))dlsym(library, "malloc_it_sees");
    size_t (*copy_and_free)(const char *) = (size_t (*)(const char *))dlsym(library, "copy_and_free");
    CHECK(check_is_served(sees()), "it sees another malloc than that of %s", check_library());
    for (unsigned i = 0; i < 1000; i++) {
        CHECK(copy_and_free("between malloc and free") == 23 + 3, "a copy has another length");
        free(give(i));
    }
    CHECK(dlopen("./no_such_library.so", RTLD_NOW | RTLD_DEEPBIND) == NULL && strstr(dlerror(), "no_such_library") != NULL,
          "what is not there is opened, or not named");
    CHECK(dlclose(library) == 0, "%s", dlerror());
}

static void free_for_a_library_that_sees_another_malloc(void (*limit)(void), const char *name) {
    if (getenv("AMPLE_DEEPBIND") == NULL) {
        CHECK(setenv("AMPLE_DEEPBIND", "1", 1) == 0, "setenv");
        execl("/proc/self/exe", "/proc/self/exe", name, (char *)NULL);
        CHECK(0, "/proc/self/exe does not start");
    }
    limit();
    void *library = library_bound_to_itself_first();
    void *(*give)(size_t) = (void *(*)(size_t))dlsym(library, "give");
    unsigned (*borrow)(unsigned char *, size_t) = (unsigned (*)(unsigned char *, size_t))dlsym(library, "borrow");
    void *(*sees)(void) = (void *(*)(void))dlsym(library, "malloc_it_sees");
    CHECK(!check_is_served(sees()), "it sees the malloc of %s", check_library());
    for (size_t size = 1; size < (8u << 20); size = size * 3 / 2 + 1) {
        unsigned char *first = give(size), *second = give(size), *own = malloc(size);
        CHECK(malloc_usable_size(first) >= size, "%zu usable bytes of %zu", malloc_usable_size(first), size);
        free(first);
        second = realloc(second, size * 2);
        CHECK(second != NULL && second[0] == 5 && second[size - 1] == 5, "content of %zu bytes lost", size);
        second = realloc(second, size / 2 + 1);
        CHECK(second != NULL && second[size / 2] == 5, "content of %zu bytes lost", size);
        free(second);
        memset(own, 1, size);
        CHECK(borrow(own, size) == size, "what it borrows has another content");
        own = realloc(own, size + 100);
        CHECK(own != NULL && own[0] == 6 && own[size - 1] == 6, "what it gives back has another content");
        free(own);
    }
}

static void nothing_is_limited(void) {}

CASE(a_library_that_sees_another_malloc) { free_for_a_library_that_sees_another_malloc(nothing_is_limited, __func__); }

static void addresses_are_limited_now(void) {
    limit_addresses(1u << 30, 0);
}

CASE(a_library_that_sees_another_malloc_with_few_addresses) {
    free_for_a_library_that_sees_another_malloc(addresses_are_limited_now, __func__);
}

static void memory_is_locked_now(void) {
    if (mlockall(MCL_CURRENT) != 0)
        skip("mlockall: %s", strerror(errno));
}

CASE(a_library_that_sees_another_malloc_with_locked_memory) {
    free_for_a_library_that_sees_another_malloc(memory_is_locked_now, __func__);
}

static void addresses_were_limited_before(void) {
    if (getenv("FEW_ADDRESSES") == NULL) {
        CHECK(setenv("FEW_ADDRESSES", "1", 1) == 0, "setenv");
        limit_addresses(1u << 30, 0);
        execl("/proc/self/exe", "/proc/self/exe", "a_library_that_sees_another_malloc_with_few_addresses_from_the_beginning", (char *)NULL);
        CHECK(0, "/proc/self/exe does not start");
    }
}

CASE(a_library_that_sees_another_malloc_with_few_addresses_from_the_beginning) {
    free_for_a_library_that_sees_another_malloc(addresses_were_limited_before, __func__);
}

static volatile int storm_ends;

static void *allocate_in_the_storm(void *argument) {
    uint64_t state = (uintptr_t)argument;
    void *slots[100] = {NULL};
    while (!storm_ends) {
        unsigned slot = next_random(&state) % 100;
        free(slots[slot]);
        slots[slot] = malloc(1 + next_random(&state) % 50000);
    }
    for (unsigned i = 0; i < 100; i++)
        free(slots[i]);
    return NULL;
}

static void *fork_in_the_storm(void *unused) {
    for (unsigned i = 0; i < 40; i++) {
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            join_thread(start_thread(one_block, NULL));
            pid_t grandchild = fork();
            if (grandchild == 0) {
                for (size_t size = 1; size < (1u << 20); size = size * 5 / 4 + 1)
                    free(realloc(malloc(size), size * 2));
                _exit(0);
            }
            int status;
            _exit(grandchild > 0 && waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "a child ends with %#x", status);
    }
    return unused;
}

CASE(a_storm_of_forks) {
    pthread_t forking[4], allocating[3];
    for (uintptr_t i = 0; i < 3; i++)
        allocating[i] = start_thread(allocate_in_the_storm, (void *)(i + 1));
    for (unsigned i = 0; i < 4; i++)
        forking[i] = start_thread(fork_in_the_storm, NULL);
    for (unsigned i = 0; i < 4; i++)
        join_thread(forking[i]);
    storm_ends = 1;
    for (unsigned i = 0; i < 3; i++)
        join_thread(allocating[i]);
}
