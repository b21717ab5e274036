// Reference: what a problem's results must be, on inputs of a fixed seed.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/trace/isolate.h"
#include "src/tune/slices.h"

namespace tensor {

/// A block of memory, and the value whose elements lie in it as its layout says, at the same place
/// in a line of 1,024 bytes.
struct OperandBlock {
  Tensor memory;  // of one axis
  Tensor value;
  bool is_constant = false;

  std::span<std::byte> bytes() const;
  std::byte* first() const;         // element of the value
  std::ptrdiff_t first_at() const;  // counted from the block's begin
};

/// Operands of a group: its reads, which hold random numbers or the constants, then its writes,
/// poisoned. The same every time.
std::vector<OperandBlock> operands_of(const Isolated& problem);
/// All its bytes become 255 (NaN, in floats), so that a result that is not written is seen.
void poison(std::span<std::byte> memory);

class Reference {
 public:
  /// Runs the reference kernels, where it can on slices that take no more effort.
  explicit Reference(const Isolated& problem, double most_effort = Slices::kMostEffort);

  /// operands_of(problem), whose reads must not be written to, with writes of their own.
  std::vector<OperandBlock> operands() const;

  /// Whether all elements are known, not those of some slices alone.
  bool is_whole() const { return !slices_; }

  /// Operands with the results of a kernel that is trusted where its slices are right: that of
  /// level 0.
  using Trusted = std::function<std::vector<OperandBlock>()>;
  /// What is wrong with results in the group's writes; empty if rounding explains all differences
  /// (runtime/rounding.h). All elements are looked at: those that the reference does not have are
  /// compared with the trusted kernel's, which is asked for when this is first needed.
  std::string fault(std::span<const OperandBlock> operands, const Trusted& trusted = nullptr) const;

 private:
  // Of a write: values to compare with, their largest magnitude.
  struct Expected {
    Tensor value;
    double largest;
  };
  std::span<const OperandBlock> writes(std::span<const OperandBlock> operands) const {
    return operands.subspan(reads_.size());
  }
  std::string fault_of_known(std::span<const OperandBlock> operands) const;
  void trust(const Trusted& trusted) const;

  const Isolated& problem_;
  std::vector<OperandBlock> reads_;
  std::optional<Slices> slices_;
  std::vector<Expected> expected_;  // of the slices
  double bound_ = 0;
  mutable std::once_flag trusts_;
  mutable std::vector<Expected> trusted_;  // of all, where there are slices
};

}  // namespace tensor
