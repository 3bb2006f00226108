// Binary trees: threads build complete trees, count their nodes, and take them down from the leaves up (H. Boehm's GCBench; the Computer Language Benchmarks
// Game).
//
// usage: trees THREADS TREES DEEPEST [SHALLOWEST]
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

struct Node {
    std::unique_ptr<Node> left, right;
    explicit Node(int depth) {
        if (depth == 0) return;
        left = std::make_unique<Node>(depth - 1);
        right = std::make_unique<Node>(depth - 1);
    }
    ~Node() { left.reset(); }  // As programs do that free by hand; a destructor alone would begin at the right.
    size_t count() const { return 1 + (left ? left->count() + right->count() : 0); }
};

int main(int count, char **arguments) {
    auto number = [&](int index) { return count > index ? atoi(arguments[index]) : 0; };
    int threads = number(1), trees = number(2), deepest = number(3), shallowest = count > 4 ? number(4) : deepest;
    if (threads < 1 || trees < 1 || shallowest < 1 || deepest < shallowest || deepest > 25) {
        fprintf(stderr, "usage: trees THREADS TREES DEEPEST [SHALLOWEST], depths 1 to 25\n");
        return 2;
    }
    std::vector<size_t> nodes(threads);
    std::vector<std::thread> running;
    for (size_t &sum : nodes)
        running.emplace_back([&sum, trees, deepest, shallowest] {
            size_t here = 0;
            for (int tree = 0; tree < trees; tree++) here += Node(shallowest + tree % (deepest - shallowest + 1)).count();
            sum = here;
        });
    size_t total = 0;
    for (int index = 0; index < threads; index++) {
        running[index].join();
        total += nodes[index];
    }
    printf("%zu\n", total);
}
