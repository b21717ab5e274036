// cond and loop on a GPU: what is not chosen is passed over there, without the host.
#include "tensor/compile.h"
#include "tests/cuda/emulator/driver.h"
#include "tests/device/gpu.h"

namespace tensor {
namespace {

class ControlOnGpu : public OnGpu {
 protected:
  // A function of rows, as a GPU computes it again and again: the third time from a recorded graph.
  void expect_right(const std::function<Tensor(const Tensor&)>& function,
                    const std::vector<Tensor>& inputs) {
    const auto f = [&](const Tensors& in) -> Tensors { return {function(in[0])}; };
    const Executable compiled = compile(f, Tensors{inputs[0]}, {.device = gpu_, .fuse = fuse_});
    for (int repeat = 0; repeat < 3; ++repeat)
      for (const Tensor& x : inputs) expect_near(compiled({x})[0], function(x), 1e-5);
  }
  Tensor rows(double shift) { return random_.normal({24, 32}) + shift; }

  const Tensor weight_ = random_.normal({32, 32}) / 32.0;
  bool fuse_ = true;
};

TEST_F(ControlOnGpu, OnlyWhatIsChosenRuns) {
  const auto before = emulator::driver_counts();
  for (const bool fuse : {true, false}) {
    fuse_ = fuse;
    expect_right(
        [&](const Tensor& x) {
          const Tensor y = tanh(matmul(x, weight_));
          return cond(
              sum(x) > 0,
              [&] {
                const Tensor z = softmax(matmul(y, weight_), -1);
                return cond(
                    max(x) > 8, [&] { return matmul(z, weight_); }, [&] { return sort(z, 0); });
              },
              [&] { return matmul(matmul(y, weight_), weight_); });
        },
        {rows(-1), rows(1), rows(10)});
  }
  if (!is_pretended()) return;
  EXPECT_GT(emulator::driver_counts().bodies_run, before.bodies_run);
  EXPECT_GT(emulator::driver_counts().bodies_skipped, before.bodies_skipped);
}

TEST_F(ControlOnGpu, LoopsEnd) {
  expect_right(
      [&](const Tensor& x) {
        return loop(6, x, [&](const Tensor& state) {
          const Tensor next = tanh(matmul(state, weight_) * 8.0);
          return std::pair(max(abs(next)) > 0.2, next);
        });
      },
      {rows(0), rows(1) * 0.01, rows(5)});
}

// The condition comes from the host and the result goes there.
TEST_F(ControlOnGpu, ConditionsMayBeInputs) {
  const auto f = [&](const Tensors& in) -> Tensors {
    return {cond(
        in[0], [&] { return matmul(in[1], weight_); }, [&] { return in[1] * in[1]; })};
  };
  const Tensor x = rows(0);
  const Executable compiled = compile(f, Tensors{array({true}), x}, {.device = gpu_});
  for (int repeat = 0; repeat < 3; ++repeat)
    for (const bool flag : {true, false})
      expect_near(compiled({array({flag}), x})[0], f({array({flag}), x})[0], 1e-5);
}

}  // namespace
}  // namespace tensor
