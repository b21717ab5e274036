// The row family: reductions over rows, softmax and layer_norm with elementwise operators before
// and after. A row is held in the registers of a few lanes, a warp or a block.
#include <algorithm>
#include <cmath>
#include <set>

#include "src/core/rounding.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/row_plan.h"
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

class RowGenerator {
 public:
  RowGenerator(const BlockShape& shape, const LaidOutGraph& laid, const Group& group,
               const Machine& machine)
      : plan_(shape, laid, group, machine),
        graph_(laid.graph),
        group_(group),
        machine_(machine),
        operands_(laid.graph, group),
        numbers_(machine.any_extent),
        columns_(numbers_.term(plan_.columns)) {}

  Lowered lower() {
    const std::string body = write_body();
    Call call;
    call.source.text = text(body);
    call.launch.grid = {static_cast<unsigned>(ceil_div(plan_.rows, plan_.block / plan_.team))};
    call.launch.block = {static_cast<unsigned>(plan_.block)};
    call.launch.overlaps_previous = machine_.overlaps_launches;
    call.arguments = operands_.arguments();
    numbers_.add_argument(call.arguments);
    const DType dtype = graph_.type(group_.writes.front()).dtype;
    name_kernel(call, machine_,
                "row_" + std::string(name(dtype)) + "_" + names_of(graph_, group_) +
                    (machine_.any_extent ? "" : "_" + std::to_string(plan_.columns)) + "_t" +
                    std::to_string(plan_.team) + "_v" + std::to_string(plan_.pack));
    return lowered_as(std::move(call));
  }

 private:
  // In names: equal groups have equal texts, whatever their values' numbers in the graph.
  std::string number_of(ValueId id) const {
    const auto at = std::find(group_.nodes.begin(), group_.nodes.end(), id);
    return at != group_.nodes.end() ? std::to_string(at - group_.nodes.begin())
                                    : "p" + std::to_string(operand_of(group_, id, false));
  }

  std::string array(std::string_view type, const std::string& name) const {
    return std::string(type) + " " + name + "[" + std::to_string(plan_.packs) + "][" +
           std::to_string(plan_.pack) + "];\n";
  }

  // A loop over the packs that lie inside of the row.
  std::string begin_packs(bool checked) const {
    std::string text = "#pragma unroll\nfor (int p = 0; p < " + std::to_string(plan_.packs) +
                       "; ++p) {\n[[maybe_unused]] const int c = (p * " +
                       std::to_string(plan_.team) + " + lane) * " + std::to_string(plan_.pack) +
                       ";\n";
    if (checked && !plan_.is_exact()) text += "if (c >= " + columns_ + ") continue;\n";
    return text;
  }
  std::string begin_elements() const {
    return "#pragma unroll\nfor (int e = 0; e < " + std::to_string(plan_.pack) + "; ++e) ";
  }

  // ---- Operands from memory, each loaded once.

  std::string load_elements(ValueId id, const Shape& as) {
    const RowPlace p = plan_.place(id, as, BlockExtent::element);
    const std::string name = "a" + number_of(id);
    if (!loaded_.insert(name).second) return name;
    std::string text = array(compute_type(p.rows.dtype), name) + begin_packs(true);
    const std::string from = operands_.pointer(id, false) + " + " + p.row_offset(numbers_) + " + " +
                             p.column_offset(numbers_);
    text += load_text(name + "[p]", from, plan_.pack, p.is_packed(plan_.pack),
                      p.columns.inner().stride, numbers_) +
            "}\n";
    // What no earlier kernel writes can be on its way before those end.
    constexpr int kFew = 8;
    const bool is_early =
        graph_.is_constant(id) && !p.depends_on_row() && plan_.packs * plan_.pack <= kFew;
    (is_early ? early_ : p.depends_on_row() ? loads_ : code_) += text;
    return name;
  }

  std::string load_row(ValueId id, const Shape& as) {
    const RowPlace p = plan_.place(id, as, BlockExtent::row);
    const std::string name = "r" + number_of(id);
    if (!loaded_.insert(name).second) return name;
    loads_ += "const auto " + name + " = value_of(" + operands_.pointer(id, false) + "[" +
              p.row_offset(numbers_) + "]);\n";
    return name;
  }

  // ---- Members.

  // Views of members have the names of what they rename.
  std::map<ValueId, std::string> given(BlockExtent extent) const {
    std::map<ValueId, std::string> names;
    for (const auto& [id, own] : plan_.shape.members) {
      ValueId member = id;
      while (!std::binary_search(group_.nodes.begin(), group_.nodes.end(), member))
        member = graph_[member].inputs[0];
      if (own == BlockExtent::row)
        names[id] = "r" + number_of(member);
      else if (extent == BlockExtent::element)
        names[id] = "a" + number_of(member) + "[p][e]";
    }
    return names;
  }

  void write_elementwise(ValueId id) {
    const BlockExtent extent = plan_.shape.members.at(id);
    auto names = given(extent);
    names.erase(id);
    const auto code = element_code(graph_, std::span(&id, 1), names);
    if (!code) internal_error("row", "no text for ", info(graph_[id].op).name);
    const std::string type(compute_type(graph_.type(id).dtype));
    const std::string number = number_of(id);
    if (extent == BlockExtent::row) {
      std::string inner;
      for (const auto& load : code->loads)
        inner += "const auto " + load.name + " = " + load_row(load.value, load.as) + ";\n";
      code_ += type + " r" + number + ";\n{\n" + inner + code->body + "r" + number + " = " +
               code->results.at(id) + ";\n}\n";
      return;
    }
    std::string inner;
    for (const auto& load : code->loads)
      inner += "const auto " + load.name + " = " + load_elements(load.value, load.as) + "[p][e];\n";
    code_ += array(type, "a" + number) + begin_packs(true) + begin_elements() + "{\n" + inner +
             code->body + "a" + number + "[p][e] = " + code->results.at(id) + ";\n}\n}\n";
  }

  // The array with the elements of an operator's operand.
  std::string elements_of(ValueId operand) {
    if (operand_of(group_, operand, false) >= 0 && !plan_.shape.members.contains(operand))
      return load_elements(operand, graph_.type(operand).shape);
    ValueId member = operand;
    while (!std::binary_search(group_.nodes.begin(), group_.nodes.end(), member))
      member = graph_[member].inputs[0];
    return "a" + number_of(member);
  }

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

  const std::string& count_text() {
    if (count_.empty()) count_ = numbers_.real(static_cast<double>(plan_.columns));
    return count_;
  }

  // Elements from those of `from`, by an expression of x.
  void write_change(ValueId id, const std::string& from, const std::string& expression) {
    const std::string to = "a" + number_of(id);
    code_ += array("float", to) + begin_packs(true) + begin_elements() +
             "{\nconst float x = " + from + "[p][e];\n" + to + "[p][e] = " + expression +
             ";\n}\n}\n";
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
      if (is_norm)
        write_layer_norm(id, from);
      else
        write_quotient(
            id, "squares" + number,
            std::max(static_cast<double>(plan_.columns) - node.attrs.number("ddof"), 0.0));
      return;
    }
    if (node.op == Op::mean) {
      write_fold("sum" + number, kSum, from);
      write_quotient(id, "sum" + number, static_cast<double>(plan_.columns));
      return;
    }
    write_fold("r" + number, fold_of(node.op), from);
  }

  void write_quotient(ValueId id, const std::string& sum, double count) {
    code_ += "const float r" + number_of(id) + " = " + sum + " / " + numbers_.real(count) + ";\n";
  }

  void write_layer_norm(ValueId id, const std::string& from) {
    const Node& node = graph_[id];
    const std::string number = number_of(id);
    std::string expression = "(x - mean" + number + ") * scale" + number;
    if (node.inputs.size() > 1)
      expression += " * " + load_elements(node.inputs[1], graph_.type(id).shape) + "[p][e]";
    if (node.inputs.size() > 2)
      expression += " + " + load_elements(node.inputs[2], graph_.type(id).shape) + "[p][e]";
    code_ += "const float scale" + number + " = 1.0f / sqrtf(squares" + number + " / " +
             count_text() + " + " + literal(node.attrs.number("eps"), f32) + ");\n";
    write_change(id, from, expression);
  }

  void write_store(ValueId id) {
    const BlockExtent extent = plan_.shape.members.at(id);
    const RowPlace p = plan_.place(id, graph_.type(id).shape, extent);
    const std::string to = operands_.pointer(id, true), number = number_of(id);
    if (extent == BlockExtent::row) {
      code_ += "if (lane == 0 && is_row) " + to + "[" + p.row_offset(numbers_) + "] = stored<" +
               std::string(device_type(p.rows.dtype)) + ">(r" + number + ");\n";
      return;
    }
    const std::string offset = p.row_offset(numbers_) + " + " + p.column_offset(numbers_);
    code_ += "if (is_row) {\n" + begin_packs(true) +
             store_text(to + " + " + offset, "a" + number + "[p]", plan_.pack,
                        p.is_packed(plan_.pack), p.columns.inner().stride, numbers_) +
             "}\n}\n";
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

  std::string text(const std::string& body) const {
    return "#include \"row.h\"\nusing namespace tensor::device;\n" + numbers_.struct_text() +
           "extern \"C\" __global__ __launch_bounds__(" + std::to_string(plan_.block) +
           ") void KERNEL(" + operands_.parameters() + numbers_.last_parameter() +
           ") {\nlaunch_next();\n" + body + "}\n";
  }

  const RowPlan plan_;
  const Graph& graph_;
  const Group& group_;
  const Machine& machine_;
  int folds_ = 0;
  Operands operands_;
  Extents numbers_;
  const std::string columns_;
  std::string count_;  // of them, a float
  std::set<std::string> loaded_;
  std::string early_, loads_, code_;  // before and after earlier kernels have ended, and the rest
};

std::optional<Implementation> consider_row(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const Group& group = alone.group;
  const auto shape = RowPlan::accept(graph, group);
  if (!shape) return std::nullopt;
  const auto elements = static_cast<double>(num_elements(shape->extents));
  double compute = 0, folds = 0;
  for (const ValueId id : group.nodes) {
    const bool by_row = shape->members.at(id) == BlockExtent::row && is_elementwise(graph[id].op);
    compute += computing_us(machine, graph[id].op,
                            by_row ? static_cast<double>(shape->row_count()) : elements);
    if (!is_elementwise(graph[id].op)) folds += machine.times.generated.fold_us;
  }
  double moving = moving_us(machine, work_of(graph, group).bytes);
  // Lanes that read far apart fetch a sector of 32 bytes for an element of 4 or less: eight times
  // the bytes, of which the caches give back some. The reduce family, which has lanes across such
  // rows, is then cheaper where it takes the group.
  if (RowPlan(*shape, alone.laid, group, machine).is_scattered())
    moving *= machine.times.generated.scattered;
  return Implementation{machine.launch_us + folds + compute + moving, [=](const Isolated& one) {
                          return RowGenerator(*shape, one.laid, one.group, machine).lower();
                        }};
}

}  // namespace

const Family kRow = {"row", consider_row};

}  // namespace tensor::cuda
