// C++: templates, operators, inlined frames, blocks of many sizes.
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace market {

struct Stall {
    std::string name;
    std::vector<int> prices;
};

class Hall {
public:
    inline __attribute__((always_inline)) Stall &open(const std::string &name)
    {
        auto &stall = stalls[name];
        if (!stall)
            stall = std::make_unique<Stall>();
        stall->name = name;
        return *stall;
    }
    void close(const std::string &name) { stalls.erase(name); }
    int operator()(int n) const
    {
        return *std::make_unique<int>(n);
    }
private:
    std::map<std::string, std::unique_ptr<Stall>> stalls;
};

} // namespace market

static void trade(market::Hall &hall, int stalls)
{
    for (int i = 0; i < stalls; i++) {
        auto &stall = hall.open("stall with a long name, number " + std::to_string(i));
        for (int price = 0; price < i % 40; price++)
            stall.prices.push_back(price);
    }
}

int main()
{
    auto *hall = new market::Hall;
    trade(*hall, 300);
    for (int i = 0; i < 300; i += 2)
        hall->close("stall with a long name, number " + std::to_string(i));
    auto add = [&](int n) { return new int[n]; };
    for (int i = 1; i < 50; i++)
        delete[] add(i);
    int sum = 0;
    for (int i = 0; i < 10; i++)
        sum += (*hall)(i);
    return sum == 45 ? 0 : 1;
}
