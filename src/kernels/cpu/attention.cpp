// The attention family: softmax(scale q k + ...) v for a block of queries at a time, streaming over
// blocks of keys (Dao et al., FlashAttention, 2022). The scores exist only as a tile in the cache.
// All arithmetic is in float32, whatever the storage type.
#include <algorithm>
#include <limits>

#include "src/core/view.h"
#include "src/kernels/cpu/attention_match.h"
#include "src/kernels/cpu/block_program.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/parallel.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kMostQueries = 48;  // of a block: with the keys' block a tile of 64 KiB
constexpr std::int64_t kMostKeys = 352;
constexpr std::size_t kMostNodes = 16;

std::int64_t rounded_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

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
    Shape batch = graph.type(a.result).shape;
    queries_ = batch[batch.rank() - 2];
    features_ = batch.back();
    batch.erase(batch.rank() - 1);
    batch.erase(batch.rank() - 1);
    batches_ = num_elements(batch);
    keys_ = graph.type(a.scores).shape.back();
    depth_ = graph.type(a.q).shape.back();
    const auto place = [&](ValueId id) {
      return static_cast<std::size_t>(std::find(group.reads.begin(), group.reads.end(), id) -
                                      group.reads.begin());
    };
    const auto of = [&](ValueId id, std::size_t operand) {
      return matrices(laid.layouts[static_cast<std::size_t>(id)], graph.type(id).dtype, batch,
                      operand);
    };
    q_ = of(a.q, place(a.q));
    k_ = of(a.k, place(a.k));
    v_ = of(a.v, place(a.v));
    result_ = of(a.result, group.reads.size());
    choose_blocks();
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
    return std::string("streaming attention ") + simd::table().name + ", blocks of " +
           std::to_string(query_block_) + " x " + std::to_string(key_block_);
  }

 private:
  // Blocks of nearly equal size; a batch is cut into parts, each of which packs all keys for
  // itself, only as far as the threads need it.
  void choose_blocks() {
    lanes_ = simd::table().lanes;
    const std::int64_t key_blocks = (keys_ + kMostKeys - 1) / kMostKeys;
    key_block_ = std::min(rounded_up((keys_ + key_blocks - 1) / key_blocks, 2 * lanes_), keys_);
    pitch_ = rounded_up(key_block_, lanes_);
    constexpr double kPacking = 16;  // as long as that many queries
    double best = std::numeric_limits<double>::infinity();
    for (std::int64_t parts = 1; parts <= std::max<std::int64_t>(queries_ / 16, 1); ++parts) {
      const std::int64_t rounds = (batches_ * parts + threads_ - 1) / threads_;
      const double time = static_cast<double>(rounds) *
                          (static_cast<double>((queries_ + parts - 1) / parts) + kPacking);
      if (time < 0.98 * best) best = time, parts_ = parts;
    }
    const std::int64_t part = (queries_ + parts_ - 1) / parts_;
    const std::int64_t blocks = (part + kMostQueries - 1) / kMostQueries;
    query_block_ = (part + blocks - 1) / blocks;
  }

  void place_scratch() {
    const auto take = [&](std::int64_t count) {
      const std::int64_t offset = floats_;
      floats_ += rounded_up(count, 16);
      return offset;
    };
    feature_pitch_ = rounded_up(features_, lanes_);
    packed_keys_ = take(depth_ * rounded_up(keys_, lanes_));
    packed_values_ = take(feature_pitch_ * keys_);
    rows_ = take(std::max(query_block_, 2 * lanes_) * depth_);
    tile_ = take(query_block_ * pitch_);
    sums_ = take(query_block_ * feature_pitch_);
    state_ = take(3 * query_block_);
    program_ = take(middle_ ? middle_->tile_floats() : 0);
  }

  // Keys become the columns of panels.
  void pack_keys(const std::byte* k, float* scratch) const {
    const simd::Table& table = simd::table();
    const std::int64_t wide = 2 * lanes_;
    for (std::int64_t key = 0; key < keys_; key += wide) {
      const std::int64_t width = keys_ - key > lanes_ ? wide : lanes_;
      const std::int64_t count = std::min(keys_ - key, width);
      float* panel = scratch + packed_keys_ + key * depth_;
      const std::byte* from = k + key * k_.column * item_size(k_.dtype);
      if (k_.row == 1 && k_.dtype == f32) {
        table.pack_columns(panel, width, reinterpret_cast<const float*>(from), k_.column, count,
                           depth_);
        continue;
      }
      float* rows = scratch + rows_;
      for (std::int64_t i = 0; i < count; ++i)
        k_.load(rows + i * depth_, from + i * k_.column * item_size(k_.dtype), k_.row, depth_);
      table.pack_columns(panel, width, rows, depth_, count, depth_);
    }
  }

  void pack_values(const std::byte* v, float* scratch) const {
    for (std::int64_t f = 0; f < feature_pitch_; f += 2 * lanes_) {
      const std::int64_t width = std::min(feature_pitch_ - f, 2 * lanes_);
      const std::int64_t count = std::min(features_ - f, width);
      float* to = scratch + packed_values_ + f * keys_;
      const std::byte* from = v + f * v_.column * item_size(v_.dtype);
      for (std::int64_t key = 0; key < keys_; ++key, to += width) {
        v_.load(to, from + key * v_.row * item_size(v_.dtype), v_.column, count);
        std::fill(to + count, to + width, 0.0f);
      }
    }
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
    float *q = scratch + rows_, *tile = scratch + tile_, *sums = scratch + sums_;
    float *top = scratch + state_, *total = top + rows, *factor = total + rows;
    for (std::int64_t r = 0; r < rows; ++r)
      q_.load(q + r * depth_, q_.at(operands, batch, (query + r) * q_.row), q_.column, depth_);
    for (std::int64_t i = 0; i < rows * depth_; ++i) q[i] *= scale_;
    std::fill(top, top + rows, -std::numeric_limits<float>::infinity());
    std::fill(total, total + rows, 0.0f);
    for (std::int64_t key = 0; key < keys_; key += key_block_) {
      const std::int64_t count = std::min(key_block_, keys_ - key);
      table.product(q, depth_, rows, scratch + packed_keys_ + key * depth_, depth_, depth_,
                    (count + lanes_ - 1) / lanes_, tile, pitch_, nullptr);
      if (middle_)
        run_middle(operands,
                   {static_cast<std::int64_t>(batch) * queries_ + query, rows, key, count},
                   scratch);
      table.soften(tile, rows, count, pitch_, top, total, factor);
      multiply_values(tile, rows, key, count, sums, key > 0 ? factor : nullptr, scratch);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = sums + r * feature_pitch_;
      const float scale = 1 / total[r];
      for (std::int64_t f = 0; f < features_; ++f) row[f] *= scale;
      table.store[static_cast<int>(result_.dtype)](
          const_cast<std::byte*>(result_.at(operands, batch, (query + r) * result_.row)),
          result_.column, row, features_);
    }
  }

  void multiply_values(const float* tile, std::int64_t rows, std::int64_t key, std::int64_t count,
                       float* sums, const float* factor, const float* scratch) const {
    for (std::int64_t f = 0; f < feature_pitch_; f += 2 * lanes_) {
      const std::int64_t width = std::min(feature_pitch_ - f, 2 * lanes_);
      simd::table().product(tile, pitch_, rows, scratch + packed_values_ + f * keys_ + key * width,
                            keys_, count, width / lanes_, sums + f, feature_pitch_, factor);
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
  float scale_;
  int threads_;
  std::int64_t lanes_ = 1;
  std::int64_t batches_ = 1, queries_ = 1, keys_ = 1, depth_ = 1, features_ = 1;
  std::int64_t parts_ = 1, query_block_ = 1, key_block_ = 1, pitch_ = 1, feature_pitch_ = 1;
  std::optional<BlockProgram> middle_;
  std::vector<std::size_t> middle_operands_;
  // Of one thread: how many floats, and where they begin.
  std::int64_t floats_ = 0, packed_keys_ = 0, packed_values_ = 0, rows_ = 0, tile_ = 0, sums_ = 0,
               state_ = 0, program_ = 0;
};

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  if (group.nodes.size() > kMostNodes) return std::nullopt;
  const auto a = match_attention(graph, group);
  if (!a) return std::nullopt;
  const auto elements = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape));
  };
  const double scores = elements(a->scores);
  const double depth = static_cast<double>(graph.type(a->q).shape.back());
  const double flops = 2 * scores * (depth + static_cast<double>(graph.type(a->v).shape.back()));
  const double packing = elements(a->q) + elements(a->k) + elements(a->v) + elements(a->result);
  const double elementwise =
      (packing + scores * static_cast<double>(a->middle.nodes.size())) / machine.simple_gops;
  return machine.dispatch_us +
         (flops / (0.95 * machine.f32_gflops) + scores / machine.special_gops + elementwise) / 1e3;
}

std::unique_ptr<Kernel> build(const LaidOutGraph& laid, const Group& group,
                              const Machine& machine) {
  return std::make_unique<AttentionKernel>(laid, group, *match_attention(laid.graph, group),
                                           machine);
}

}  // namespace

const Family kAttention = {"attention", estimate, build};

}  // namespace tensor::cpu
