// A shop's shelf in C++, for the sample profiles of other tools: calls of several depths, recursion, two threads,
// memory that stays and memory that is freed. With -DTCMALLOC and -ltcmalloc it writes what only a function of
// tcmalloc gives: the sampled heap and the growth of the heap.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#ifdef TCMALLOC
#include <gperftools/malloc_extension.h>
#endif

#define APART __attribute__((noinline))

namespace shop {

struct Item {
  std::string name;
  std::unique_ptr<char[]> picture;
};

struct Branch {
  std::unique_ptr<Branch> left, right;
  char leaves[200];
};

class Shelf {
 public:
  APART void stock(int count) {
    for (int i = 0; i < count; i++) items_.push_back(item(i));
  }
  APART void sell(int count) {
    while (count-- > 0 && !items_.empty()) items_.pop_back();
  }

 private:
  APART static Item item(int i) {
    Item item;
    item.name = "an item whose name is too long to be kept inside, number " + std::to_string(i);
    item.picture.reset(picture(1000 + i % 7));
    return item;
  }
  APART static char* picture(size_t size) {
    char* bytes = new char[size];
    memset(bytes, 1, size);
    return bytes;
  }
  std::vector<Item> items_;
};

APART std::unique_ptr<Branch> grow(int depth) {
  auto branch = std::make_unique<Branch>();
  if (depth > 0) {
    branch->left = grow(depth - 1);
    branch->right = grow(depth - 1);
  }
  return branch;
}

APART char* ledger(size_t size) {
  char* pages = static_cast<char*>(malloc(size));
  memset(pages, 2, size);
  return pages;
}

}  // namespace shop

static void write(const char* path, const std::string& text) {
  if (FILE* file = fopen(path, "w")) {
    fwrite(text.data(), 1, text.size(), file);
    fclose(file);
  }
}

int main(int argc, char** argv) {
  shop::Shelf shelf;
  shelf.stock(2000);
  shelf.sell(500);
  auto tree = shop::grow(4);
  char* ledger = shop::ledger(3 << 20);
  std::thread evening([] {
    auto* second = new shop::Shelf;  // stays
    second->stock(700);
    free(shop::ledger(100000));
  });
  evening.join();
#ifdef TCMALLOC
  std::string sample, growth;
  MallocExtension::instance()->GetHeapSample(&sample);
  MallocExtension::instance()->GetHeapGrowthStacks(&growth);
  if (argc > 2) {
    write(argv[1], sample);
    write(argv[2], growth);
  }
#endif
  // Without running destructors: what was in use now is what a dump at exit says.
  fprintf(stderr, "%d%d\n", ledger[0], tree->leaves[0]);
  exit(0);
}
