// The attention family: softmax(scale q k + ...) v for a block of queries at a time, streaming over
// blocks of keys (Dao et al., FlashAttention, 2022). The scores exist only as a tile in the cache.
// Scores, softmax and sums are float32, whatever the storage type. Where both products are bf16 and
// the processor multiplies bf16, so are their operands: the weights are rounded before they are
// divided by their sum, which is as close to the exact result as rounding them afterwards.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/core/view.h"
#include "src/kernels/cpu/attention/blocks.h"
#include "src/kernels/cpu/blocks/program.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/elementwise.h"
#include "src/kernels/match/attention.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kMostLanes = 16;

bool multiplies_pairs(const Attention& a, const Machine& machine) {
  return machine.has_bf16 && simd::table().product_pairs && a.product_dtype == bf16;
}

// A factor or the result as a matrix for every place of the batch axes.
struct Matrices {
  std::size_t operand = 0;
  DType dtype = f32;
  std::int64_t row = 0, column = 0;  // strides
  std::vector<std::int64_t> offsets;

  const std::byte* at(std::span<std::byte* const> operands, std::size_t batch,
                      std::int64_t offset) const {
    return operands[operand] + (offsets[batch] + offset) * item_size(dtype);
  }
  void load(float* to, const std::byte* from, std::int64_t stride, std::int64_t count) const {
    simd::table().load[static_cast<int>(dtype)](to, from, stride, count);
  }
};

Matrices matrices(const Layout& layout, DType dtype, const Shape& batch, std::size_t operand) {
  Shape shape = batch;
  shape.push_back(layout.shape[layout.shape.rank() - 2]);
  shape.push_back(layout.shape.back());
  const Strides strides = broadcast_strides(layout.shape, layout.strides, shape);
  Matrices result{operand, dtype, strides[batch.rank()], strides[batch.rank() + 1], {}};
  Strides outer;
  for (int axis = 0; axis < batch.rank(); ++axis) outer.push_back(strides[axis]);
  const Access access(batch, outer);
  access.walk(0, num_elements(batch),
              [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
                for (std::int64_t i = 0; i < count; ++i)
                  result.offsets.push_back(offset + i * stride);
              });
  return result;
}

class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const LaidOutGraph& laid, const Group& group, const Attention& a,
                  const Machine& machine)
      : scale_(static_cast<float>(a.scale)), threads_(machine.threads) {
    const Graph& graph = laid.graph;
    is_paired_ = multiplies_pairs(a, machine);
    per_word_ = is_paired_ ? 2 : 1;
    has_tiles_ = is_paired_ && machine.tile_gflops > 0;
    const simd::Table& table = simd::table();
    multiply_ = has_tiles_ ? table.product_tiles : is_paired_ ? table.product_pairs : table.product;
    Shape batch = graph.type(a.result).shape;
    queries_ = batch[batch.rank() - 2];
    features_ = batch.back();
    batch.erase(batch.rank() - 1);
    batch.erase(batch.rank() - 1);
    batches_ = num_elements(batch);
    keys_ = graph.type(a.scores).shape.back();
    depth_ = graph.type(a.q).shape.back();
    depth_words_ = words(depth_), key_words_ = words(keys_);
    const auto place = [&](ValueId id) {
      return static_cast<std::size_t>(std::find(group.reads.begin(), group.reads.end(), id) -
                                      group.reads.begin());
    };
    const auto of = [&](ValueId id, std::size_t operand) {
      return matrices(laid.layouts[at(id)], graph.type(id).dtype, batch, operand);
    };
    q_ = of(a.q, place(a.q));
    k_ = of(a.k, place(a.k));
    v_ = of(a.v, place(a.v));
    result_ = of(a.rounding ? a.rounding->bytes : a.result, group.reads.size());
    if (a.rounding) inverse_ = a.rounding->inverse;
    choose_blocks(machine, group.schedule);
    if (!a.middle.nodes.empty()) {
      for (const ValueId id : a.middle.reads)
        middle_operands_.push_back(id == a.scores ? 0 : place(id));
      middle_.emplace(laid, a.middle, *block_shape_of(graph, a.middle), a.scores,
                      BlockProgram::TileSize{query_block_, pitch_});
    }
    place_scratch();
  }

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    parallel_for(threads_, batches_ * parts_, [&](std::int64_t task, int thread) {
      run_part(operands, static_cast<std::size_t>(task / parts_), task % parts_,
               reinterpret_cast<float*>(scratch) + floats_ * std::int64_t{thread});
    });
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(floats_ * std::int64_t{threads_}) * sizeof(float);
  }
  std::string description() const override {
    return std::string("streaming attention ") + simd::table().name +
           (has_tiles_   ? ", products in bf16 by tiles"
            : is_paired_ ? ", products in bf16"
                         : "") +
           ", blocks of " + std::to_string(query_block_) + " x " + std::to_string(key_block_);
  }

 private:
  std::int64_t words(std::int64_t numbers) const { return ceil_div(numbers, per_word_); }

  void choose_blocks(const Machine& machine, const std::string& schedule) {
    lanes_ = simd::table().lanes;
    const AttentionExtents extents{batches_, queries_, keys_, depth_, features_, has_tiles_};
    const AttentionBlocks blocks =
        schedule.empty() ? usual_blocks(extents, machine.threads)
                         : blocks_of(attention_space(extents, machine, 1).of(schedule));
    parts_ = blocks.parts, query_block_ = blocks.queries, key_block_ = blocks.keys;
    pitch_ = round_up(key_block_, lanes_);
  }

  void place_scratch() {
    const auto take = [&](std::int64_t count) {
      const std::int64_t offset = floats_;
      floats_ += round_up(count, 16);
      return offset;
    };
    feature_pitch_ = round_up(features_, lanes_);
    packed_keys_ = take(depth_words_ * round_up(keys_, lanes_));
    packed_values_ = take(feature_pitch_ * key_words_);
    rows_ = take(std::max(query_block_, 2 * lanes_) * depth_words_);
    line_ = take(std::max(depth_, 2 * lanes_));
    tile_ = take(query_block_ * pitch_);
    sums_ = take(query_block_ * feature_pitch_);
    state_ = take(3 * query_block_);
    program_ = take(middle_ ? middle_->tile_floats() : 0);
  }

  // A row of queries or keys as words; a last half of a word is 0.
  void load_words(const Matrices& m, float* to, const std::byte* from, std::int64_t stride,
                  float* line) const {
    if (!is_paired_) return m.load(to, from, stride, depth_);
    auto* halves = reinterpret_cast<std::byte*>(to);
    if (depth_ % 2) std::memset(halves + 2 * depth_, 0, 2);
    narrow(m, halves, from, stride, depth_, line);
  }

  // `count` numbers as bf16 in a row.
  static void narrow(const Matrices& m, std::byte* to, const std::byte* from, std::int64_t stride,
                     std::int64_t count, float* line) {
    if (m.dtype == bf16 && stride == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(2 * count));
      return;
    }
    m.load(line, from, stride, count);
    simd::table().store[static_cast<int>(bf16)](to, 1, line, count);
  }

  // Keys become the columns of panels.
  void pack_keys(const std::byte* k, float* scratch) const {
    const simd::Table& table = simd::table();
    const std::int64_t wide = 2 * lanes_;
    for (std::int64_t key = 0; key < keys_; key += wide) {
      const std::int64_t width = keys_ - key > lanes_ ? wide : lanes_;
      const std::int64_t count = std::min(keys_ - key, width);
      float* panel = scratch + packed_keys_ + key * depth_words_;
      const std::byte* from = k + key * k_.column * item_size(k_.dtype);
      if (k_.row == 1 && k_.dtype == f32 && !is_paired_) {
        table.pack_columns(panel, width, reinterpret_cast<const float*>(from), k_.column, count,
                           depth_);
        continue;
      }
      float* rows = scratch + rows_;
      for (std::int64_t i = 0; i < count; ++i)
        load_words(k_, rows + i * depth_words_, from + i * k_.column * item_size(k_.dtype), k_.row,
                   scratch + line_);
      table.pack_columns(panel, width, rows, depth_words_, count, depth_words_);
    }
  }

  void pack_values(const std::byte* v, float* scratch) const {
    for (std::int64_t f = 0; f < feature_pitch_; f += 2 * lanes_) {
      const std::int64_t width = std::min(feature_pitch_ - f, 2 * lanes_);
      const std::int64_t count = std::min(features_ - f, width);
      float* to = scratch + packed_values_ + f * key_words_;
      const std::byte* from = v + f * v_.column * item_size(v_.dtype);
      const std::int64_t next = v_.row * item_size(v_.dtype);
      for (std::int64_t key = 0; key < keys_; key += per_word_, to += width) {
        if (is_paired_)
          pair_values(to, from + key * next, key + 1 < keys_ ? from + (key + 1) * next : nullptr,
                      count, scratch + line_);
        else
          v_.load(to, from + key * next, v_.column, count);
        std::fill(to + count, to + width, 0.0f);
      }
    }
  }

  void pair_values(float* to, const std::byte* first, const std::byte* second, std::int64_t count,
                   float* line) const {
    std::byte halves[2][2 * kMostLanes * 2];
    const auto in_a_row = [&](const std::byte*& row, std::byte* own) {
      if (!row || (v_.dtype == bf16 && v_.column == 1)) return;
      narrow(v_, own, row, v_.column, count, line);
      row = own;
    };
    in_a_row(first, halves[0]);
    in_a_row(second, halves[1]);
    simd::table().pair_rows(to, first, second, count);
  }

  void run_part(std::span<std::byte* const> operands, std::size_t batch, std::int64_t part,
                float* scratch) const {
    pack_keys(k_.at(operands, batch, 0), scratch);
    pack_values(v_.at(operands, batch, 0), scratch);
    const std::int64_t end = queries_ * (part + 1) / parts_;
    for (std::int64_t query = queries_ * part / parts_; query < end; query += query_block_)
      run_block(operands, batch, query, std::min(query_block_, end - query), scratch);
  }

  void run_block(std::span<std::byte* const> operands, std::size_t batch, std::int64_t query,
                 std::int64_t rows, float* scratch) const {
    const simd::Table& table = simd::table();
    const auto soften = is_paired_ ? table.soften_pairs : table.soften;
    float *q = scratch + rows_, *tile = scratch + tile_, *sums = scratch + sums_;
    float *top = scratch + state_, *total = top + rows, *factor = total + rows;
    for (std::int64_t r = 0; r < rows; ++r)
      load_words(q_, q + r * depth_words_, q_.at(operands, batch, (query + r) * q_.row), q_.column,
                 scratch + line_);
    std::fill(top, top + rows, -std::numeric_limits<float>::infinity());
    std::fill(total, total + rows, 0.0f);
    for (std::int64_t key = 0; key < keys_; key += key_block_) {
      const std::int64_t count = std::min(key_block_, keys_ - key);
      multiply_(q, depth_words_, rows, scratch + packed_keys_ + key * depth_words_, depth_words_,
                depth_words_, ceil_div(count, lanes_), scale_, tile, pitch_, nullptr);
      if (middle_)
        run_middle(operands,
                   {static_cast<std::int64_t>(batch) * queries_ + query, rows, key, count},
                   scratch);
      soften(tile, rows, count, pitch_, top, total, factor);
      multiply_values(tile, rows, key, count, sums, key > 0 ? factor : nullptr, scratch);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = sums + r * feature_pitch_;
      const float scale = 1 / total[r];
      for (std::int64_t f = 0; f < features_; ++f) row[f] *= scale;
      auto* to = const_cast<std::byte*>(result_.at(operands, batch, (query + r) * result_.row));
      if (result_.dtype == i8)
        store_rounded(to, row);
      else
        table.store[static_cast<int>(result_.dtype)](to, result_.column, row, features_);
    }
  }

  // Bytes that do not lie side by side take the place of the numbers first.
  void store_rounded(std::byte* to, float* row) const {
    std::byte* const at = result_.column == 1 ? to : reinterpret_cast<std::byte*>(row);
    simd::table().finish[static_cast<int>(i8)](
        {.sums = row, .inverse = inverse_, .to = at, .rows = 1, .columns = features_});
    if (at == to) return;
    for (std::int64_t f = 0; f < features_; ++f) to[f * result_.column] = at[f];
  }

  void multiply_values(const float* tile, std::int64_t rows, std::int64_t key, std::int64_t count,
                       float* sums, const float* factor, const float* scratch) const {
    for (std::int64_t f = 0; f < feature_pitch_; f += 2 * lanes_) {
      const std::int64_t width = std::min(feature_pitch_ - f, 2 * lanes_);
      const float* values = scratch + packed_values_ + f * key_words_ + key / per_word_ * width;
      multiply_(tile, pitch_, rows, values, key_words_, words(count), width / lanes_, 1, sums + f,
                feature_pitch_, factor);
    }
  }

  void run_middle(std::span<std::byte* const> operands, const BlockProgram::Block& block,
                  float* scratch) const {
    std::byte* own[kMaxSlots];
    for (std::size_t i = 0; i < middle_operands_.size(); ++i)
      own[i] = operands[middle_operands_[i]];
    middle_->run_tile(block, pitch_, scratch + tile_, {own, middle_operands_.size()},
                      scratch + program_);
  }

  Matrices q_, k_, v_, result_;
  float scale_, inverse_ = 1;  // of scores; of the scale by which results are rounded
  int threads_;
  simd::Table::Product multiply_ = nullptr;
  bool is_paired_ = false, has_tiles_ = false;  // products in bf16, two numbers in a word
  std::int64_t per_word_ = 1;                   // numbers
  std::int64_t lanes_ = 1;
  std::int64_t batches_ = 1, queries_ = 1, keys_ = 1, depth_ = 1, features_ = 1;
  std::int64_t depth_words_ = 1, key_words_ = 1;
  std::int64_t parts_ = 1, query_block_ = 1, key_block_ = 1, pitch_ = 1, feature_pitch_ = 1;
  std::optional<BlockProgram> middle_;
  std::vector<std::size_t> middle_operands_;
  // Of one thread: how many floats, and where they begin.
  std::int64_t floats_ = 0, packed_keys_ = 0, packed_values_ = 0, rows_ = 0, line_ = 0, tile_ = 0,
               sums_ = 0, state_ = 0, program_ = 0;
};

AttentionExtents extents_of(const Graph& graph, const Attention& a, bool has_tiles) {
  const Shape& result = graph.type(a.result).shape;
  const std::int64_t queries = result[result.rank() - 2], features = result.back();
  const std::int64_t batches = num_elements(result) / std::max<std::int64_t>(queries * features, 1);
  return {batches,  queries,  graph.type(a.scores).shape.back(), graph.type(a.q).shape.back(),
          features, has_tiles};
}

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  if (operator_count(graph, alone.group.nodes) > kMostOperators) return std::nullopt;
  const auto a = match_attention(graph, alone.group);
  if (!a) return std::nullopt;
  // A tile's program has one form of the batch.
  if (!a->middle.nodes.empty() && !block_shape_of(graph, a->middle)) return std::nullopt;
  const auto elements = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape));
  };
  const double scores = elements(a->scores);
  const double depth = static_cast<double>(graph.type(a->q).shape.back());
  const double flops = 2 * scores * (depth + static_cast<double>(graph.type(a->v).shape.back()));
  const double packing = elements(a->q) + elements(a->k) + elements(a->v) + elements(a->result);
  const double simple =
      packing + scores * static_cast<double>(operator_count(graph, a->middle.nodes));
  const Estimate microseconds = [=](const Machine& m) {
    const double rate = !multiplies_pairs(*a, m) ? m.f32_gflops
                        : m.tile_gflops > 0      ? m.tile_gflops
                                                 : m.bf16_gflops;
    return m.dispatch_us +
           (flops / (0.95 * rate) + scores / m.special_gops + simple / m.simple_gops) / 1e3;
  };
  const AttentionExtents extents =
      extents_of(graph, *a, multiplies_pairs(*a, machine) && machine.tile_gflops > 0);
  return implementation(
      alone, machine, microseconds,
      [=](const Isolated& one, const Machine& m) {
        return std::make_unique<AttentionKernel>(one.laid, one.group, *a, m);
      },
      [=] { return attention_space(extents, machine, microseconds(machine)); });
}

}  // namespace

const Family kAttention = {"attention", consider};

}  // namespace tensor::cpu
