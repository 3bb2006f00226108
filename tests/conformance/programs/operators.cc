/* C++'s operator new and operator delete in all their forms, and what happens when memory runs out. */
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <vector>

#include "check.h"

namespace {

/* All that the library must define, by the Itanium C++ ABI's mangled names (size_t is unsigned long). */
const char *const operators[] = {
    "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv", "_ZdaPv", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZdlPvm", "_ZdaPvm",
    "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t",
};

const std::size_t huge[] = {
    SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4096, std::size_t(PTRDIFF_MAX) + 1, PTRDIFF_MAX, std::size_t(1) << 56,
};

/* Writes and checks every byte of a block from an operator. */
void use(void *block, std::size_t size, std::size_t alignment) {
    block = escape(block);
    CHECK(block != nullptr, "no block of %zu bytes", size);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % alignment == 0, "%p is not aligned to %zu", block,
          alignment);
    fill(block, size, 5);
    CHECK(mismatch(escape(block), 0, size, 5) == size, "content lost at %p", block);
}

/* Calls body(size, alignment) over sizes from 0 to megabytes and alignments above the default. */
template <typename Body> void for_sizes_and_alignments(Body body) {
    for (std::size_t size = 0; size < (3u << 20); size = size * 3 / 2 + 1)
        for (std::size_t alignment = 32; alignment <= 65536; alignment *= 2)
            body(size, std::align_val_t(alignment));
}

/* Calls body(size) over sizes from 0 to megabytes. */
template <typename Body> void for_sizes(Body body) {
    for (std::size_t size = 0; size < (3u << 20); size = size * 9 / 8 + 1)
        body(size);
}

} // namespace

CASE(the_library_defines_every_operator) {
    for (const char *name : operators) {
        void *function = dlsym(RTLD_DEFAULT, name);
        CHECK(function != nullptr, "%s is not defined", name);
        CHECK(check_is_served(function), "%s is not served by %s", name, check_library());
    }
}

CASE(plain_new_and_delete) {
    for_sizes([](std::size_t size) {
        void *block = ::operator new(size);
        use(block, size, 16);
        ::operator delete(block);
    });
    ::operator delete(nullptr);
}

CASE(array_new_and_delete) {
    for_sizes([](std::size_t size) {
        void *block = ::operator new[](size);
        use(block, size, 16);
        ::operator delete[](block);
    });
    ::operator delete[](nullptr);
}

CASE(nothrow_new_and_delete) {
    for_sizes([](std::size_t size) {
        void *block = ::operator new(size, std::nothrow);
        use(block, size, 16);
        ::operator delete(block, std::nothrow);
        block = ::operator new[](size, std::nothrow);
        use(block, size, 16);
        ::operator delete[](block, std::nothrow);
    });
    ::operator delete(nullptr, std::nothrow);
    ::operator delete[](nullptr, std::nothrow);
}

CASE(aligned_new_and_delete) {
    for_sizes_and_alignments([](std::size_t size, std::align_val_t alignment) {
        void *block = ::operator new(size, alignment);
        use(block, size, std::size_t(alignment));
        ::operator delete(block, alignment);
        block = ::operator new[](size, alignment);
        use(block, size, std::size_t(alignment));
        ::operator delete[](block, alignment);
    });
    ::operator delete(nullptr, std::align_val_t(64));
    ::operator delete[](nullptr, std::align_val_t(64));
}

CASE(aligned_nothrow_new_and_delete) {
    for_sizes_and_alignments([](std::size_t size, std::align_val_t alignment) {
        void *block = ::operator new(size, alignment, std::nothrow);
        use(block, size, std::size_t(alignment));
        ::operator delete(block, alignment, std::nothrow);
        block = ::operator new[](size, alignment, std::nothrow);
        use(block, size, std::size_t(alignment));
        ::operator delete[](block, alignment, std::nothrow);
    });
}

CASE(sized_delete) {
    for_sizes([](std::size_t size) {
        void *block = ::operator new(size);
        use(block, size, 16);
        ::operator delete(block, size);
        block = ::operator new[](size);
        use(block, size, 16);
        ::operator delete[](block, size);
    });
    ::operator delete(nullptr, std::size_t(8));
    ::operator delete[](nullptr, std::size_t(8));
}

CASE(aligned_sized_delete) {
    for_sizes_and_alignments([](std::size_t size, std::align_val_t alignment) {
        void *block = ::operator new(size, alignment);
        use(block, size, std::size_t(alignment));
        ::operator delete(block, size, alignment);
        block = ::operator new[](size, alignment);
        use(block, size, std::size_t(alignment));
        ::operator delete[](block, size, alignment);
    });
}

CASE(new_of_zero_gives_distinct_blocks) {
    void *first = escape(::operator new(0)), *second = escape(::operator new(0));
    void *third = escape(::operator new[](0)), *fourth = escape(::operator new(0, std::align_val_t(64)));
    CHECK(first != nullptr && second != nullptr && third != nullptr && fourth != nullptr, "NULL");
    CHECK(first != second && first != third && first != fourth && second != third && second != fourth &&
              third != fourth, "two blocks at the same address");
    ::operator delete(first);
    ::operator delete(second);
    ::operator delete[](third);
    ::operator delete(fourth, std::align_val_t(64));
}

/* Objects, overaligned ones too, through new expressions and containers. */
CASE(objects_and_containers) {
    struct alignas(256) Wide {
        char bytes[300];
    };
    std::vector<Wide *> wide;
    for (int i = 0; i < 1000; i++) {
        Wide *object = static_cast<Wide *>(escape(new Wide));
        CHECK(reinterpret_cast<std::uintptr_t>(object) % 256 == 0, "%p", static_cast<void *>(object));
        wide.push_back(object);
    }
    for (Wide *object : wide)
        delete object;
    std::set<std::string> words;
    for (int i = 0; i < 20000; i++)
        words.insert(std::string(i % 100, 'x') + std::to_string(i));
    CHECK(words.size() == 20000, "%zu words", words.size());
}

namespace {

int destroyed;

struct Counted {
    std::string name = std::string(100, 'c');
    ~Counted() { destroyed++; }
};

/* Lets bad_alloc pass through `depth` frames with something to destroy in each. */
template <typename Allocate> __attribute__((noinline)) void descend(int depth, Allocate allocate) {
    Counted counted;
    escape(&counted);
    if (depth == 0)
        escape(allocate());
    else
        descend(depth - 1, allocate);
    escape(&counted);
}

template <typename Allocate> void check_throws(Allocate allocate) {
    destroyed = 0;
    bool caught = false;
    try {
        descend(9, allocate);
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught, "no bad_alloc");
    CHECK(destroyed == 10, "%d of 10 frames unwound", destroyed);
}

} // namespace

CASE(huge_requests_throw_bad_alloc_through_frames) {
    for (std::size_t size : huge) {
        check_throws([size] { return ::operator new(size); });
        check_throws([size] { return ::operator new[](size); });
        check_throws([size] { return ::operator new(size, std::align_val_t(64)); });
        check_throws([size] { return ::operator new[](size, std::align_val_t(4096)); });
        check_throws([size] { return ::operator new(size, std::align_val_t(1 << 30)); });
    }
    ::operator delete(escape(::operator new(100)));
}

CASE(huge_nothrow_requests_give_null) {
    for (std::size_t size : huge) {
        CHECK(escape(::operator new(size, std::nothrow)) == nullptr, "%#zx bytes", size);
        CHECK(escape(::operator new[](size, std::nothrow)) == nullptr, "%#zx bytes", size);
        CHECK(escape(::operator new(size, std::align_val_t(64), std::nothrow)) == nullptr, "%#zx", size);
        CHECK(escape(::operator new[](size, std::align_val_t(4096), std::nothrow)) == nullptr, "%#zx", size);
    }
}

namespace {

constexpr std::size_t WANTED = std::size_t(1) << 30;
int calls;
rlimit unlimited;

/* Leaves too little address space for WANTED bytes. */
void restrict_memory() {
    calls = 0;
    CHECK(getrlimit(RLIMIT_AS, &unlimited) == 0, "getrlimit");
    rlimit restricted = unlimited;
    restricted.rlim_cur = status_bytes("VmSize:") + (128u << 20);
    CHECK(setrlimit(RLIMIT_AS, &restricted) == 0, "setrlimit");
}

void lift_restriction() { CHECK(setrlimit(RLIMIT_AS, &unlimited) == 0, "setrlimit"); }

/* Makes memory available when it is called for the third time. */
void third_time_lucky() {
    if (++calls == 3)
        lift_restriction();
}

/* In a process of its own, since an allocator may keep the address space of a block that was freed. */
template <typename Allocate, typename Free> void check_retries(Allocate allocate, Free release) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child != 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "status %#x", unsigned(status));
        return;
    }
    restrict_memory();
    std::set_new_handler(third_time_lucky);
    char *block = static_cast<char *>(escape(allocate()));
    CHECK(calls == 3, "%d calls of the handler", calls);
    CHECK(block != nullptr, "no block");
    block[0] = block[WANTED - 1] = 1;
    release(block);
    _exit(0);
}

struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void refuse() {
    calls++;
    throw Refusal("not today");
}

void give_up() {
    calls++;
    throw std::bad_alloc();
}

} // namespace

CASE(the_new_handler_is_called_until_it_has_made_room) {
    const std::align_val_t alignment{4096};
    check_retries([] { return ::operator new(WANTED); }, [](void *p) { ::operator delete(p); });
    check_retries([] { return ::operator new[](WANTED); }, [](void *p) { ::operator delete[](p); });
    check_retries([] { return ::operator new(WANTED, std::nothrow); }, [](void *p) { ::operator delete(p); });
    check_retries([] { return ::operator new[](WANTED, std::nothrow); },
                  [](void *p) { ::operator delete[](p); });
    check_retries([=] { return ::operator new(WANTED, alignment); },
                  [=](void *p) { ::operator delete(p, alignment); });
    check_retries([=] { return ::operator new[](WANTED, alignment); },
                  [=](void *p) { ::operator delete[](p, alignment); });
    check_retries([=] { return ::operator new(WANTED, alignment, std::nothrow); },
                  [=](void *p) { ::operator delete(p, alignment); });
    check_retries([=] { return ::operator new[](WANTED, alignment, std::nothrow); },
                  [=](void *p) { ::operator delete[](p, alignment); });
}

namespace {

void *reserve;

/* Frees the program's reserve, then has nothing left to do. */
void free_reserve() {
    calls++;
    ::operator delete(reserve);
    std::set_new_handler(nullptr);
}

} // namespace

CASE(the_new_handler_may_free_a_reserve) {
    const std::size_t size = 200u << 20;
    reserve = escape(::operator new(size));
    restrict_memory();
    std::set_new_handler(free_reserve);
    void *block = escape(::operator new(size));
    CHECK(calls == 1, "%d calls of the handler", calls);
    bool caught = false;
    try {
        escape(::operator new(WANTED));
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught && calls == 1, "caught %d, calls %d", caught, calls);
    lift_restriction();
    ::operator delete(block);
}

CASE(the_new_handler_may_throw_an_exception_of_its_own) {
    std::set_new_handler(refuse);
    for (std::size_t size : huge) {
        calls = destroyed = 0;
        bool caught = false;
        try {
            descend(9, [size] { return ::operator new(size); });
        } catch (const Refusal &refusal) {
            caught = refusal.what() == std::string("not today");
        }
        CHECK(caught && calls == 1 && destroyed == 10, "caught %d, calls %d, frames %d", caught, calls,
              destroyed);
        caught = false;
        try {
            descend(9, [size] { return ::operator new[](size, std::align_val_t(64)); });
        } catch (const Refusal &) {
            caught = true;
        }
        CHECK(caught && calls == 2 && destroyed == 20, "caught %d, calls %d, frames %d", caught, calls,
              destroyed);
    }
    std::set_new_handler(nullptr);
}

CASE(nothrow_new_gives_null_when_the_new_handler_throws_bad_alloc) {
    std::set_new_handler(give_up);
    calls = 0;
    CHECK(escape(::operator new(SIZE_MAX, std::nothrow)) == nullptr, "a block");
    CHECK(escape(::operator new[](SIZE_MAX, std::nothrow)) == nullptr, "a block");
    CHECK(escape(::operator new(SIZE_MAX, std::align_val_t(64), std::nothrow)) == nullptr, "a block");
    CHECK(escape(::operator new[](SIZE_MAX, std::align_val_t(64), std::nothrow)) == nullptr, "a block");
    CHECK(calls == 4, "%d calls of the handler", calls);
    std::set_new_handler(nullptr);
}

CASE(new_leaves_errno_alone) {
    errno = 77;
    for_sizes([](std::size_t size) {
        void *block = escape(::operator new(size));
        CHECK(errno == 77, "operator new of %zu", size);
        ::operator delete(block);
        CHECK(errno == 77, "operator delete of %zu", size);
    });
}
