/* C++ objects that outlive the allocator's knowledge of their thread, or of the program. */
#include <atomic>
#include <map>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "check.h"

namespace {

std::map<int, std::string> make_map(int count) {
    std::map<int, std::string> map;
    for (int i = 0; i < count; i++)
        map[i] = std::string(std::size_t(i % 300), 'm');
    return map;
}

/* Constructed before main. */
const std::map<int, std::string> static_map = make_map(1000);

std::atomic<unsigned> destroyed;
std::atomic<void *> handed_over;

/* Allocates and frees in its destructor, and leaves a block to be freed elsewhere. */
struct Mourner {
    std::vector<std::string> lines{100, std::string(50, 'a')};

    void add() { lines.emplace_back(2000, 'b'); }

    ~Mourner() {
        std::map<int, std::string> map = make_map(500);
        CHECK(map.size() == 500 && lines[0] == std::string(50, 'a'), "content lost");
        for (std::size_t i = 0; i < 200; i++)
            lines.emplace_back(i * 11, 'c');
        void *block = ::operator new(400);
        ::operator delete(handed_over.exchange(block));
        destroyed++;
    }
};

thread_local Mourner first_mourner;
thread_local Mourner second_mourner;

} // namespace

CASE(static_objects_live_on) {
    CHECK(static_map.size() == 1000 && static_map.at(299) == std::string(299, 'm'), "content lost");
}

CASE(thread_local_destructors_allocate) {
    constexpr unsigned ROUNDS = 100, THREADS = 8;
    std::size_t before = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < THREADS; i++)
            threads.emplace_back([i] {
                /* Registered as the thread's first call, or after others. */
                if (i % 2 == 0)
                    make_map(100);
                first_mourner.add();
                make_map(100);
                second_mourner.add();
            });
        for (std::thread &thread : threads)
            thread.join();
        ::operator delete(handed_over.exchange(nullptr));
        if (round == ROUNDS / 2)
            before = status_bytes("VmRSS:");
    }
    CHECK(destroyed == ROUNDS * THREADS * 2, "%u destructors ran", destroyed.load());
    CHECK(status_bytes("VmRSS:") < before + (32u << 20), "dying threads leak: %zu, then %zu bytes", before,
          status_bytes("VmRSS:"));
}

namespace {

/* Destroyed after main, before the objects that were made before it. */
struct LastWord {
    std::map<int, std::string> map = make_map(200);
    ~LastWord() {
        map = make_map(2000);
        _exit(map.size() == 2000 && static_map.size() == 1000 ? 42 : 1);
    }
};

} // namespace

CASE(static_destructors_allocate) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        static LastWord last_word;
        first_mourner.add();
        escape(&last_word);
        std::exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42, "status %#x", unsigned(status));
}
