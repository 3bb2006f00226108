/* A program that replaces forms that others do not think of: those of arrays, the sized delete, and the aligned ones. What it does not
 * replace stays the library's, or calls what it does. */
#include "check.h"

#include "blocks_of_its_own.h"

using Array = Blocks<0xa44a, 16>;
using Sized = Blocks<0x512ed, 16>;
using Aligned = Blocks<0xa1169ed, 64>;

void *operator new[](std::size_t size) { return Array::give(size); }
void operator delete[](void *block) noexcept { Array::take(block); }
void operator delete(void *block, std::size_t) noexcept { Sized::take(block); }
void *operator new(std::size_t size, std::align_val_t) { return Aligned::give(size); }
void operator delete(void *block, std::align_val_t) noexcept { Aligned::take(block); }

namespace {

const std::align_val_t wide{64};

/* Checks that exactly the blocks of these forms went through the program's operators of one kind, and none through the others. */
template <typename Kind, typename New, typename Delete> void check_pass(New allocate, Delete release) {
    std::size_t count = pass_blocks(allocate, release);
    CHECK(Kind::went(count), "another number than %zu of blocks", count);
    CHECK(Array::went(0) && Sized::went(0) && Aligned::went(0), "blocks went through operators of another kind");
}

struct None {
    static bool went(std::size_t) { return true; }
};

} // namespace

CASE(plain_forms_stay_the_librarys) {
    auto plain_new = [](std::size_t size) { return ::operator new(size); };
    auto nothrow_new = [](std::size_t size) { return ::operator new(size, std::nothrow); };
    check_pass<None>(plain_new, [](void *p, std::size_t) { ::operator delete(p); });
    check_pass<None>(plain_new, [](void *p, std::size_t) { ::operator delete(p, std::nothrow); });
    check_pass<None>(nothrow_new, [](void *p, std::size_t) { ::operator delete(p); });
    check_pass<None>(nothrow_new, [](void *p, std::size_t) { ::operator delete(p, std::nothrow); });
}

CASE(array_forms_lead_to_the_programs) {
    auto array_new = [](std::size_t size) { return ::operator new[](size); };
    auto nothrow_new = [](std::size_t size) { return ::operator new[](size, std::nothrow); };
    check_pass<Array>(array_new, [](void *p, std::size_t) { ::operator delete[](p); });
    check_pass<Array>(array_new, [](void *p, std::size_t size) { ::operator delete[](p, size); });
    check_pass<Array>(array_new, [](void *p, std::size_t) { ::operator delete[](p, std::nothrow); });
    check_pass<Array>(nothrow_new, [](void *p, std::size_t) { ::operator delete[](p); });
    check_pass<Array>(nothrow_new, [](void *p, std::size_t size) { ::operator delete[](p, size); });
}

CASE(the_sized_form_is_the_programs) {
    check_pass<Sized>([](std::size_t size) { return Sized::give(size); },
                      [](void *p, std::size_t size) { ::operator delete(p, size); });
}

CASE(aligned_forms_lead_to_the_programs) {
    auto aligned_new = [](std::size_t size) { return ::operator new(size, wide); };
    auto array_new = [](std::size_t size) { return ::operator new[](size, wide); };
    check_pass<Aligned>(aligned_new, [](void *p, std::size_t) { ::operator delete(p, wide); });
    check_pass<Aligned>(aligned_new, [](void *p, std::size_t size) { ::operator delete(p, size, wide); });
    check_pass<Aligned>(aligned_new, [](void *p, std::size_t) { ::operator delete(p, wide, std::nothrow); });
    check_pass<Aligned>(array_new, [](void *p, std::size_t) { ::operator delete[](p, wide); });
    check_pass<Aligned>(array_new, [](void *p, std::size_t size) { ::operator delete[](p, size, wide); });
    check_pass<Aligned>(array_new, [](void *p, std::size_t) { ::operator delete[](p, wide, std::nothrow); });
    check_pass<Aligned>([](std::size_t size) { return ::operator new(size, wide, std::nothrow); },
                        [](void *p, std::size_t) { ::operator delete(p, wide); });
    check_pass<Aligned>([](std::size_t size) { return ::operator new[](size, wide, std::nothrow); },
                        [](void *p, std::size_t size) { ::operator delete[](p, size, wide); });
}

CASE(forms_that_do_not_throw_catch_what_the_programs_throws) {
    CHECK(escape(::operator new[](SIZE_MAX, std::nothrow)) == nullptr, "a block");
    CHECK(escape(::operator new(SIZE_MAX, wide, std::nothrow)) == nullptr, "a block");
    CHECK(escape(::operator new[](SIZE_MAX, wide, std::nothrow)) == nullptr, "a block");
}
