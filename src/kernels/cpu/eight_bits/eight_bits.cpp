// The family eight_bits: products of rows that are, or are rounded to eight bits as they are read,
// by weights in eight bits as they lie, with whatever elementwise operators follow applied to
// blocks of the results while these are in the cache. The rows of a convolution are gathered from
// the image.
#include <algorithm>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/product/result.h"
#include "src/kernels/cpu/product/rows.h"
#include "src/kernels/elementwise.h"
#include "src/kernels/host/simd/table.h"
#include "src/ops/eight_bits.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kMostStrips = 16;
// Rows in eight bits and results of a block, which stay in the second-level cache. Results are wide
// rather than high: rows of 64 columns that are stored far apart took up to twice as long.
constexpr std::int64_t kRowBytes = 192 << 10, kResultBytes = 128 << 10;
constexpr std::int64_t kLeastRows = 48;  // that the weights of a strip are read for
constexpr double kLeastParallel = 4e6;   // multiplications

constexpr std::int64_t kMostRows = 128;

/// What multiplies.
struct Unit {
  const char* name;
  simd::Table::MultiplyBytes multiply;
  std::int64_t step;       // bytes of a row, whole ones of which it reads
  std::int64_t most_rows;  // at a time
  bool takes_sums;         // of rows
};

// The best that this machine has. Rows that are not symmetric may hold -128.
Unit best_unit(bool are_symmetric) {
  const simd::Table& table = simd::table();
  if (simd::has_byte_tiles()) return {"tiles", table.multiply_byte_tiles, 64, 32, false};
  if (simd::has_byte_dots())
    return {"dot products", table.multiply_byte_dots, kByteWord, kMostRows, true};
  return {"vectors", are_symmetric ? table.multiply_bytes : table.multiply_all_bytes, kByteWord,
          kMostRows, false};
}

class EightBitsKernel : public Kernel {
 public:
  EightBitsKernel(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product,
                  const Machine& machine)
      : threads_(machine.threads),
        are_bytes_(type_of_rows(laid, product) == i8),
        unit_(best_unit(!are_bytes_ || laid.graph[product.anchor].attrs.flag(kSymmetric, false))),
        rows_(rows_of(laid, product, {type_of_rows(laid, product), are_bytes_ ? i8 : f32})),
        result_(laid, group, product, true) {
    const Graph& graph = laid.graph;
    const Node& node = graph[product.anchor];
    left_ = operand_of(group, node.inputs[0]);
    right_ = operand_of(group, node.inputs[1]);
    columns_ = node.type.shape[column_axis(graph, product)];
    k_ = round_up(rows_->k(), kByteWord);
    // Rows of a multiple of 1 KiB would meet in the same lines of the cache.
    row_pitch_ = round_up(k_, unit_.step) + (k_ % 1024 == 0 ? 64 : 0);
    choose_blocks();
    result_.plan(laid, block_rows_, pitch_);
    scales_ = by_column(graph[node.inputs[2]].constant);
    if (product.bias >= 0) bias_ = by_column(graph[product.bias].constant);
    place_scratch();
  }

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    const std::int64_t groups = ceil_div(strips(), strips_at_once_);
    parallel_for(threads_, row_parts_ * column_parts_, [&](std::int64_t task, int thread) {
      const std::int64_t part = task % column_parts_, row = task / column_parts_ * block_rows_;
      run_part(operands, {row, std::min(row + block_rows_, result_.rows())},
               {groups * part / column_parts_, groups * (part + 1) / column_parts_},
               scratch + thread_bytes_ * thread);
    });
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(thread_bytes_ * threads_);
  }
  std::string description() const override {
    return std::string("eight bits, ") + unit_.name + ", " + std::to_string(block_rows_) + " x " +
           std::to_string(pitch_) + " at a time" + result_.description();
  }

 private:
  static DType type_of_rows(const LaidOutGraph& laid, const AnchoredProduct& product) {
    return laid.graph.type(laid.graph[product.anchor].inputs[0]).dtype;
  }
  static std::unique_ptr<ProductRows> rows_of(const LaidOutGraph& laid,
                                              const AnchoredProduct& product,
                                              const Numbers& numbers) {
    const Node& node = laid.graph[product.anchor];
    const Layout& left = laid.layouts[at(node.inputs[0])];
    if (node.op == Op::quantized_matmul) return matrix_rows(left, node.type.shape, numbers);
    return window_rows(left, node, pair_of(node.attrs, "kernel", 1, "conv"), left.shape[1], numbers,
                       WindowOrder::channels_last);
  }
  std::int64_t strips() const { return ceil_div(columns_, kByteColumns); }
  std::int64_t gathered_bytes() const { return round_up(rows_->k() * 4, 64); }  // of one row

  // A number a column, and zeros up to a whole strip.
  std::vector<float> by_column(const Tensor& x) const {
    std::vector<float> result = x.to_vector<float>();
    result.resize(static_cast<std::size_t>(strips() * kByteColumns), 0.0f);
    return result;
  }

  // Every thread gets blocks of rows, which it rounds once, and where there are too few of them
  // for all threads, a part of the columns: the same rows are then rounded for each part.
  void choose_blocks() {
    const std::int64_t rows = result_.rows();
    const double work =
        static_cast<double>(rows) * static_cast<double>(columns_) * static_cast<double>(k_);
    if (work < kLeastParallel) threads_ = 1;
    const std::int64_t most = std::clamp(kRowBytes / row_pitch_, kLeastRows, kMostRows);
    const std::int64_t least = ceil_div(rows, most);
    const std::int64_t wanted = std::min<std::int64_t>(4 * threads_, rows / kLeastRows);
    std::int64_t blocks = std::max(least, wanted);
    if (blocks >= threads_) blocks = round_up(blocks, std::int64_t{threads_});
    block_rows_ = ceil_div(rows, blocks);
    row_parts_ = ceil_div(rows, block_rows_);
    const std::int64_t fitting = kResultBytes / (4 * kByteColumns * block_rows_);
    strips_at_once_ = std::min(std::clamp<std::int64_t>(fitting / 2 * 2, 2, kMostStrips), strips());
    if (row_parts_ < threads_) {
      const std::int64_t parts = ceil_div(2 * threads_, row_parts_);
      strips_at_once_ = std::clamp<std::int64_t>(strips() / parts / 2 * 2, 2, strips_at_once_);
      column_parts_ = std::min(parts, ceil_div(strips(), strips_at_once_));
    }
    pitch_ = strips_at_once_ * kByteColumns;
  }

  void place_scratch() {
    const auto take = [&](std::int64_t bytes) {
      const std::int64_t offset = thread_bytes_;
      thread_bytes_ += round_up(bytes, 64);
      return offset;
    };
    bytes_ = take(block_rows_ * row_pitch_ + kGatherSlack);
    row_sums_ = take(block_rows_ * 4);
    row_scales_ = take(block_rows_ * 4);
    row_ = take(rows_->row_bytes() || are_bytes_ ? 0 : gathered_bytes() + kGatherSlack);
    sums_ = take(block_rows_ * pitch_ * 4);
    program_ = take(result_.scratch_bytes());
  }

  // Rows in eight bits, with zeros behind them up to a whole step, their sums and scales.
  void make_rows(const std::byte* from, const Range& rows, std::byte* scratch) const {
    auto* to = reinterpret_cast<std::int8_t*>(scratch + bytes_);
    are_bytes_ ? gather(from, rows, scratch) : round(from, rows, scratch);
    for (std::int64_t row = rows.begin; row < rows.end; ++row, to += row_pitch_)
      std::memset(to + rows_->k(), 0, static_cast<std::size_t>(row_pitch_ - rows_->k()));
  }

  void gather(const std::byte* from, const Range& rows, std::byte* scratch) const {
    auto* to = reinterpret_cast<std::int8_t*>(scratch + bytes_);
    auto* sums = reinterpret_cast<std::int32_t*>(scratch + row_sums_);
    const std::int64_t count = rows.end - rows.begin;
    rows_->gather(from, rows, {0, rows_->k()}, scratch + bytes_, row_pitch_);
    std::fill_n(reinterpret_cast<float*>(scratch + row_scales_), count, 1.0F);
    for (std::int64_t row = 0; unit_.takes_sums && row < count; ++row)
      sums[row] = simd::table().sum_bytes(to + row * row_pitch_, rows_->k());
  }

  void round(const std::byte* from, const Range& rows, std::byte* scratch) const {
    const auto in_place = rows_->row_bytes();
    const auto quantize = simd::table().quantize;
    auto* to = reinterpret_cast<std::int8_t*>(scratch + bytes_);
    auto* sums = reinterpret_cast<std::int32_t*>(scratch + row_sums_);
    auto* scales = reinterpret_cast<float*>(scratch + row_scales_);
    const Range whole{0, rows_->k()};
    for (std::int64_t row = rows.begin; row < rows.end; ++row, to += row_pitch_) {
      const std::byte* numbers = scratch + row_;
      if (in_place)
        numbers = from + row * *in_place;
      else
        rows_->gather(from, {row, row + 1}, whole, scratch + row_, gathered_bytes());
      *scales++ = quantize(to, reinterpret_cast<const float*>(numbers), rows_->k(), sums++);
    }
  }

  void run_part(std::span<std::byte* const> operands, const Range& rows, const Range& groups,
                std::byte* scratch) const {
    make_rows(operands[left_], rows, scratch);
    simd::ByteProduct p;
    p.a_row_bytes = row_pitch_;
    p.k = k_ / kByteWord;
    p.strip_bytes = k_ * kByteColumns;
    p.to = reinterpret_cast<float*>(scratch + sums_), p.to_row = pitch_;
    const auto* weights = reinterpret_cast<const std::int8_t*>(operands[right_]);
    for (std::int64_t group = groups.begin; group < groups.end; ++group) {
      const std::int64_t strip = group * strips_at_once_;
      p.strip_count = std::min(strips_at_once_, strips() - strip);
      p.strips = weights + strip * p.strip_bytes;
      p.scales = scales_.data() + strip * kByteColumns;
      p.bias = bias_.empty() ? nullptr : bias_.data() + strip * kByteColumns;
      multiply(p, rows.end - rows.begin, scratch);
      const std::int64_t columns = std::min(pitch_, columns_ - strip * kByteColumns);
      finish(operands, {rows.begin, rows.end - rows.begin, strip * kByteColumns, columns}, scratch);
    }
  }

  void multiply(simd::ByteProduct p, std::int64_t count, const std::byte* scratch) const {
    float* const to = p.to;
    for (std::int64_t row = 0; row < count; row += p.rows) {
      p.rows = std::min(unit_.most_rows, count - row);
      p.a = reinterpret_cast<const std::int8_t*>(scratch + bytes_) + row * row_pitch_;
      p.row_sums = reinterpret_cast<const std::int32_t*>(scratch + row_sums_) + row;
      p.row_scales = reinterpret_cast<const float*>(scratch + row_scales_) + row;
      p.to = to + row * pitch_;
      unit_.multiply(p);
    }
  }

  // The epilogue, and the way to the result.
  void finish(std::span<std::byte* const> operands, const BlockProgram::Block& block,
              std::byte* scratch) const {
    auto* sums = reinterpret_cast<float*>(scratch + sums_);
    result_.run_program(operands, block, pitch_, sums, scratch + program_);
    result_.store(operands, block, pitch_, sums);
  }

  int threads_;
  bool are_bytes_;  // rows as they are read
  Unit unit_;
  std::unique_ptr<ProductRows> rows_;
  ProductResult result_;
  std::vector<float> scales_, bias_;  // a number a column; no bias: empty
  std::size_t left_ = 0, right_ = 0;  // operands
  std::int64_t columns_ = 0, k_ = 0;
  std::int64_t row_pitch_ = 0, block_rows_ = 1, strips_at_once_ = 1, pitch_ = 1;
  std::int64_t row_parts_ = 1, column_parts_ = 1;
  // In bytes: the scratch of one thread, and where its parts begin.
  std::int64_t thread_bytes_ = 0, bytes_ = 0, row_sums_ = 0, row_scales_ = 0, row_ = 0, sums_ = 0,
               program_ = 0;
};

bool is_in_place(const Layout& weights) { return weights.strides == row_major(weights.shape); }

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  auto product = match_product(graph, alone.group);
  if (!product || !is_quantized(graph, product->anchor)) return std::nullopt;
  product = with_sums_stored(alone.laid, *product);
  const Node& node = graph[product->anchor];
  if (!graph.is_constant(node.inputs[2]) || !is_in_place(alone.laid.layouts[at(node.inputs[1])]))
    return std::nullopt;
  const auto elements = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape));
  };
  const Work work = work_of(graph, alone.group);
  // Numbers of rows are read twice to be rounded, bytes once, sixteen at a time, and results lie in
  // the first-level cache. The rows of a convolution are gathered first.
  const Shape& weights = graph.type(node.inputs[1]).shape;
  const double row_numbers = elements(product->anchor) /
                             static_cast<double>(graph.type(node.inputs[2]).shape[0]) *
                             static_cast<double>(weights[1] * weights[3]);
  const bool are_bytes = graph.type(node.inputs[0]).dtype == i8;
  const double others =
      (are_bytes                         ? 0.25
       : node.op == Op::quantized_conv2d ? 3
                                         : 2) *
          row_numbers +
      elements(product->result) *
          (1 + static_cast<double>(operator_count(graph, product->epilogue.nodes)));
  return implementation(
      alone, machine,
      [=](const Machine& m) {
        const double compute = work.flops / (0.8 * m.byte_gflops) + others / (4 * m.simple_gops);
        const double bandwidth = work.bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
        return m.dispatch_us + std::max(compute, work.bytes / bandwidth) / 1e3;
      },
      [=](const Isolated& one, const Machine& m) {
        return std::make_unique<EightBitsKernel>(one.laid, one.group, *product, m);
      });
}

}  // namespace

const Family kEightBits = {"eight_bits", consider};

}  // namespace tensor::cpu
