// Trials on a GPU: in a CUDA graph of many launches, each of which reads another copy of the
// weights, so that they come from memory as they do in a model, while all else stays in L2.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "src/kernels/cuda/family.h"
#include "src/kernels/cuda/graph.h"
#include "src/kernels/cuda/load.h"
#include "src/tune/problem.h"
#include "src/tune/trial.h"

namespace tensor {

/// Where a group's memory lies in one block of the device's.
struct TrialMemory {
  int copies = 1;                                   // launches of a graph
  std::vector<std::vector<std::int64_t>> operands;  // the begin of each block: one, or one a copy;
                                                    // none if no kernel reads it
  std::vector<std::vector<std::int64_t>> packed;
  std::int64_t scratch = 0;
  std::int64_t bytes = 0;

  /// What a kernel's argument points to in the given launch, counted from the block's begin.
  std::int64_t at(const cuda::Pointer& pointer, int copy,
                  std::span<const OperandBlock> blocks) const;
};
/// For a GPU with so much memory, all in all.
TrialMemory place_trial(const cuda::Lowered& lowered, std::span<const OperandBlock> operands,
                        std::span<const Tensor> packed, std::int64_t l2_bytes,
                        std::int64_t device_bytes);

/// A lowered group on a device, with its operands.
class GpuLoop {
 public:
  GpuLoop(cuda::Device& device, const cuda::Lowered& lowered,
          std::span<const std::shared_ptr<cuda::Kernel>> kernels,
          std::span<const OperandBlock> operands, std::span<const Tensor> packed);
  /// Runs it once and fills the operands that it writes, which come last.
  void run(std::span<const OperandBlock> written);
  /// Microseconds of one launch, of as many as there are copies of the weights.
  double time();
  int copies() const { return memory_.copies; }

 private:
  void record(cuda::Stream& stream, int copies) const;
  void upload(std::span<const Tensor> packed);
  const cuda::Lowered& lowered_;
  std::span<const std::shared_ptr<cuda::Kernel>> kernels_;
  std::vector<OperandBlock> operands_;
  TrialMemory memory_;
  cuda::Buffer block_;
  cuda::Stream stream_;
  cuda::Event begin_, end_;
  std::optional<cuda::LaunchGraph> graph_;
};

/// What calls pack of the constants that a group reads.
std::vector<Tensor> packed_of(const cuda::Lowered& lowered, std::span<const OperandBlock> operands);

/// For a worker's process: `problems` are those of its candidates' tasks.
Measuring gpu_measuring(int device, const std::deque<Problem>& problems);

/// What a GPU is, asked in a process that ends afterwards: this one stays free to have children
/// that use it. UserError where there is none.
cuda::DeviceInfo ask_for_device(int index);
/// The same as text, for the pipe.
std::string device_text(const cuda::DeviceInfo& info);
cuda::DeviceInfo parse_device(const std::string& text);

}  // namespace tensor
