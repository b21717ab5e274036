// Reference: what a problem's results must be, on inputs of a fixed seed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/trace/isolate.h"

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
  /// Runs the reference kernels: seconds, for large problems.
  explicit Reference(const Isolated& problem);

  /// operands_of(problem), whose reads must not be written to, with writes of their own.
  std::vector<OperandBlock> operands() const;

  /// What is wrong with results in the group's writes; empty if rounding explains all differences
  /// (runtime/rounding.h). Of many elements some million are looked at.
  std::string fault(std::span<const OperandBlock> operands) const;

 private:
  const Isolated& problem_;
  std::vector<OperandBlock> reads_;
  std::vector<Tensor> expected_;  // of the writes, what is looked at
  double bound_ = 0;
};

}  // namespace tensor
