// The row family: reductions over rows, softmax and layer_norm with elementwise operators before
// and after. A row is held in the registers of a few lanes, a warp or a block.
#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/row_writer.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

struct Fold {
  Op op;
  std::string_view start, step, team;  // of `sum` and `x`, and the function of RowTeam
};
constexpr Fold kSum = {Op::sum, "0.0f", "sum += x", "sum"};
constexpr Fold kFolds[] = {
    kSum,
    {Op::mean, "0.0f", "sum += x", "sum"},
    {Op::var, "0.0f", "sum += x", "sum"},
    {Op::max, "-kInfinity", "sum = maximum(sum, x)", "largest"},
    {Op::min, "kInfinity", "sum = minimum(sum, x)", "smallest"},
};

const Fold& fold_of(Op op) {
  for (const Fold& fold : kFolds)
    if (fold.op == op) return fold;
  internal_error("row", "no fold for ", info(op).name);
}

class HeldRows : RowWriter {
 public:
  HeldRows(const BlockShape& shape, const LaidOutGraph& laid, const Group& group,
           const Machine& machine)
      : RowWriter(shape, laid, group, machine, RowWay::held) {
    columns_ = numbers_.term(plan_.columns);
  }

  Lowered lower() {
    const std::string body = write_body();
    return lowered_as(
        call(body, {}, "_t" + std::to_string(plan_.team) + "_v" + std::to_string(plan_.pack)));
  }

 private:
  // Declares `to`, the fold of an expression of x, the element of `from`, over the row.
  void write_fold(const std::string& to, const Fold& fold, const std::string& from,
                  const std::string& expression = {}) {
    code_ += "float " + to + ";\n{\nfloat sum = " + std::string(fold.start) + ";\n" +
             begin_packs(true) + begin_elements() + "{\nfloat x = " + from + "[p][e];\n" +
             (expression.empty() ? "" : "x = " + expression + ";\n") + std::string(fold.step) +
             ";\n}\n}\n" + to + " = Team::" + std::string(fold.team) + "(sum, shared" +
             (plan_.team > 32 ? " + " + std::to_string(folds_ * plan_.team / 32) : "") + ");\n}\n";
    ++folds_;
  }

  void write_row_operator(ValueId id) {
    const Node& node = graph_[id];
    const std::string number = number_of(id), from = elements_of(node.inputs[0]);
    if (node.op == Op::softmax || node.op == Op::log_softmax) {
      const std::string top = "top" + number, sum = "sum" + number;
      write_fold(top, fold_of(Op::max), from);
      if (node.op == Op::softmax) {
        write_change(id, from, "exponential(x - " + top + ")");
        write_fold(sum, kSum, "a" + number);
        code_ += "const float share" + number + " = 1.0f / " + sum + ";\n" + begin_packs(true) +
                 begin_elements() + "a" + number + "[p][e] *= share" + number + ";\n}\n";
      } else {
        write_fold(sum, kSum, from, "exponential(x - " + top + ")");
        code_ += "const float log" + number + " = logarithm(" + sum + ");\n";
        write_change(id, from, "x - " + top + " - log" + number);
      }
      return;
    }
    const bool is_norm = node.op == Op::layer_norm || node.op == Op::layer_norm_by_sums;
    if (is_norm || node.op == Op::var) {
      // In two passes over the registers: a small variance far from zero is not lost.
      const std::string mean = "mean" + number;
      write_fold(mean + "_sum", kSum, from);
      code_ += "const float " + mean + " = " + mean + "_sum / " + count_text() + ";\n";
      write_fold("squares" + number, kSum, from, "(x - " + mean + ") * (x - " + mean + ")");
      if (!is_norm) return write_quotient(id, "squares" + number, degrees_of_freedom(id));
      const std::string expression = layer_norm_expression(id);
      write_layer_norm_scale(id, "squares" + number);
      write_change(id, from, expression);
      return;
    }
    if (node.op == Op::mean) {
      write_fold("sum" + number, kSum, from);
      write_quotient(id, "sum" + number, static_cast<double>(plan_.columns));
      return;
    }
    write_fold("r" + number, fold_of(node.op), from);
  }

  std::string write_body() {
    for (const ValueId id : group_.nodes)
      if (is_elementwise(graph_[id].op))
        write_elementwise(id);
      else
        write_row_operator(id);
    for (const ValueId id : group_.writes) write_store(id);
    const std::string rows = numbers_.term(plan_.rows), team = std::to_string(plan_.team);
    std::string text = "using Team = RowTeam<" + team + ">;\n";
    text += plan_.team > 32
                ? "__shared__ float shared[" + std::to_string(folds_ * plan_.team / 32) + "];\n"
                : "float* const shared = nullptr;\n";
    text += "const int lane = threadIdx.x % " + team + ";\nconst int place = blockIdx.x * " +
            std::to_string(plan_.block / plan_.team) + " + threadIdx.x / " + team +
            ";\n[[maybe_unused]] const bool is_row = place < " + rows +
            ";\n[[maybe_unused]] const int row = is_row ? place : " + rows + " - 1;\n";
    return text + early_ + "wait_for_previous();\n" + loads_ + code_;
  }

  int folds_ = 0;
};

// Of rows that registers hold.
double held_rows_us(const BlockShape& shape, const LaidOutGraph& laid, const Group& group,
                    const Machine& machine) {
  const auto folds = std::count_if(group.nodes.begin(), group.nodes.end(),
                                   [&](ValueId id) { return !is_elementwise(laid.graph[id].op); });
  double moving = moving_us(machine, work_of(laid.graph, group).bytes);
  // Lanes that read far apart fetch a sector of 32 bytes for an element of 4 or less: eight times
  // the bytes, of which the caches give back some. The reduce family, which has lanes across such
  // rows, is then cheaper where it takes the group.
  if (RowPlan(shape, laid, group, machine).is_scattered())
    moving *= machine.times.generated.scattered;
  return machine.launch_us + machine.times.generated.fold_us * static_cast<double>(folds) +
         row_computing_us(shape, laid.graph, group, machine) + moving;
}

std::optional<Implementation> consider_row(const Isolated& alone, const Machine& machine) {
  const auto shape = RowPlan::accept(alone.laid.graph, alone.group);
  if (!shape) return std::nullopt;
  std::optional<std::pair<double, RowWay>> best;
  for (const RowWay way : {RowWay::held, RowWay::whole, RowWay::split}) {
    if (way == RowWay::held && !RowPlan::can_be_held(*shape)) continue;
    const auto time = way == RowWay::held
                          ? held_rows_us(*shape, alone.laid, alone.group, machine)
                          : long_rows_us(*shape, alone.laid, alone.group, machine, way);
    if (time && (!best || *time < best->first)) best = {*time, way};
  }
  if (!best) return std::nullopt;
  return Implementation{best->first, [shape, way = best->second, machine](const Isolated& one) {
                          return way == RowWay::held
                                     ? HeldRows(*shape, one.laid, one.group, machine).lower()
                                     : lower_long_rows(*shape, one.laid, one.group, machine, way);
                        }};
}

}  // namespace

const Family kRow = {"row", consider_row};

}  // namespace tensor::cuda
