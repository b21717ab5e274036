// Runs that are given up on the CPU.
#include "tests/stopped.h"

namespace tn = tensor;

TEST(Stop, BetweenTwoKernels) {
  tn::Generator random(7);
  const std::vector<tn::Tensor> in = {random.normal({32, 64}), random.normal({64, 64})};
  const auto f = [](const std::vector<tn::Tensor>& x) { return tn::check::chain(x, 40); };
  tn::check::expect_stops(tn::compile(f, in), in);
}
