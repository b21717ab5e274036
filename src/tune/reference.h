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

/// Bytes of a block, counted from its begin.
struct ByteRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Bytes: what kernels may count on of an address, and more than swizzled boxes ask for.
inline constexpr std::int64_t kAddressLine = 1024;

/// A block of memory, and the value whose elements lie in it as its layout says, at the same place
/// in a line.
struct OperandBlock {
  Tensor memory;  // of one axis
  Tensor value;
  bool is_constant = false;
  std::int64_t period = 0;  // if not 0, the block repeats its first so many bytes

  std::span<std::byte> bytes() const;
  std::byte* first() const;         // element of the value
  std::ptrdiff_t first_at() const;  // counted from the block's begin
  /// Where the elements of the value, or of a view of it, lie.
  ByteRange range_of(const Tensor& part) const;
  ByteRange all() const { return {0, std::ssize(bytes())}; }
  /// Writes what the repeating makes of some bytes.
  void complete(ByteRange range) const;
};

/// Operands of a group: its reads, which hold random numbers or the constants, then its writes,
/// poisoned. The same every time.
std::vector<OperandBlock> operands_of(const Isolated& problem);
/// Of all bytes of a result that is not written yet: NaN, in floats.
inline constexpr unsigned char kPoison = 0xff;

class Reference {
 public:
  /// Runs the reference kernels, where it can on slices that take no more effort.
  explicit Reference(const Isolated& problem, double most_effort = Slices::kMostEffort);

  /// operands_of(problem), whose reads must not be written to, with writes of their own.
  std::vector<OperandBlock> operands() const;
  /// The same for a device, which has memory of its own: of reads that repeat themselves the rest
  /// need not be there, and nothing is in the writes. What is not touched takes no memory.
  std::vector<OperandBlock> outlines() const;

  /// Whether all elements are known, not those of some slices alone.
  bool is_whole() const { return !slices_; }

  /// Operands with the results of a kernel that is trusted where its slices are right: that of
  /// level 0.
  using Trusted = std::function<std::vector<OperandBlock>()>;
  /// What is wrong with results in the group's writes; empty if rounding explains all differences
  /// (runtime/rounding.h). All elements are looked at: those that the reference does not have are
  /// compared with the trusted kernel's, which is asked for when this is first needed.
  std::string fault(std::span<const OperandBlock> operands, const Trusted& trusted = nullptr) const;

  /// For who compares where the results are, the two parts of it. What is wrong with elements that
  /// the reference has: those in known(i) of the i-th write's block.
  std::string fault_of_known(std::span<const OperandBlock> operands) const;
  std::vector<ByteRange> known(std::span<const OperandBlock> operands, std::size_t write) const;
  /// And with results of the i-th write that differ by so much from the trusted kernel's, of this
  /// largest magnitude.
  std::string fault_beside_trusted(std::size_t write, double difference, double largest) const;

 private:
  // Of a write: values to compare with, their largest magnitude, and how far off any may be anyway.
  struct Expected {
    Tensor value;
    double largest, step;
  };
  std::span<const OperandBlock> writes(std::span<const OperandBlock> operands) const {
    return operands.subspan(reads_.size());
  }
  void complete_known(const OperandBlock& read, bool varies) const;
  void trust(const Trusted& trusted) const;

  const Isolated& problem_;
  std::vector<OperandBlock> reads_;
  std::optional<Slices> slices_;
  std::vector<Expected> expected_;  // of the slices
  double bound_ = 0;
  mutable std::once_flag completes_, trusts_;
  mutable std::vector<Expected> trusted_;  // of all, where there are slices
};

}  // namespace tensor
