// What a tuner measures, on the emulated GPU: a problem's operands, packed constants and reference
// fit the kernels that its families lower.
#include <gtest/gtest.h>

#include "src/trace/parallel.h"
#include "src/trace/trace.h"
#include "src/tune/gpu_loop.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/families.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

bool is_shared(const cuda::Pointer& pointer, const std::vector<OperandBlock>& blocks) {
  return pointer.base == cuda::Pointer::Base::operand &&
         !blocks[static_cast<std::size_t>(pointer.index)].is_constant;
}

class TunedKernels : public ::testing::Test {
 protected:
  // Every group of the function, as the device's families lower it.
  void expect_right(const TensorFunction& f, const std::vector<TensorType>& inputs) {
    const cuda::Machine machine = cuda::machine_of(cuda::typical_device(90));
    const LaidOutGraph laid = lay_out(trace(f, inputs));
    for (const Group& group : fuse(propose_parallel(laid), cuda::cuda_cost(machine)).groups) {
      const Isolated alone = isolate(laid, group);
      SCOPED_TRACE(problem_text(laid.graph, group));
      const cuda::Lowered lowered = cuda::lower_group(alone.laid, alone.group, machine);
      const Reference reference(alone);
      const std::vector<OperandBlock> blocks = reference.operands();
      EXPECT_NE(reference.fault(blocks), "");
      std::vector<emulator::Operand> operands;
      for (std::size_t i = 0; i < blocks.size(); ++i)
        operands.push_back(
            {blocks[i].bytes().subspan(static_cast<std::size_t>(blocks[i].first_at())),
             blocks[i].is_constant, i >= alone.group.reads.size()});
      const std::vector<Tensor> packed = packed_of(lowered, blocks);
      emulator::emulate(lowered, operands, packed, {});
      EXPECT_EQ(reference.fault(blocks), "") << lowered.description;
      // Whatever the kernels' arguments point to has a place in every launch, but for operands that
      // all launches share.
      const TrialMemory memory =
          place_trial(lowered, blocks, packed, 50 << 20, std::int64_t{80} << 30);
      for (const cuda::Call& call : lowered.calls)
        for (const cuda::Argument& argument : call.arguments) {
          const auto* pointer = std::get_if<cuda::Pointer>(&argument);
          if (const auto* view = std::get_if<cuda::TensorMapOf>(&argument)) pointer = &view->memory;
          if (!pointer || is_shared(*pointer, blocks)) continue;
          for (const int copy : {0, 1, memory.copies - 1}) {
            EXPECT_GE(memory.at(*pointer, copy, blocks), 0);
            EXPECT_LT(memory.at(*pointer, copy, blocks), std::max<std::int64_t>(memory.bytes, 1));
          }
        }
      ++groups_;
    }
  }
  int groups_ = 0;
  Generator random_{6};
};

TEST_F(TunedKernels, AProductWithItsEpilogue) {
  const Tensor weight = random_.normal({64, 128}, 0, 0.1).astype(f16), bias = random_.normal({64});
  expect_right(
      [&](const Tensors& in) -> Tensors {
        return {gelu(matmul(in[0], transpose(weight)).astype(f32) + bias).astype(f16)};
      },
      {{{70, 128}, f16}});
  EXPECT_EQ(groups_, 1);
}

TEST_F(TunedKernels, RowsAndTransposedInputs) {
  const Tensor gain = random_.normal({96});
  expect_right(
      [&](const Tensors& in) -> Tensors {
        return {softmax(layer_norm(in[0].swapaxes(0, 1), gain, gain, 1e-6), -1)};
      },
      {{{96, 40}, f32}});
  EXPECT_GT(groups_, 0);
}

}  // namespace
}  // namespace tensor
