// The left factor of a product: one row of numbers for every row of the result.
#pragma once

#include <memory>
#include <optional>

#include "src/kernels/cpu/kernel.h"
#include "src/ops/pair.h"

namespace tensor::cpu {

/// Numbers as they are stored, and as they are multiplied: the same, widened to float32, or rounded
/// from there to bfloat16.
class Numbers {
 public:
  Numbers(DType stored, DType taken);
  std::int64_t stored_bytes() const { return stored_bytes_; }
  std::int64_t taken_bytes() const { return taken_bytes_; }
  bool are_same() const { return !load_ && !store_; }
  bool are_words() const { return are_same() && stored_bytes_ == 4; }
  /// `count` of them, `stride` apart, in a row.
  void copy(std::byte* to, const std::byte* from, std::int64_t stride, std::int64_t count) const;

 private:
  void round(std::byte* to, const float* from, std::int64_t stride, std::int64_t count) const;

  std::int64_t stored_bytes_, taken_bytes_;
  void (*load_)(float*, const void*, std::int64_t, std::int64_t) = nullptr;
  void (*store_)(void*, std::int64_t, const float*, std::int64_t) = nullptr;
};

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

class ProductRows {
 public:
  virtual ~ProductRows() = default;
  virtual std::int64_t k() const = 0;  // numbers of a row
  /// A part of some rows of the operand at `from`, `pitch` bytes apart, which is as much as a part
  /// takes, or more. Up to kGatherSlack bytes behind each may be written.
  virtual void gather(const std::byte* from, const Range& rows, const Range& k, std::byte* to,
                      std::int64_t pitch) const = 0;
  /// Rows from the first on of which the same part may be other than zero, and that part.
  struct Stretch {
    Range rows, k;
  };
  virtual Stretch stretch(const Range& rows) const { return {rows, {0, k()}}; }
  /// Row stride in bytes if rows can be read in place, else nullopt.
  virtual std::optional<std::int64_t> row_bytes() const = 0;
};

inline constexpr std::int64_t kGatherSlack = 64;

/// The rows of a matmul [..., m, k] x [k, n] come in the order of the axes of the result.
std::unique_ptr<ProductRows> matrix_rows(const Layout& left, const Shape& result,
                                         const Numbers& numbers);

/// In which order a row holds the numbers that a filter [height, width, channels] lies on.
enum class WindowOrder : std::uint8_t { channels_last, channels_first };
/// The one in which more of them lie side by side in the image.
WindowOrder window_order(const Layout& image);

/// A conv2d has a row for every pixel of the result [n, c, h, w], in the order n, h, w. It holds
/// what the filter lies on of `channels` channels from the first on, in this order; zeros beyond
/// the image.
std::unique_ptr<ProductRows> window_rows(const Layout& image, const Node& convolution, Pair kernel,
                                         std::int64_t channels, const Numbers& numbers,
                                         WindowOrder order);

}  // namespace tensor::cpu
