// run() refuses outputs that lie in the memory of inputs or of each other.
#include <gtest/gtest.h>

#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

tn::Executable two_outputs() {
  const Tensor x = tn::zeros({4, 4});
  return tn::compile(
      [](const Tensors& in) -> Tensors {
        return {in[0] + in[1], in[0] - in[1]};
      },
      Tensors{x, x});
}

std::string refusal(const tn::Executable& f, const Tensors& inputs, Tensors outputs) {
  return tn::check::error_of([&] { f.run(inputs, outputs); });
}

TEST(Overlap, OutputsInInputsOrEachOtherAreRefusedBeforeAnythingIsWritten) {
  const tn::Executable f = two_outputs();
  const Tensor memory = tn::arange(64).astype(tn::f32), before = tn::copy(memory);
  const auto part = [&](std::int64_t begin) {
    return memory(tn::slice(begin, begin + 16)).reshape({4, 4});
  };
  const std::string mend = ", need memory of its own: use empty(shape, dtype)";
  EXPECT_EQ(refusal(f, {part(0), part(16)}, {part(16), part(32)}),
            "run: output 0 lies in the memory of input 1" + mend);
  EXPECT_EQ(refusal(f, {part(0), part(0)}, {part(32), part(15)}),
            "run: output 1 lies in the memory of input 0" + mend);  // by one element
  EXPECT_EQ(refusal(f, {part(0), part(16)}, {part(32), part(47)}),
            "run: output 1 lies in the memory of output 0" + mend);
  // An input that goes backwards: its first element is its last in memory.
  EXPECT_EQ(refusal(f, {tn::flip(part(0)), part(16)}, {part(32), part(0)}),
            "run: output 1 lies in the memory of input 0" + mend);
  EXPECT_TRUE(tn::all(memory == before).item<bool>());
}

TEST(Overlap, NeighboursAndInputsThatShareAreFine) {
  const tn::Executable f = two_outputs();
  const Tensor memory = tn::arange(64).astype(tn::f32);
  const auto part = [&](std::int64_t begin) {
    return memory(tn::slice(begin, begin + 16)).reshape({4, 4});
  };
  EXPECT_EQ(refusal(f, {part(0), tn::flip(part(0))}, {part(16), part(32)}), "no error");
  EXPECT_TRUE(tn::all(part(16) == 15).item<bool>());  // i + (15 - i)
}

TEST(Overlap, EmptyTensorsLieNowhere) {
  const Tensor empty = tn::zeros({0, 4});
  const tn::Executable f =
      tn::compile([](const Tensors& in) -> Tensors { return {in[0] * 2.0}; }, Tensors{empty});
  EXPECT_EQ(refusal(f, {empty}, {empty}), "no error");
}

}  // namespace
