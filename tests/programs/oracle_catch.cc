// scenario: oracle: allocations while exceptions are on their way: in destructors, handlers, copies of what is thrown
// build: g++ -g
// variant: O0 -O0
// variant: O2 -O2 -fomit-frame-pointer
// variant: O2-framed -O2 -fno-omit-frame-pointer
// variant: O3 -O3
#include "expect.h"
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static long caught;

struct Thrown {
    std::string text;
    explicit Thrown(size_t n) : text(n, 'x') {}
    Thrown(const Thrown &other) : text(other.text + "again") {}
};

struct Guard {
    size_t size;
    std::unique_ptr<char[]> block;
    explicit Guard(size_t size) : size(size), block(new char[size]) {}
    // While the stack is being unwound, frames lie between this one and the one it cleans up for.
    ~Guard() {
        std::vector<char> more(size + 7);
        char *room = more.data();
        keep(room);
    }
};

__attribute__((noinline)) static long down(int depth, size_t n) {
    Guard guard(100 + n);
    if (depth == 0) {
        if (n % 3 == 0) throw Thrown(1000 + n);
        if (n % 3 == 1) throw std::runtime_error(std::string(2000 + n, 'y'));
        throw std::make_shared<Guard>(3000 + n);
    }
    if (depth % 3 == 2) {
        try {
            return down(depth - 1, n) + 1;
        } catch (const std::exception &error) {
            // A handler that throws on, with an allocation of its own.
            std::string text(error.what());
            text += "onwards";
            throw std::runtime_error(text);
        }
    }
    if (depth % 5 == 4) {
        try {
            return down(depth - 1, n) + 1;
        } catch (...) {
            // The exception outlives its handler.
            std::exception_ptr kept = std::current_exception();
            Guard inner(50 + n);
            std::rethrow_exception(kept);
        }
    }
    return down(depth - 1, n) + 2;
}

__attribute__((noinline)) static void quiet(int depth, size_t n) noexcept {
    try {
        caught += down(depth, n);
    } catch (const Thrown &thrown) {
        std::string copy = thrown.text + "caught";
        caught += static_cast<long>(copy.size());
    } catch (const std::exception &error) {
        std::vector<std::string> texts(3, error.what());
        caught += static_cast<long>(texts.size());
    } catch (std::shared_ptr<Guard> guard) {
        std::vector<std::unique_ptr<Guard>> guards;
        guards.push_back(std::make_unique<Guard>(guard->size));
        caught += 1;
    }
    stay();
}

int main() {
    for (size_t n = 0; n < 300; n++) quiet(static_cast<int>(n % 25), n);
    say_number("caught", caught);
    return 0;
}
