/* A program in C opens a library in C++ for itself alone: the C++ runtime is in no scope that a look-up by name searches. */
#include "check.h"

static void *library;

static int (*function(const char *name))(size_t) {
    if (library == NULL)
        library = dlopen("./plugin_library-cc.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "%s", dlerror());
    int (*found)(size_t) = (int (*)(size_t))dlsym(library, name);
    CHECK(found != NULL, "%s", dlerror());
    CHECK(dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv") == NULL, "the C++ runtime is in the program's scope");
    return found;
}

static const size_t huge[] = {SIZE_MAX / 2 - 100, (size_t)1 << 60, (size_t)1 << 47};

CASE(huge_requests_throw_bad_alloc_in_the_library) {
    int (*new_and_delete)(size_t) = function("new_and_delete");
    for (unsigned i = 0; i < sizeof huge / sizeof *huge; i++) {
        CHECK(new_and_delete(huge[i]) == 2, "%#zx bytes", huge[i]);
        CHECK(new_and_delete(100) == 1, "100 bytes");
    }
}

CASE(huge_nothrow_requests_give_null_in_the_library) {
    int (*new_without_throwing)(size_t) = function("new_without_throwing");
    for (unsigned i = 0; i < sizeof huge / sizeof *huge; i++) {
        CHECK(new_without_throwing(huge[i]) == 2, "%#zx bytes", huge[i]);
        CHECK(new_without_throwing(100) == 1, "100 bytes");
    }
}

CASE(the_new_handler_of_the_library_is_called) {
    int (*calls)(size_t, int (*)(size_t)) = (int (*)(size_t, int (*)(size_t)))function("calls_of_the_handler");
    for (unsigned i = 0; i < sizeof huge / sizeof *huge; i++) {
        CHECK(calls(huge[i], function("new_and_delete")) == 1, "%#zx bytes", huge[i]);
        CHECK(calls(huge[i], function("new_without_throwing")) == 1, "%#zx bytes", huge[i]);
    }
}
