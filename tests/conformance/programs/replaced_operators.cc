/* A program that replaces the two operators that most do, new(n) and delete(p): all other forms call them. */
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check.h"

#include "blocks_of_its_own.h"

using Plain = Blocks<0x1122334455667788, 16>;

void *operator new(std::size_t size) { return Plain::give(size); }
void operator delete(void *block) noexcept { Plain::take(block); }

namespace {

const std::align_val_t wide{64};

/* Checks that exactly the blocks of these forms went through the program's operators. */
template <typename New, typename Delete> void check_pass(New allocate, Delete release) {
    Plain::went(0);
    std::size_t count = pass_blocks(allocate, release);
    CHECK(Plain::went(count), "another number than %zu of blocks", count);
}

struct Object {
    int numbers[10];
    virtual ~Object() { escape(numbers); }
};

} // namespace

CASE(plain_forms_lead_to_the_programs) {
    check_pass([](std::size_t size) { return ::operator new(size); }, [](void *p, std::size_t) { ::operator delete(p); });
    check_pass([](std::size_t size) { return ::operator new(size); },
               [](void *p, std::size_t size) { ::operator delete(p, size); });
    check_pass([](std::size_t size) { return ::operator new(size); },
               [](void *p, std::size_t) { ::operator delete(p, std::nothrow); });
    ::operator delete(nullptr, std::size_t(8));
    ::operator delete(nullptr, std::nothrow);
}

CASE(array_forms_lead_to_the_programs) {
    check_pass([](std::size_t size) { return ::operator new[](size); },
               [](void *p, std::size_t) { ::operator delete[](p); });
    check_pass([](std::size_t size) { return ::operator new[](size); },
               [](void *p, std::size_t size) { ::operator delete[](p, size); });
    check_pass([](std::size_t size) { return ::operator new[](size); },
               [](void *p, std::size_t) { ::operator delete[](p, std::nothrow); });
    check_pass([](std::size_t size) { return ::operator new[](size); },
               [](void *p, std::size_t) { ::operator delete(p); });
}

CASE(forms_that_do_not_throw_lead_to_the_programs) {
    check_pass([](std::size_t size) { return ::operator new(size, std::nothrow); },
               [](void *p, std::size_t) { ::operator delete(p); });
    check_pass([](std::size_t size) { return ::operator new[](size, std::nothrow); },
               [](void *p, std::size_t size) { ::operator delete[](p, size); });
}

CASE(forms_that_do_not_throw_catch_what_the_programs_throws) {
    for (std::size_t size : {SIZE_MAX, SIZE_MAX / 2, std::size_t(1) << 60}) {
        CHECK(escape(::operator new(size, std::nothrow)) == nullptr, "%#zx bytes", size);
        CHECK(escape(::operator new[](size, std::nothrow)) == nullptr, "%#zx bytes", size);
        bool caught = false;
        try {
            escape(::operator new[](size));
        } catch (const std::bad_alloc &) {
            caught = true;
        }
        CHECK(caught, "no bad_alloc for %#zx bytes", size);
    }
}

/* They have primaries of their own. */
CASE(aligned_forms_stay_the_librarys) {
    Plain::went(0);
    auto aligned_new = [](std::size_t size) { return ::operator new(size, wide); };
    auto aligned_array_new = [](std::size_t size) { return ::operator new[](size, wide); };
    pass_blocks(aligned_new, [](void *p, std::size_t) { ::operator delete(p, wide); });
    pass_blocks(aligned_new, [](void *p, std::size_t size) { ::operator delete(p, size, wide); });
    pass_blocks(aligned_new, [](void *p, std::size_t) { ::operator delete(p, wide, std::nothrow); });
    pass_blocks(aligned_array_new, [](void *p, std::size_t) { ::operator delete[](p, wide); });
    pass_blocks(aligned_array_new, [](void *p, std::size_t size) { ::operator delete[](p, size, wide); });
    pass_blocks(aligned_array_new, [](void *p, std::size_t) { ::operator delete[](p, wide, std::nothrow); });
    pass_blocks([](std::size_t size) { return ::operator new(size, wide, std::nothrow); },
                [](void *p, std::size_t) { ::operator delete(p, wide); });
    pass_blocks([](std::size_t size) { return ::operator new[](size, wide, std::nothrow); },
                [](void *p, std::size_t) { ::operator delete[](p, wide); });
    CHECK(Plain::went(0), "blocks of the aligned forms went through the plain ones");
}

CASE(expressions_lead_to_the_programs) {
    Plain::went(0);
    for (int i = 0; i < 100; i++) {
        Object *object = static_cast<Object *>(escape(new Object));
        delete object;
        Object *objects = static_cast<Object *>(escape(new Object[3]));
        delete[] objects;
        int *numbers = static_cast<int *>(escape(new int[10]));
        delete[] numbers;
        int *number = static_cast<int *>(escape(new (std::nothrow) int));
        delete number;
    }
    CHECK(Plain::went(400), "another number of blocks");
}

CASE(containers_lead_to_the_programs) {
    Plain::went(0);
    {
        std::map<int, std::string> words;
        for (int i = 0; i < 10000; i++)
            words[i * 7919 % 10007] = std::string(i % 100, 'x');
        std::vector<std::string> sorted;
        for (const auto &word : words)
            sorted.push_back(word.second);
        std::stable_sort(sorted.begin(), sorted.end());
        auto shared = std::make_shared<Object>();
        auto several = std::make_unique<Object[]>(5);
        CHECK(words.size() == 10000 && escape(shared.get()) != escape(several.get()), "%zu words", words.size());
    }
    CHECK(Plain::given == Plain::taken && Plain::given > 15000, "%zu blocks, %zu of them came back",
          Plain::given, Plain::taken);
}
