// The families product and tiles: matmul and conv2d by vector instructions, or in bf16 by tile
// instructions (AMX), with whatever elementwise operators follow applied to blocks of sums in
// float32 while these are in the cache. Convolutions are products whose rows are gathered from the
// image, a part of them at a time. Constant weights are packed once.
#include <algorithm>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "src/core/view.h"
#include "src/kernels/cpu/blocks/program.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/product/match.h"
#include "src/kernels/cpu/product/rows.h"
#include "src/kernels/cpu/product/strips.h"
#include "src/kernels/elementwise.h"
#include "src/trace/derived.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/text.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kMostStrips = 16;
// Rows and weights of a thread's work at a time; with tiles they together fit a second-level cache
// of 2 MiB.
constexpr std::int64_t kRowBytes = 1 << 20, kStripBytes = 200 << 10;
constexpr std::int64_t kSumBytes = 64 << 10;
constexpr std::int64_t kLeastRows = 36;  // tiles of 12, 6 or 3 rows
// Rows as far apart as this lie in the same lines of the first-level cache, and their words of one
// step of the depth push each other out.
constexpr std::int64_t kAlias = 4096;
constexpr double kLeastParallel = 2e6;  // multiplications

class ProductKernel : public Kernel {
 public:
  ProductKernel(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product,
                const Machine& machine, const Unit& unit)
      : threads_(machine.threads),
        unit_(unit),
        numbers_(laid.graph.type(weights(laid, product)).dtype, unit.taken),
        rows_(rows_of(laid, product, numbers_)),
        strips_(layout(laid, weights(laid, product)), laid.graph.is_op(product.anchor, Op::conv2d),
                rows_->depth(), unit, numbers_) {
    const Graph& graph = laid.graph;
    left_ = operand(group, graph[product.anchor].inputs[0]);
    right_ = operand(group, weights(laid, product));
    has_epilogue_ = !product.epilogue.nodes.empty();
    place_result(laid, group, product);
    choose_blocks();
    if (has_epilogue_) {
      for (const ValueId id : product.epilogue.reads)
        operands_.push_back(id == product.sums ? 0 : operand(group, id));
      epilogue_.emplace(laid, product.epilogue, *block_shape_of(graph, product.epilogue),
                        product.sums,
                        BlockProgram::TileSize{block_rows_, pitch_, column_axis(graph, product)});
    }
    is_direct_ = can_be_direct(strips_at_once_);
    if (product.bias >= 0) copy_bias(graph[product.bias].constant);
    if (graph.is_constant(weights(laid, product))) {
      packed_ =
          packed_constant(graph, graph[weights(laid, product)].constant, graph[product.anchor].op);
    } else {
      packed_bytes_ = strips_.count() * strips_.words() * 4;
    }
    place_scratch();
  }

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    const bool is_packed = packed_.defined();
    const auto* strips =
        reinterpret_cast<const float*>(is_packed ? detail::stored(packed_).first() : scratch);
    if (!is_packed)
      pack_all(operands[right_], reinterpret_cast<float*>(scratch), scratch + packed_bytes_,
               thread_bytes_);
    parallel_for(threads_, row_parts_ * column_parts_, [&](std::int64_t task, int thread) {
      const std::int64_t part = task % column_parts_, row = task / column_parts_ * part_rows_;
      run_part(operands, strips, {row, std::min(row + part_rows_, row_count_)},
               {groups() * part / column_parts_, groups() * (part + 1) / column_parts_},
               scratch + packed_bytes_ + thread_bytes_ * thread);
    });
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(packed_bytes_ + thread_bytes_ * threads_);
  }
  std::vector<Tensor> constants() const override {
    return packed_.defined() ? std::vector<Tensor>{packed_} : std::vector<Tensor>();
  }
  std::string description() const override {
    return std::string(unit_.is_tiles ? "tiles, " : "vectors, ") + std::to_string(part_rows_) +
           " x " + std::to_string(pitch_) + " at a time" + (in_place_ ? "" : ", rows gathered") +
           (first_.empty() ? "" : ", bias") +
           (epilogue_ ? ", " + std::to_string(epilogue_->instruction_count()) + " instructions"
                      : "");
  }

 private:
  struct Range {
    std::int64_t begin, end;
  };

  static const Layout& layout(const LaidOutGraph& laid, ValueId id) { return laid.layouts[at(id)]; }
  static ValueId weights(const LaidOutGraph& laid, const AnchoredProduct& product) {
    return laid.graph[product.anchor].inputs[1];
  }
  static std::unique_ptr<ProductRows> rows_of(const LaidOutGraph& laid,
                                              const AnchoredProduct& product,
                                              const Numbers& numbers) {
    const Node& node = laid.graph[product.anchor];
    const Layout& left = layout(laid, node.inputs[0]);
    return node.op == Op::conv2d ? window_rows(left, layout(laid, node.inputs[1]).shape, node.attrs,
                                               node.type.shape, numbers)
                                 : matrix_rows(left, node.type.shape, numbers);
  }
  static std::size_t operand(const Group& group, ValueId id) {
    return static_cast<std::size_t>(std::find(group.reads.begin(), group.reads.end(), id) -
                                    group.reads.begin());
  }

  void place_result(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product) {
    result_ = group.reads.size();
    dtype_ = laid.graph.type(product.result).dtype;
    Shape shape = laid.graph.type(product.result).shape;
    Strides strides = layout(laid, product.result).strides;
    const int axis = column_axis(laid.graph, product);
    column_ = strides[axis];
    shape.erase(axis), strides.erase(axis);
    row_count_ = num_elements(shape);
    result_rows_ = Access(shape, strides);
  }

  // Weights are read once for every part of the rows, rows once for every group of strips.
  void choose_blocks() {
    const std::int64_t row_bytes = strips_.depth_words() * 4;
    const auto stride = rows_->row_bytes();
    const bool fits = stride && rows_->depth() == strips_.depth();
    in_place_ = fits && (unit_.is_tiles || *stride % kAlias != 0 || row_count_ == 1);
    // Rows of a multiple of 1 KiB would meet in the same lines of the cache.
    row_pitch_ = row_bytes + (row_bytes % 1024 == 0 ? 64 : 0);
    const double work = static_cast<double>(row_count_) * static_cast<double>(strips_.columns()) *
                        static_cast<double>(strips_.depth());
    if (work < kLeastParallel) threads_ = 1;
    if (unit_.is_tiles)
      choose_tiles();
    else
      choose_vectors();
    pitch_ = strips_at_once_ * kStrip;
    const std::int64_t fit = std::max(kRowBytes / row_bytes / block_rows_, std::int64_t{1});
    const std::int64_t blocks = ceil_div(row_count_, block_rows_);
    std::int64_t part = std::min(fit, blocks);
    // Rows that are gathered should not be gathered by several threads.
    if (!in_place_ && blocks >= threads_) part = std::min(part, ceil_div(blocks, threads_));
    part_rows_ = part * block_rows_;
    row_parts_ = ceil_div(blocks, part);
    if (row_parts_ < (in_place_ ? 4 : 1) * threads_)
      column_parts_ = std::min<std::int64_t>(groups(), in_place_ ? groups() : threads_);
    // What stays in the cache needs not be brought there.
    if (unit_.is_tiles && strips_.count() * strips_.words() * 4 > kRowBytes)
      next_lines_ = ceil_div(block_rows_, std::min(part, blocks));
  }

  // The strips of a group stay in the second-level cache.
  void choose_tiles() {
    const std::int64_t fitting = kStripBytes / (strips_.words() * 4) / 2 * 2;
    strips_at_once_ = std::min(std::clamp<std::int64_t>(fitting, 2, kMostStrips), strips_.count());
    block_rows_ = unit_.most_rows;
  }

  // A step of the depth of all rows of a block stays there, and the sums beside it.
  void choose_vectors() {
    const std::int64_t count = strips_.count();
    std::int64_t most = unit_.most_rows;
    if (!in_place_) most = std::clamp<std::int64_t>(kRowBytes / row_pitch_, kLeastRows, most);
    std::int64_t blocks = ceil_div(row_count_, most);
    block_rows_ = ceil_div(row_count_, blocks);
    const std::int64_t fitting = kSumBytes / (4 * kStrip * block_rows_);
    strips_at_once_ = std::min(std::clamp<std::int64_t>(fitting, 2, kMostStrips), count);
    if (count <= kMostStrips && can_be_direct(count)) strips_at_once_ = count;
    // Enough tasks for all threads, unless they get too small.
    blocks = std::max(blocks,
                      std::min(ceil_div(4 * threads_, groups()), ceil_div(row_count_, kLeastRows)));
    block_rows_ = ceil_div(row_count_, blocks);
  }

  void copy_bias(const Tensor& bias) {
    first_.assign(static_cast<std::size_t>(strips_.count() * kStrip), 0.0f);
    const std::vector<float> values = bias.to_vector<float>();
    std::copy(values.begin(), values.end(), first_.begin());
  }

  Tensor packed_constant(const Graph& graph, const Tensor& weights, Op op) const {
    TextWriter what;
    what << "strips of " << unit_.taken << ", steps of " << unit_.step << ", " << info(op).name;
    return derived(graph, what.str(), {weights}, [&] {
      const Tensor result = empty({strips_.count(), strips_.words()}, f32);
      const std::int64_t room = strips_.room();
      const auto rooms = detail::allocate(room * threads_);
      pack_all(detail::stored(weights).first(),
               reinterpret_cast<float*>(detail::stored(result).first()), rooms->data, room);
      forget_pages(weights);
      return result;
    });
  }

  void pack_all(const std::byte* from, float* to, std::byte* rooms, std::int64_t room) const {
    parallel_for(threads_, strips_.count(), [&](std::int64_t strip, int thread) {
      strips_.pack(from, strip, to + strip * strips_.words(), rooms + room * thread);
    });
  }

  void place_scratch() {
    const auto take = [&](std::int64_t bytes) {
      const std::int64_t offset = thread_bytes_;
      thread_bytes_ += round_up(bytes, 64);
      return offset;
    };
    const std::int64_t packing = packed_bytes_ > 0 ? strips_.room() : 0;
    gathered_ = take(std::max(in_place_ ? 0 : part_rows_ * row_pitch_, packing));
    sums_ = take(is_direct_ ? 0 : block_rows_ * pitch_ * 4);
    program_ = take(epilogue_ ? epilogue_->tile_floats() * 4 : 0);
  }

  std::int64_t groups() const { return ceil_div(strips_.count(), strips_at_once_); }

  // Rows with zeros behind them, up to a whole step.
  void gather(const std::byte* from, const Range& rows, std::byte* to) const {
    rows_->gather(from, rows.begin, rows.end - rows.begin, to, row_pitch_);
    const std::int64_t used = numbers_.taken_bytes() * rows_->depth();
    const std::int64_t whole = 4 * strips_.depth_words();
    if (used == whole) return;
    for (std::int64_t row = rows.begin; row < rows.end; ++row, to += row_pitch_)
      std::memset(to + used, 0, static_cast<std::size_t>(whole - used));
  }

  void run_part(std::span<std::byte* const> operands, const float* strips, const Range& rows,
                const Range& groups, std::byte* scratch) const {
    simd::StripProduct p;
    const std::byte* left = scratch + gathered_;
    p.a_row_bytes = row_pitch_;
    if (in_place_) {
      p.a_row_bytes = *rows_->row_bytes();
      left = operands[left_] + rows.begin * p.a_row_bytes;
    } else {
      gather(operands[left_], rows, scratch + gathered_);
    }
    p.depth = strips_.depth_words();
    p.strip_words = strips_.words();
    p.next_lines = next_lines_;
    auto* const sums = reinterpret_cast<float*>(scratch + sums_);
    auto* const result = reinterpret_cast<float*>(operands[result_]);
    p.to_row = is_direct_ ? result_rows_.stride().value() : pitch_;
    for (std::int64_t group = groups.begin; group < groups.end; ++group) {
      const std::int64_t strip = group * strips_at_once_;
      p.strip_count = std::min(strips_at_once_, strips_.count() - strip);
      p.strips = strips + strip * strips_.words();
      p.first = first_.empty() ? nullptr : first_.data() + strip * kStrip;
      auto* next = reinterpret_cast<const std::byte*>(p.strips + p.strip_count * strips_.words());
      for (std::int64_t row = rows.begin; row < rows.end; row += block_rows_) {
        p.rows = std::min(block_rows_, rows.end - row);
        p.a = left + (row - rows.begin) * p.a_row_bytes;
        p.to = is_direct_ ? result + row * p.to_row + strip * kStrip : sums;
        p.next = next;
        next += 4 * next_lines_ * p.depth * ceil_div(p.strip_count, 2);
        unit_.multiply(p);
        finish(operands, {row, p.rows, strip * kStrip, columns_of(strip, p.strip_count)}, p.to,
               reinterpret_cast<float*>(scratch + program_));
      }
    }
  }

  std::int64_t columns_of(std::int64_t strip, std::int64_t count) const {
    return std::min(count * kStrip, strips_.columns() - strip * kStrip);
  }

  // Whether the sums are made where the result lies: what follows works on whole rows only.
  bool can_be_direct(std::int64_t strips_at_once) const {
    const auto stride = result_rows_.stride();
    return dtype_ == f32 && column_ == 1 && strips_.columns() % kStrip == 0 && stride &&
           (!has_epilogue_ ||
            (strips_at_once == strips_.count() && *stride == strips_at_once * kStrip));
  }

  // The epilogue, and the way to the result.
  void finish(std::span<std::byte* const> operands, const BlockProgram::Block& block, float* sums,
              float* scratch) const {
    if (epilogue_) {
      std::byte* own[kMaxSlots];
      for (std::size_t i = 0; i < operands_.size(); ++i) own[i] = operands[operands_[i]];
      epilogue_->run_tile(block, pitch_, sums, {own, operands_.size()}, scratch);
    }
    if (is_direct_) return;
    const auto store = simd::table().store[static_cast<int>(dtype_)];
    std::byte* to = operands[result_] + block.column * column_ * item_size(dtype_);
    result_rows_.walk(
        block.row, block.rows, [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i, sums += pitch_)
            store(to + (offset + i * stride) * item_size(dtype_), column_, sums, block.columns);
        });
  }

  int threads_;
  Unit unit_;
  Numbers numbers_;
  std::unique_ptr<ProductRows> rows_;
  Strips strips_;
  Tensor packed_;             // constant weights
  std::vector<float> first_;  // the bias, or empty
  std::optional<BlockProgram> epilogue_;
  std::vector<std::size_t> operands_;              // of the epilogue
  std::size_t left_ = 0, right_ = 0, result_ = 0;  // operands
  Access result_rows_;
  std::int64_t column_ = 1;  // the result's stride
  DType dtype_ = f32;
  std::int64_t row_count_ = 0;
  bool in_place_ = false, is_direct_ = false, has_epilogue_ = false;
  std::int64_t block_rows_ = 1;
  std::int64_t strips_at_once_ = 1, pitch_ = 1, row_pitch_ = 0, next_lines_ = 0;
  std::int64_t part_rows_ = 1, row_parts_ = 1, column_parts_ = 1;
  // In bytes: weights packed in each run, the scratch of one thread, and where its parts begin.
  std::int64_t packed_bytes_ = 0, thread_bytes_ = 0, gathered_ = 0, sums_ = 0, program_ = 0;
};

struct Speed {
  double Machine::*rate;
  double share;       // of that, in a large product
  double dispatches;  // what a start costs; less where no library lies in between and both wait
};

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine,
                                       const AnchoredProduct& product, const Unit& unit,
                                       const Speed& speed) {
  const Graph& graph = alone.laid.graph;
  const Node& node = graph[product.anchor];
  const auto elements = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape));
  };
  const Work work = work_of(graph, alone.group);
  // Sums come from the first-level cache, gathered rows go through the second.
  const double finished = elements(product.result) *
                          (1 + static_cast<double>(operator_count(graph, product.epilogue.nodes)));
  double gathered = 0, packed = 0;
  if (node.op == Op::conv2d) {
    const double columns = static_cast<double>(node.type.shape[1]);
    gathered = elements(product.anchor) / columns * elements(node.inputs[1]) / columns *
               static_cast<double>(item_size(unit.taken));
  }
  if (!graph.is_constant(node.inputs[1])) packed = elements(node.inputs[1]);
  return implementation(
      alone, machine,
      [=](const Machine& m) {
        const double others =
            finished / (4 * m.simple_gops) + gathered / m.cache_gbps + packed / m.simple_gops;
        const double compute = work.flops / (speed.share * m.*speed.rate) + others;
        const double bandwidth = work.bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
        return speed.dispatches * m.dispatch_us + std::max(compute, work.bytes / bandwidth) / 1e3;
      },
      [=](const Isolated& one, const Machine& m) {
        return std::make_unique<ProductKernel>(one.laid, one.group, product, m, unit);
      });
}

DType factor_type(const Graph& graph, const AnchoredProduct& product) {
  return graph.type(graph[product.anchor].inputs[0]).dtype;
}

std::optional<Implementation> consider_tiles(const Isolated& alone, const Machine& machine) {
  if (machine.tile_gflops <= 0) return std::nullopt;
  const auto product = match_product(alone.laid.graph, alone.group);
  if (!product || is_in_eight_bits(alone.laid.graph, *product)) return std::nullopt;
  const auto unit = tiles_for(factor_type(alone.laid.graph, *product), machine);
  if (!unit) return std::nullopt;
  return consider(alone, machine, *product, *unit, {&Machine::tile_gflops, 0.5, 0.9});
}

std::optional<Implementation> consider_vectors(const Isolated& alone, const Machine& machine) {
  const auto product = match_product(alone.laid.graph, alone.group);
  if (!product || is_in_eight_bits(alone.laid.graph, *product)) return std::nullopt;
  const Unit unit = vectors_for(factor_type(alone.laid.graph, *product), machine);
  const auto rate = unit.taken == bf16 ? &Machine::bf16_gflops : &Machine::f32_gflops;
  // oneDNN's estimate is always less: it still is some 6 % faster (AVX2).
  return consider(alone, machine, *product, unit, {rate, 0.8, 1.1});
}

}  // namespace

const Family kProduct = {"product", consider_vectors};
const Family kTileProduct = {"tiles", consider_tiles};

}  // namespace tensor::cpu
