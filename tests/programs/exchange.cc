// A contended heap: threads fill maps of strings, and hand them to each other, so that most strings are freed by a
// thread that did not make them.
//
// usage: exchange THREADS ROUNDS
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using Words = std::map<std::string, std::vector<std::string>>;

class Box {
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::unique_ptr<Words>> held;

  public:
    void put(std::unique_ptr<Words> words) {
        std::lock_guard<std::mutex> guard(lock);
        held.push_back(std::move(words));
        changed.notify_one();
    }
    std::unique_ptr<Words> take() {
        std::unique_lock<std::mutex> guard(lock);
        changed.wait(guard, [this] { return !held.empty(); });
        auto words = std::move(held.front());
        held.pop_front();
        return words;
    }
};

static std::unique_ptr<Words> make(unsigned seed) {
    auto words = std::make_unique<Words>();
    unsigned state = seed;
    for (int i = 0; i < 300; i++) {
        state = state * 1103515245 + 12345;
        auto &list = (*words)["a word that is too long to lie in its string " + std::to_string(state % 97)];
        list.push_back(std::string(20 + state / 65536 % 200, char('a' + i % 26)));
    }
    return words;
}

int main(int count, char **arguments) {
    int threads = count > 2 ? atoi(arguments[1]) : 0, rounds = count > 2 ? atoi(arguments[2]) : 0;
    if (threads < 1 || rounds < 1) {
        fprintf(stderr, "usage: exchange THREADS ROUNDS\n");
        return 2;
    }
    std::vector<Box> boxes(threads);
    std::vector<size_t> sums(threads);
    std::vector<std::thread> running;
    for (int number = 0; number < threads; number++)
        running.emplace_back([&, number] {
            size_t sum = 0;
            for (int round = 0; round < rounds; round++) {
                boxes[(number + 1) % threads].put(make(number * 7919 + round));
                auto words = boxes[number].take();
                for (const auto &[word, list] : *words)
                    for (const auto &text : list) sum += text.size() + word.size();
            }
            sums[number] = sum;
        });
    size_t total = 0;
    for (int number = 0; number < threads; number++) {
        running[number].join();
        total += sums[number];
    }
    printf("%zu\n", total);
}
