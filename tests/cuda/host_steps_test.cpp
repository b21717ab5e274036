// What of a program for a GPU runs on the host, and that nobody needs to put up with it.
#include <gtest/gtest.h>

#include "src/compile.h"
#include "tensor/ops.h"
#include "tests/cuda/no_engine.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

using check::error_of;
using Tensors = std::vector<Tensor>;

void compile_without_host(const TensorFunction& function, const std::vector<TensorType>& inputs) {
  detail::compile_until(detail::Until::linked, function, inputs, {.host_steps = false},
                        testing::target_without_gpu(90));
}

TEST(HostSteps, AreRefusedByName) {
  const auto put = [](const Tensors& in) -> Tensors {
    return {put_along_axis(in[0], in[1], in[2], 0) + 1};
  };
  const std::vector<TensorType> types = {{{3, 8}, f32}, {{1, 8}, i64}, {{1, 8}, f32}};
  EXPECT_EQ(error_of([&] { compile_without_host(put, types); }),
            "compile: got operators that no kernel of cuda:0 runs: put_along_axis : f32(3, 8), "
            "need others where "
            "host_steps is false: set it, or take them out of the function");
  const auto often = [](const Tensors& in) -> Tensors {
    Tensors results;
    for (int i = 0; i < 7; ++i) results.push_back(put_along_axis(in[0], in[1] + i, in[2], 0));
    return results;
  };
  EXPECT_NE(error_of([&] {
              compile_without_host(often, types);
            }).find("put_along_axis : f32(3, 8) and 2 more, need"),
            std::string::npos);
}

TEST(HostSteps, AreNotNeeded) {
  compile_without_host(
      [](const Tensors& in) -> Tensors {
        return {softmax(in[0]),    layer_norm(in[0]), sort(in[0]),
                argsort(in[0], 0), max(in[0], {1}),   argmax(in[0], 1),
                cumsum(in[0], 1),  var(in[0]),        log_softmax(in[0], 0)};
      },
      {{{7, 100000}, f32}});
  compile_without_host([](const Tensors& in) -> Tensors { return {grid_sample(in[0], in[1])}; },
                       {{{2, 8, 9, 10}, f32}, {{2, 3, 4, 2}, f32}});
  // Sums that the kernel before does not make.
  compile_without_host(
      [](const Tensors& in) -> Tensors { return {apply_op(Op::row_sums, {in[0] + 1})}; },
      {{{7, 128}, f16}});
  // Indices that are within bounds by what makes them, and those of which a flag tells.
  compile_without_host([](const Tensors& in) -> Tensors { return {take(in[0], in[1], 0)}; },
                       {{{100, 8}, f32}, {{3}, i64}});
  compile_without_host(
      [](const Tensors& in) -> Tensors {
        const auto [values, places] = topk(in[0], 5, 1);
        return {values, gather_nd(in[1], places.expand_dims(-1), 1)};
      },
      {{{2, 100}, f32}, {{2, 100, 16}, f32}});
}

}  // namespace
}  // namespace tensor
