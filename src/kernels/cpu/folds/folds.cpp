// The family folds: reductions of a value of which the elements of one result lie far apart, line
// by line rather than result by result, so that memory is read once and in order.
#include "src/kernels/cpu/folds/match.h"

#include <algorithm>
#include <array>
#include <limits>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/kernels/cpu/blocks/program.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/host/simd/table.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kMostLines = 256;      // of a piece, whose sums are in float32
constexpr std::int64_t kPieceFloats = 16384;  // a piece is read twice, from the cache
constexpr std::int64_t kLeastLines = 16;      // of a piece, or adding pieces would take as long
constexpr std::int64_t kLeastParallel = 30000;
constexpr std::size_t kMostOperands = 32;  // of the operators behind the reductions

// Pieces of lines that one task folds; they depend on no number of threads, so neither do the bits.
struct Pieces {
  std::int64_t lines, count;  // of a piece, but for the last; of a bundle
  explicit Pieces(const Folds& folds)
      : lines(std::clamp(kPieceFloats / folds.lanes, kLeastLines, kMostLines)),
        count(ceil_div(folds.lines, lines)) {}
};

bool has(const Graph& graph, const Folds& folds, Op op) {
  return std::any_of(folds.reductions.begin(), folds.reductions.end(),
                     [&](ValueId id) { return graph[id].op == op; });
}

// The elementwise operators as a group of their own, which reads the reductions' results.
Group rest_of(const Graph& graph, const Group& group, const Folds& folds) {
  Group rest;
  rest.nodes = folds.others;
  const auto is_made = [&](ValueId id) {
    return std::binary_search(folds.others.begin(), folds.others.end(), root_of(graph, id));
  };
  for (const ValueId id : rest.nodes)
    for (const ValueId input : graph[id].inputs)
      if (!is_made(input) &&
          std::find(rest.reads.begin(), rest.reads.end(), input) == rest.reads.end())
        rest.reads.push_back(input);
  for (const ValueId id : group.writes)
    if (is_made(id)) rest.writes.push_back(id);
  return rest;
}

// Where each result lies in a value's memory, in the order of the rows.
std::vector<std::int64_t> places_of(const LaidOutGraph& laid, const BlockShape& shape, ValueId id) {
  const Strides strides =
      squeezed_strides(laid.layouts[static_cast<std::size_t>(id)], laid.graph.type(id).shape);
  std::vector<std::int64_t> places;
  Access(shape.rows(), strides)
      .walk(0, shape.row_count(), [&](std::int64_t offset, std::int64_t stride, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) places.push_back(offset + i * stride);
      });
  return places;
}

class FoldKernel : public Kernel {
 public:
  FoldKernel(const Isolated& alone, Folds folds, int threads)
      : folds_(std::move(folds)),
        pieces_(folds_),
        threads_(folds_.lines * folds_.lanes * folds_.bundles() < kLeastParallel ? 1 : threads) {
    const Graph& graph = alone.laid.graph;
    has_squares_ = has(graph, folds_, Op::var), has_largest_ = has(graph, folds_, Op::max);
    has_sums_ = has_squares_ || has(graph, folds_, Op::sum) || has(graph, folds_, Op::mean);
    for (const ValueId id : folds_.reductions) add_result(alone, id);
    if (folds_.others.empty()) return;
    const Group rest = rest_of(graph, alone.group, folds_);
    rest_.emplace(alone.laid, rest, *block_shape_of(graph, rest), 1);
    for (const ValueId id : rest.reads) rest_operands_.push_back(source_of(alone, id));
    for (const ValueId id : rest.writes) rest_operands_.push_back(written(alone.group, id));
  }

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    float* const partial = reinterpret_cast<float*>(scratch);
    const auto* const from = reinterpret_cast<const float*>(operands[folds_.operand]);
    parallel_for(threads_, folds_.bundles() * pieces_.count, [&](std::int64_t task, int) {
      fold(from, task, partial + task * piece_floats());
    });
    auto* const all = reinterpret_cast<Sums*>(scratch + partial_bytes());
    std::byte* const results = scratch + partial_bytes() + sums_bytes();
    parallel_for(threads_, folds_.bundles(), [&](std::int64_t bundle, int) {
      join(bundle, partial + bundle * pieces_.count * piece_floats(), operands, results, all);
    });
    if (!rest_) return;
    std::array<std::byte*, kMostOperands> addresses{};
    for (std::size_t i = 0; i < rest_operands_.size(); ++i) {
      const auto [is_own, place] = rest_operands_[i];
      addresses[i] = is_own ? results + place * result_bytes() : operands[place];
    }
    rest_->run(std::span(addresses).first(rest_operands_.size()),
               results + results_.size() * result_bytes());
  }
  std::size_t scratch_bytes() const override {
    return partial_bytes() + sums_bytes() + results_.size() * result_bytes() +
           (rest_ ? rest_->scratch_bytes() : 0);
  }
  std::string description() const override {
    return std::string("folds ") + simd::table().name + ", lines of " +
           std::to_string(folds_.lanes);
  }

 private:
  // What all pieces have of a row.
  struct Sums {
    double sum = 0, squares = 0;  // of distances from the mean
    float largest = -std::numeric_limits<float>::infinity();
  };

  // What a reduction gives, and where it goes.
  struct Result {
    Op op;
    double count = 1;  // that sums are divided by
    std::size_t operand = 0;
    bool is_written = false;  // otherwise it is the rest that reads it
    std::vector<std::int64_t> places;
  };
  // An operand of the group, or one of the results in scratch memory.
  struct Source {
    bool is_own;
    std::size_t place;
  };

  static Source written(const Group& group, ValueId id) {
    const auto at = std::find(group.writes.begin(), group.writes.end(), id);
    return {false, group.reads.size() + static_cast<std::size_t>(at - group.writes.begin())};
  }

  void add_result(const Isolated& alone, ValueId id) {
    const Node& node = alone.laid.graph[id];
    Result result{.op = node.op, .places = places_of(alone.laid, folds_.shape, id)};
    const auto count = static_cast<double>(folds_.count());
    if (node.op == Op::mean) result.count = count;
    if (node.op == Op::var) result.count = count - node.attrs.number("ddof", 0);
    const auto& writes = alone.group.writes;
    result.is_written = std::find(writes.begin(), writes.end(), id) != writes.end();
    result.operand = written(alone.group, id).place;
    results_.push_back(std::move(result));
  }

  Source source_of(const Isolated& alone, ValueId id) const {
    const auto& reads = alone.group.reads;
    const auto read = std::find(reads.begin(), reads.end(), id);
    if (read != reads.end()) return {false, static_cast<std::size_t>(read - reads.begin())};
    const ValueId root = root_of(alone.laid.graph, id);
    const auto made = std::find(folds_.reductions.begin(), folds_.reductions.end(), root);
    const auto index = static_cast<std::size_t>(made - folds_.reductions.begin());
    if (results_[index].is_written) return {false, results_[index].operand};
    return {true, index};
  }

  // A line each of sums, of squared distances from their mean, and of maxima.
  std::int64_t piece_floats() const {
    return folds_.lanes * (has_sums_ + has_squares_ + has_largest_);
  }
  std::size_t partial_bytes() const {
    const std::int64_t floats = folds_.bundles() * pieces_.count * piece_floats();
    return static_cast<std::size_t>(round_up(floats, 16)) * sizeof(float);
  }
  std::size_t sums_bytes() const {
    return round_up(static_cast<std::size_t>(folds_.shape.row_count()) * sizeof(Sums),
                    std::size_t{64});
  }
  std::size_t result_bytes() const {
    return static_cast<std::size_t>(round_up(folds_.shape.row_count(), 16)) * sizeof(float);
  }
  std::int64_t lines_of(std::int64_t piece) const {
    return std::min(pieces_.lines, folds_.lines - piece * pieces_.lines);
  }

  void fold(const float* from, std::int64_t task, float* to) const {
    const void* lines[kMostLines];
    const std::int64_t piece = task % pieces_.count, count = lines_of(piece);
    from += folds_.begins[static_cast<std::size_t>(task / pieces_.count)];
    const void** next = lines;
    folds_.folded.walk(piece * pieces_.lines, count,
                       [&](std::int64_t offset, std::int64_t stride, std::int64_t n) {
                         for (std::int64_t i = 0; i < n; ++i) *next++ = from + offset + i * stride;
                       });
    const simd::Table& table = simd::table();
    constexpr auto kType = static_cast<int>(f32);
    float ones[kMostLines];
    std::fill_n(ones, count, 1.f);
    if (has_sums_) table.weighted_sum[kType](to, lines, ones, count, folds_.lanes);
    if (has_squares_) table.squares(to + folds_.lanes, lines, to, count, folds_.lanes);
    if (has_largest_)
      table.largest[kType](to + folds_.lanes * (has_sums_ + has_squares_), lines, ones, count,
                           folds_.lanes);
  }

  // The results of a bundle from what its pieces have.
  void join(std::int64_t bundle, const float* partial, std::span<std::byte* const> operands,
            std::byte* results, Sums* all) const {
    const std::int64_t first = folds_.rows[static_cast<std::size_t>(bundle)];
    const auto each = [&](const auto& add) {
      for (std::int64_t piece = 0; piece < pieces_.count; ++piece) {
        const float* const lanes = partial + piece * piece_floats();
        const auto count = static_cast<double>(lines_of(piece));
        for (std::size_t i = 0; i < folds_.lane_rows.size(); ++i)
          add(all[first + folds_.lane_rows[i]], lanes + i, count);
      }
    };
    for (const std::int64_t row : folds_.lane_rows) all[first + row] = {};
    if (has_sums_) each([](Sums& to, const float* lane, double) { to.sum += *lane; });
    const auto whole = static_cast<double>(folds_.count());
    const std::int64_t lanes = folds_.lanes;
    if (has_squares_)
      each([=](Sums& to, const float* lane, double count) {
        const double far = *lane / count - to.sum / whole;
        to.squares += lane[lanes] + count * far * far;
      });
    if (has_largest_)
      each([at = lanes * (has_sums_ + has_squares_)](Sums& to, const float* lane, double) {
        if (lane[at] > to.largest || lane[at] != lane[at]) to.largest = lane[at];
      });
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const Result& result = results_[i];
      auto* const to = reinterpret_cast<float*>(result.is_written ? operands[result.operand]
                                                                  : results + i * result_bytes());
      for (const std::int64_t row : folds_.lane_rows)
        to[result.places[static_cast<std::size_t>(first + row)]] = value(result, all[first + row]);
    }
  }
  static float value(const Result& result, const Sums& of) {
    if (result.op == Op::max) return of.largest;
    return static_cast<float>((result.op == Op::var ? of.squares : of.sum) / result.count);
  }

  Folds folds_;
  Pieces pieces_;
  int threads_;
  bool has_sums_ = false, has_squares_ = false, has_largest_ = false;
  std::vector<Result> results_;
  std::optional<BlockProgram> rest_;
  std::vector<Source> rest_operands_;
};

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine) {
  auto folds = folds_of(alone);
  if (!folds) return std::nullopt;
  const Graph& graph = alone.laid.graph;
  if (!folds->others.empty()) {
    const Group rest = rest_of(graph, alone.group, *folds);
    if (rest.reads.size() + rest.writes.size() > kMostOperands ||
        folds->others.size() > kMostOperators || !block_shape_of(graph, rest))
      return std::nullopt;
  }
  double passes = 0;
  for (const ValueId id : folds->reductions) passes += vector_op(graph[id].op)->passes;
  const Pieces pieces(*folds);
  const auto lines = static_cast<double>(folds->bundles() * folds->lines);
  const auto joined = static_cast<double>(folds->bundles() * pieces.count * folds->lanes);
  const double elements = lines * static_cast<double>(folds->lanes);
  const double bytes = work_of(graph, alone.group).bytes;
  return implementation(
      alone, machine,
      [=](const Machine& m) {
        constexpr double kJoinNs = 2;  // of a lane of a piece, one after the other
        const double rate = bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
        return m.dispatch_us +
               (elements * passes / m.simple_gops + bytes / rate + joined * kJoinNs) / 1e3;
      },
      [=](const Isolated& one, const Machine& m) {
        return std::make_unique<FoldKernel>(one, *folds, m.threads);
      });
}

}  // namespace

const Family kFolds = {"folds", consider};

}  // namespace tensor::cpu
