// Counts the words of its standard input: what a compiler and a C++ program do all day.
#include <iostream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

int main() {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const std::regex word("[A-Za-z_]+(::[A-Za-z_]+)*");
    std::map<std::string, std::vector<std::ptrdiff_t>> places;
    std::unordered_map<char, std::size_t> initials;
    for (int round = 0; round < 50; round++) {
        for (std::sregex_iterator match(text.begin(), text.end(), word), end; match != end; ++match) {
            places[match->str()].push_back(match->position());
            initials[match->str()[0]]++;
        }
    }
    for (const auto &[name, positions] : places)
        std::cout << name << ' ' << positions.size() << ' ' << positions.back() << '\n';
    std::cout << initials.size() << '\n';
}
