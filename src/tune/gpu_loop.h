// A group's kernels on a GPU: in a CUDA graph of many launches, each of which reads another copy of
// the weights, so that they come from memory as they do in a model, while all else stays in L2.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/kernels/cuda/driver/graph.h"
#include "src/kernels/cuda/driver/load.h"
#include "src/kernels/cuda/family.h"
#include "src/tune/reference.h"

namespace tensor {

/// Where weights and scratch lie in one block of the device's memory.
struct TrialMemory {
  int copies = 1;                                   // launches of a graph
  std::vector<std::vector<std::int64_t>> operands;  // the begin of each constant's block, one a
                                                    // copy; none if no kernel reads it
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

/// What calls pack of the constants that a group reads.
std::vector<Tensor> packed_of(const cuda::Lowered& lowered, std::span<const OperandBlock> operands);

/// Operands that are no constants, in memory of a device.
class DeviceOperands {
 public:
  /// Poisoned.
  DeviceOperands(cuda::Device& device, std::span<const OperandBlock> operands);
  void upload(std::span<const OperandBlock> operands);
  void download(const OperandBlock& operand, std::size_t index, ByteRange range) const;
  /// Of a block's begin.
  cuda::Address address(std::size_t index) const {
    return buffer_.address() + static_cast<cuda::Address>(places_[index]);
  }
  std::int64_t bytes() const { return buffer_.bytes(); }

 private:
  std::vector<std::int64_t> places_;
  cuda::Buffer buffer_;
};

/// A lowered group on a device, with its constants, and results of its own.
class GpuLoop {
 public:
  /// The first operands are the group's reads, which lie in `reads`.
  GpuLoop(cuda::Device& device, const cuda::Lowered& lowered,
          std::span<const std::shared_ptr<cuda::Kernel>> kernels,
          std::span<const OperandBlock> operands, std::span<const Tensor> packed,
          const DeviceOperands& reads, std::size_t read_count);
  /// Once.
  void run();
  /// Microseconds of one launch, of as many as there are copies of the weights, at full clock.
  double time();
  /// Of the operands behind the reads.
  DeviceOperands& results() { return results_; }

 private:
  void record(cuda::Stream& stream, int copies) const;
  void upload(std::span<const Tensor> packed);
  cuda::Address address(const cuda::Pointer& pointer, int copy) const;
  const cuda::Lowered& lowered_;
  std::span<const std::shared_ptr<cuda::Kernel>> kernels_;
  std::vector<OperandBlock> operands_;
  const DeviceOperands& reads_;
  std::size_t read_count_;
  DeviceOperands results_;
  TrialMemory memory_;
  cuda::Buffer block_;
  cuda::Stream stream_;
  cuda::Event begin_, end_;
  std::optional<cuda::LaunchGraph> graph_;
};

}  // namespace tensor
