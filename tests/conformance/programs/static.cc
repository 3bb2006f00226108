/* A static program in C++: everything that threads, exceptions and containers need is linked with the library. */
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define PROVE_SERVED 0
#include "check.h"

static thread_local std::string local = "x";

CASE(containers_threads_and_exceptions_work) {
    std::vector<std::string> lines;
    for (unsigned i = 0; i < 1000; i++)
        lines.push_back(std::string(i, 'a'));
    std::thread([&] { local += lines.back(); }).join();
    CHECK(local == "x" && lines[999].size() == 999, "a thread's string is another's");
    bool caught = false;
    try {
        throw std::runtime_error(lines[100]);
    } catch (const std::exception &error) {
        caught = lines[100] == error.what();
    }
    CHECK(caught, "an exception is lost");
}

static unsigned handled;
static void give_up() {
    if (handled++ == 2)
        std::set_new_handler(nullptr);
}

CASE(too_much_is_bad_alloc) {
    const volatile size_t size = (size_t)1 << 60;
    std::set_new_handler(give_up);
    bool caught = false;
    try {
        CHECK(::operator new(size) == nullptr, "a block of %zu bytes", size);
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught && handled == 3, "caught: %d, handled: %u", caught, handled);
    CHECK(::operator new(size, std::nothrow) == nullptr, "a block of %zu bytes", size);
}
