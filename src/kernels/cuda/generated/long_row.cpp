// Rows that no block holds in its registers, or not well: each is gone through once for every fold
// that needs the one before, and once more for what is written. Where there are few rows, several
// blocks share one, and every time is a kernel, which begins by merging what the blocks of the
// kernel before have seen.
#include <algorithm>
#include <set>

#include "src/core/rounding.h"
#include "src/kernels/cuda/generated/row_writer.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

constexpr std::size_t kMostFolds = 6;  // each has a state for every thread in shared memory

struct LongFold {
  Op op;
  std::string_view state;  // of templates/long_row.h
  int bytes;
};
constexpr LongFold kLongFolds[] = {
    {Op::sum, "RowSum", 4},
    {Op::mean, "RowSum", 4},
    {Op::max, "RowLargest", 4},
    {Op::min, "RowSmallest", 4},
    {Op::var, "RowSpread", 12},
    {Op::layer_norm, "RowSpread", 12},
    {Op::layer_norm_by_sums, "RowSpread", 12},
    {Op::softmax, "RowExponentials", 8},
    {Op::log_softmax, "RowExponentials", 8},
};

const LongFold* long_fold_of(Op op) {
  const auto* fold = std::find_if(std::begin(kLongFolds), std::end(kLongFolds),
                                  [&](const LongFold& f) { return f.op == op; });
  return fold == std::end(kLongFolds) ? nullptr : fold;
}

// How often a row was gone through before a member can be calculated.
class Times {
 public:
  Times(const BlockShape& shape, const Graph& graph, const Group& group) {
    for (const ValueId id : group.nodes) {
      int before = 0;
      for (ValueId input : graph[id].inputs) {
        while (shape.members.contains(input) && !before_.contains(input))
          input = graph[input].inputs[0];
        if (const auto known = before_.find(input); known != before_.end())
          before = std::max(before, known->second);
      }
      const bool is_fold = long_fold_of(graph[id].op) != nullptr;
      if (is_fold) folds_.emplace_back(id, before);
      before_[id] = before + is_fold;
      last_ = std::max(last_, before + is_fold);
    }
  }
  int before(ValueId id) const { return before_.at(id); }
  int last() const { return last_; }
  std::size_t fold_count() const { return folds_.size(); }
  std::vector<ValueId> folds(int time) const {
    std::vector<ValueId> result;
    for (const auto& [id, own] : folds_)
      if (own == time) result.push_back(id);
    return result;
  }

 private:
  std::map<ValueId, int> before_;
  std::vector<std::pair<ValueId, int>> folds_;  // and the time at which each is made
  int last_ = 0;
};

class LongRows : RowWriter {
 public:
  LongRows(const BlockShape& shape, const LaidOutGraph& laid, const Group& group,
           const Machine& machine, RowWay way)
      : RowWriter(shape, laid, group, machine, way), times_(shape, laid.graph, group) {
    columns_ = "end";
    for (const ValueId id : group.nodes)
      if (const LongFold* fold = long_fold_of(graph_[id].op)) {
        partials_[id] = {std::string(fold->state) + "* partial" + number_of(id), scratch_bytes_};
        scratch_bytes_ += round_up(fold->bytes * plan_.rows * plan_.splits, 16);
      }
  }

  Lowered lower() {
    Lowered lowered;
    const bool is_split = plan_.way == RowWay::split;
    for (int time = 0; time <= times_.last(); ++time) {
      if (is_split || time == 0) begin();
      needed_ = needed_at(time);
      for (int past = is_split ? 0 : time; past <= time; ++past) write_rows(past);
      write_windows(time);
      if (is_split || time == times_.last()) lowered.calls.push_back(finished(time));
    }
    lowered.scratch_bytes = is_split ? scratch_bytes_ : 0;
    lowered.description = description_of(lowered.calls.back());
    return lowered;
  }

 private:
  std::string team() const { return std::to_string(plan_.team); }
  std::string across() const { return std::to_string(plan_.rows_of_block()); }

  void begin() {
    operands_.clear();
    numbers_ = Extents(machine_.any_extent);
    head_ = code_ = loads_ = count_ = "";
    loaded_.clear();
    used_.clear();
    rows_ = numbers_.term(plan_.rows);
    const std::string columns = numbers_.term(plan_.columns);
    head_ = "const int lane = threadIdx.x / " + across() + ";\nconst int place = blockIdx.x * " +
            across() + " + threadIdx.x % " + across() +
            ";\n[[maybe_unused]] const bool is_row = place < " + rows_ +
            ";\n[[maybe_unused]] const int row = is_row ? place : " + rows_ + " - 1;\n";
    if (plan_.splits == 1) {
      head_ += "const int begin = 0, end = " + columns + ";\n";
      return;
    }
    const std::string slice = numbers_.term(plan_.slice);
    head_ += "const int begin = blockIdx.y * " + slice + ", rest = " + columns +
             " - begin;\nconst int end = begin + (rest < " + slice + " ? rest : " + slice + ");\n";
  }

  Call finished(int time) {
    std::vector<Partial> partials;
    for (const ValueId id : used_) partials.push_back(partials_.at(id));
    std::string how = "_a" + across() + "_v" + std::to_string(plan_.pack);
    if (plan_.way == RowWay::split)
      how += time < times_.last() ? "_fold" + std::to_string(time) : "_split";
    return call(head_ + "wait_for_previous();\n" + loads_ + code_, partials, how);
  }

  // The members that are calculated to fold, or in the end to write, where folds of earlier times
  // are known.
  std::set<ValueId> needed_at(int time) const {
    std::set<ValueId> needed;
    std::vector<ValueId> open;
    const auto want = [&](ValueId value) {
      if (plan_.shape.members.contains(value)) open.push_back(member_behind(value));
    };
    for (const ValueId id : times_.folds(time)) want(graph_[id].inputs[0]);
    if (time == times_.last())
      for (const ValueId id : group_.writes) want(id);
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (!needed.insert(id).second) continue;
      if (long_fold_of(graph_[id].op) && is_of_row(id)) continue;
      for (const ValueId input : graph_[id].inputs) want(input);
    }
    return needed;
  }

  // What is known of rows after `past` times: of folds, and members of one number a row.
  void write_rows(int past) {
    const bool is_split = plan_.way == RowWay::split;
    for (const ValueId id : group_.nodes) {
      if (is_split && !needed_.contains(id)) continue;
      if (times_.before(id) != past) continue;
      if (long_fold_of(graph_[id].op)) {
        if (is_split) merge_blocks(id);
        write_fold_values(id);
      } else if (is_of_row(id)) {
        write_elementwise(id);
      }
    }
  }

  std::string shared(const std::string& type) const {
    return "__shared__ " + type + " shared[" + std::to_string(plan_.block) + "];\n";
  }

  void merge_blocks(ValueId id) {
    const std::string state = "state" + number_of(id), type(long_fold_of(graph_[id].op)->state);
    used_.push_back(id);
    code_ += type + " " + state + ";\n{\n" + shared(type) + state + " = merged_blocks<" + across() +
             ", " + team() + ">(partial" + number_of(id) + " + row, " +
             numbers_.term(plan_.splits) + ", " + rows_ + ", shared);\n}\n";
  }

  void write_fold_values(ValueId id) {
    const Op op = graph_[id].op;
    const std::string number = number_of(id), state = "state" + number;
    if (op == Op::sum || op == Op::max || op == Op::min) {
      code_ += "const float r" + number + " = " + state + ".total;\n";
    } else if (op == Op::mean) {
      write_quotient(id, state + ".total", static_cast<double>(plan_.columns));
    } else if (op == Op::var) {
      write_quotient(id, state + ".seen.total", degrees_of_freedom(id));
    } else if (op == Op::softmax) {
      code_ += "const float share" + number + " = 1.0f / " + state + ".total;\n";
    } else if (op == Op::log_softmax) {
      code_ += "const float log" + number + " = logarithm(" + state + ".total);\n";
    } else {
      code_ += "const float mean" + number + " = " + state + ".seen.mean;\n";
      write_layer_norm_scale(id, state + ".seen.total");
    }
  }

  void write_windows(int time) {
    const std::vector<ValueId> folds = times_.folds(time);
    for (const ValueId id : folds) {
      const std::string type(long_fold_of(graph_[id].op)->state);
      code_ += type + " state" + number_of(id) + " = " + type + "::start();\n";
    }
    std::erase_if(loaded_, [](const std::string& name) { return name.starts_with('a'); });
    code_ += "for (int window = begin; window < end; window += " +
             std::to_string(plan_.team * plan_.packs * plan_.pack) + ") {\n";
    if (!folds.empty()) code_ += "int held = 0;\n" + begin_packs(true) + "++held;\n}\n";
    for (const ValueId id : group_.nodes)
      if (needed_.contains(id) && !is_of_row(id)) write_elements(id);
    for (const ValueId id : folds) {
      const std::string elements = elements_of(graph_[id].inputs[0]);
      code_ += "state" + number_of(id) + ".take(" + elements + ", held);\n";
    }
    if (time == times_.last()) write_stores(false);
    code_ += "}\n";
    if (time == times_.last()) write_stores(true);
    for (const ValueId id : folds) merge_threads(id);
  }

  void write_elements(ValueId id) {
    const Op op = graph_[id].op;
    if (!long_fold_of(op)) return write_elementwise(id);
    const std::string number = number_of(id), from = elements_of(graph_[id].inputs[0]);
    if (op == Op::softmax)
      write_change(id, from, "exponential(x - state" + number + ".top) * share" + number);
    else if (op == Op::log_softmax)
      write_change(id, from, "x - state" + number + ".top - log" + number);
    else
      write_change(id, from, layer_norm_expression(id));
  }

  void write_stores(bool of_rows) {
    for (const ValueId id : group_.writes)
      if (is_of_row(id) == of_rows) write_store(id);
  }

  void merge_threads(ValueId id) {
    const std::string state = "state" + number_of(id), type(long_fold_of(graph_[id].op)->state);
    code_ += "{\n" + shared(type) + state + " = merged<" + across() + ", " + team() + ">(" + state +
             ", shared);\n}\n";
    if (plan_.way != RowWay::split) return;
    used_.push_back(id);
    code_ += "if (lane == 0 && is_row) partial" + number_of(id) + "[blockIdx.y * " + rows_ +
             " + row] = " + state + ";\n";
  }

  const Times times_;
  std::map<ValueId, Partial> partials_;  // of folds
  std::int64_t scratch_bytes_ = 0;
  std::string head_, rows_;
  std::vector<ValueId> used_;  // folds of which this kernel has partial states
  std::set<ValueId> needed_;
};

double bytes_of(const Graph& graph, const std::vector<ValueId>& values) {
  double bytes = 0;
  for (const ValueId id : values)
    bytes +=
        static_cast<double>(num_elements(graph.type(id).shape) * item_size(graph.type(id).dtype));
  return bytes;
}

}  // namespace

Lowered lower_long_rows(const BlockShape& shape, const LaidOutGraph& laid, const Group& group,
                        const Machine& machine, RowWay way) {
  return LongRows(shape, laid, group, machine, way).lower();
}

std::optional<double> long_rows_us(const BlockShape& shape, const LaidOutGraph& laid,
                                   const Group& group, const Machine& machine, RowWay way) {
  const auto has_elements = [&](ValueId id) {
    return shape.members.at(id) == BlockExtent::element;
  };
  const Times times(shape, laid.graph, group);
  if (times.fold_count() > kMostFolds || shape.column_count() > std::int64_t{1} << 30 ||
      std::none_of(group.writes.begin(), group.writes.end(), has_elements))
    return std::nullopt;
  const RowPlan plan(shape, laid, group, machine, way);
  if (way == RowWay::split && plan.splits == 1) return std::nullopt;
  const double latency = machine.times.generated.latency_us,
               again = bytes_of(laid.graph, group.reads);
  double moving = moving_us(machine, again + bytes_of(laid.graph, group.writes));
  moving += times.last() * moving_us(machine, again);
  const double busy = std::min(1.0, static_cast<double>(plan.blocks()) /
                                        static_cast<double>(machine.device.multiprocessors));
  const double waiting = latency * (times.last() + 1);
  const double launches = machine.launch_us * (way == RowWay::split ? times.last() + 1 : 1);
  return launches + machine.times.generated.merging_us * static_cast<double>(times.last()) +
         waiting + (moving - waiting + row_computing_us(shape, laid.graph, group, machine)) / busy;
}

}  // namespace tensor::cuda
