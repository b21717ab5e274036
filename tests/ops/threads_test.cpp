// Reference operators on any number of threads: what an element is calculated from, and in which
// order, does not depend on who does it.
#include "tensor/threads.h"

#include <gtest/gtest.h>

#include <functional>

#include "src/core/parallel.h"
#include "src/trace/content.h"
#include "tensor/tensor.h"
#include "tests/seed.h"

namespace tensor {
namespace {

// The threads that are asked for, on however many cores.
class Threads {
 public:
  explicit Threads(int count) { set_threads(count); }
  ~Threads() { set_threads(0); }
};

struct Case {
  const char* name;
  std::function<Tensor()> run;
};

TEST(OperatorThreads, BitsDoNotDependOnThem) {
  Generator random(check::seed());
  const Tensor x = random.normal({7, 301, 517}), y = random.normal({301, 1}), half = x.astype(f16),
               whole = (x * 100).astype(i32), image = random.normal({2, 12, 61, 67}),
               filters = random.normal({10, 6, 3, 3}), tall = random.normal({1031, 70}),
               wide = random.normal({70, 1500}), boxes = random.uniform({37, 5}) * 40;
  const Case cases[] = {
      {"add", [&] { return x + y; }},
      {"turned",
       [&] {
         return exp(x.transpose({2, 0, 1})) * 0.5;
       }},
      {"broadcast",
       [&] {
         return broadcast_to(y, {9, 301, 517}) + x(0);
       }},
      {"astype", [&] { return x.astype(f64); }},
      {"sum of the first axis", [&] { return sum(x, 0); }},
      {"sum of the middle axis", [&] { return sum(x, 1); }},
      {"sum of the last axis", [&] { return sum(x, 2); }},
      {"sum of all", [&] { return sum(x); }},
      {"max",
       [&] {
         return max(x.transpose({1, 0, 2}), {0, 2});
       }},
      {"argmax", [&] { return argmax(x, 0); }},
      {"softmax", [&] { return softmax(x, -1); }},
      {"softmax of the first axis", [&] { return softmax(x, 0); }},
      {"layer_norm", [&] { return layer_norm(half); }},
      {"sort", [&] { return sort(x, 1); }},
      {"argsort", [&] { return argsort(x, -1); }},
      {"cumsum", [&] { return cumsum(whole, 2); }},
      {"tall product", [&] { return matmul(tall, wide(ellipsis, slice(0, 40))); }},
      {"wide product", [&] { return matmul(tall(slice(0, 90)), wide); }},
      {"product of halves", [&] { return matmul(tall.astype(f16), wide.astype(f16)); }},
      {"turned product", [&] { return matmul(wide.transpose(), tall.transpose()); }},
      {"products", [&] { return matmul(x, x.swapaxes(1, 2)); }},
      {"conv2d", [&] { return conv2d(image, filters, {}, {.padding = 1, .groups = 2}); }},
      {"roi_align",
       [&] {
         return roi_align(image, minimum(boxes, 60), {7, 7}, {});
       }},
  };
  for (const Case& c : cases) {
    const Tensor alone = [&] {
      const Threads one(1);
      return c.run();
    }();
    for (const int count : {2, 3, 8}) {
      const Threads some(count);
      EXPECT_TRUE(has_same_elements(c.run(), alone)) << c.name << ", " << count << " threads";
    }
  }
}

// What an executable may take is what its operators may take.
TEST(OperatorThreads, AreThoseOfTheExecutable) {
  const Threads many(8);
  const int all = cpu::operator_threads();
  EXPECT_EQ(all, threads());
  {
    const cpu::LoopScope one(-1, 1);
    EXPECT_EQ(cpu::operator_threads(), 1);
    const cpu::LoopScope any(-1, 0);
    EXPECT_EQ(cpu::operator_threads(), all);
  }
  EXPECT_EQ(cpu::operator_threads(), all);
}

}  // namespace
}  // namespace tensor
