/* A library in C++ for a program in C, which brings the C++ runtime with it. */
#include <cstddef>
#include <new>

namespace {

int handled;

void give_up() {
    handled++;
    std::set_new_handler(nullptr);
}

} // namespace

/* 1: new gives a block of `size` bytes; 2: it throws std::bad_alloc. */
extern "C" int new_and_delete(std::size_t size) {
    try {
        volatile char *block = new char[size];
        block[0] = 1;
        delete[] block;
        return 1;
    } catch (const std::bad_alloc &) {
        return 2;
    }
}

/* 1: the form that does not throw gives a block of `size` bytes; 2: NULL. */
extern "C" int new_without_throwing(std::size_t size) {
    void *block = ::operator new(size, std::nothrow);
    ::operator delete(block);
    return block != nullptr ? 1 : 2;
}

/* How often the new-handler is called while `allocate` asks for `size` bytes in vain. */
extern "C" int calls_of_the_handler(std::size_t size, int (*allocate)(std::size_t)) {
    handled = 0;
    std::set_new_handler(give_up);
    allocate(size);
    return handled;
}
