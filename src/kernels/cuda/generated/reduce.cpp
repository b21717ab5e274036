// The reduce family: one reduction over any axes of any type, with elementwise operators before and
// after it. What the row family does not take: rows that are not neighbours in memory or too long
// for registers, places of extremes, whole numbers and doubles.
#include <algorithm>
#include <bit>
#include <cmath>

#include "src/core/rounding.h"
#include "src/core/view.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/pack_kernel.h"
#include "src/kernels/match/block_shape.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

constexpr int kReduceThreads = 256;  // of a block
constexpr int kMostSplits = 64;

struct Row {
  Op op;
  std::string_view state;   // in templates/reduce.h, behind its arguments' opening
  bool is_of_result;        // its argument is the type of the result, not of the operand
  std::string_view result;  // of the state, `count` elements and `left` degrees of freedom
};
constexpr Row kRows[] = {
    {Op::sum, "SumState<#>", true, "state.total"},
    {Op::mean, "SumState<#>", true, "state.total / count"},
    {Op::prod, "ProductState<#>", true, "state.total"},
    {Op::max, "ExtremeState<#, true>", false, "state.total"},
    {Op::min, "ExtremeState<#, false>", false, "state.total"},
    {Op::var, "VarianceState<#>", true, "state.total / left"},
    {Op::any, "AnyState", true, "state.total"},
    {Op::all, "AllState", true, "state.total"},
    {Op::argmax, "ExtremeState<#, true>", false, "(long long)(state.place)"},
    {Op::argmin, "ExtremeState<#, false>", false, "(long long)(state.place)"},
};

const Row* row_of(Op op) {
  for (const Row& row : kRows)
    if (row.op == op) return &row;
  return nullptr;
}

struct ReduceParts {
  ValueId reduction = -1;
  std::vector<ValueId> before, after;
  ElementCode elements, results;
  Dims kept, reduced;  // axes of the operand of extent more than 1, as numbered without the others
};

std::vector<ValueId> split(const Graph& graph, const Group& group, ReduceParts& parts) {
  std::vector<ValueId> reductions;
  std::vector<bool> follows(static_cast<std::size_t>(graph.size()), false);
  for (const ValueId id : group.nodes) {
    bool is_after = false;
    for (ValueId input : graph[id].inputs) {
      while (graph[input].kind == NodeKind::operation && !is_compute(graph, input))
        input = graph[input].inputs[0];
      is_after |= follows[at(input)];
    }
    const bool is_reduction = row_of(graph[id].op) != nullptr;
    if (is_reduction) reductions.push_back(id);
    follows[at(id)] = is_after || is_reduction;
    if (!is_reduction) (is_after ? parts.after : parts.before).push_back(id);
  }
  return reductions;
}

std::optional<ReduceParts> parts_of(const Graph& graph, const Group& group) {
  ReduceParts parts;
  const auto reductions = split(graph, group, parts);
  if (reductions.size() != 1) return std::nullopt;
  parts.reduction = reductions[0];
  const Node& node = graph[parts.reduction];
  const Shape& shape = graph.type(node.inputs[0]).shape;
  const std::int64_t count = num_elements(shape), results = num_elements(node.type.shape);
  if (count == 0 || count >= std::int64_t{1} << 31) return std::nullopt;
  Dims axes;
  for (const auto axis : node.attrs.dims("axis"))
    axes.push_back(normalize_axis(axis, shape.rank(), "reduce"));
  int place = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1) (axes.contains(axis) ? parts.reduced : parts.kept).push_back(place++);

  auto elements = element_code(graph, parts.before);
  auto after = element_code(graph, parts.after, {{parts.reduction, "y"}});
  if (!elements || !after) return std::nullopt;
  parts.elements = std::move(*elements), parts.results = std::move(*after);
  for (const auto& [id, as] : parts.elements.shapes)
    if (!(squeezed(as) == squeezed(shape))) return std::nullopt;
  for (const auto& [id, as] : parts.results.shapes)
    if (num_elements(as) != results) return std::nullopt;
  for (const ValueId id : group.writes)
    if (std::binary_search(parts.before.begin(), parts.before.end(), id)) return std::nullopt;
  // The operand is one of the nodes before, or else what all of the kernel is about.
  if (parts.before.empty() ? operand_of(group, node.inputs[0], false) < 0
                           : node.inputs[0] != parts.before.back())
    return std::nullopt;
  return parts;
}

class ReduceGenerator {
 public:
  ReduceGenerator(ReduceParts parts, const LaidOutGraph& laid, const Group& group,
                  const Machine& machine)
      : laid_(laid),
        graph_(laid.graph),
        group_(group),
        machine_(machine),
        parts_(std::move(parts)),
        operands_(laid.graph, group),
        numbers_(machine.any_extent) {
    const Node& node = graph_[parts_.reduction];
    shape_ = squeezed(graph_.type(node.inputs[0]).shape);
    results_ = num_elements(node.type.shape);
    count_ = num_elements(shape_) / results_;
    if (parts_.before.empty())
      parts_.elements.loads.push_back({node.inputs[0], "x", graph_.type(node.inputs[0]).shape});
    order_axes();
    choose_schedule();
  }

  Lowered lower() {
    Lowered lowered;
    const bool is_split = splits_ > 1;
    lowered.calls.push_back(call(is_split ? partial_text() : whole_text(), across_,
                                 static_cast<unsigned>(splits_), ""));
    lowered.description = description_of(lowered.calls[0]);
    if (is_split) {
      constexpr std::int64_t kLargestState = 24;
      lowered.scratch_bytes = kLargestState * results_ * splits_;
      lowered.calls.push_back(call(merging_text(), kReduceThreads, 1, "_merge"));
    }
    return lowered;
  }

 private:
  const Layout& layout(ValueId id) const { return laid_.layouts[at(id)]; }

  static Dims sorted(const Dims& axes, const Strides& strides) {
    Dims result = axes;
    std::stable_sort(result.begin(), result.end(), [&](std::int64_t a, std::int64_t b) {
      return std::abs(strides[static_cast<int>(a)]) > std::abs(strides[static_cast<int>(b)]);
    });
    return result;
  }

  // Both kinds of axes in the order of memory; a place counts in the order of the axes themselves.
  void order_axes() {
    const auto& load = parts_.elements.loads.front();
    const Strides strides = squeezed_strides(layout(load.value), load.as);
    const Op op = graph_[parts_.reduction].op;
    kept_ = parts_.kept;
    reduced_ =
        op == Op::argmax || op == Op::argmin ? parts_.reduced : sorted(parts_.reduced, strides);
    std::int64_t nearest_kept = 0, nearest_reduced = 0;
    const auto nearest = [&](const Dims& axes) {
      std::int64_t best = std::int64_t{1} << 62;
      for (const auto axis : axes)
        if (const auto step = std::abs(strides[static_cast<int>(axis)]); step > 0)
          best = std::min(best, step);
      return best;
    };
    nearest_kept = nearest(kept_), nearest_reduced = nearest(reduced_);
    kept_is_inside_ = nearest_kept < nearest_reduced;
  }

  void choose_schedule() {
    constexpr std::int64_t kFew = 8;  // elements of a thread
    const int least_across = kept_is_inside_ ? 32 : 1;
    const auto wanted = static_cast<std::uint64_t>(ceil_div(count_, kFew));
    along_ = static_cast<int>(
        std::min<std::uint64_t>(std::bit_ceil(wanted), kReduceThreads / least_across));
    across_ = kReduceThreads / along_;
    const std::int64_t blocks = ceil_div(results_, across_);
    const std::int64_t idle = 2 * machine_.device.multiprocessors / blocks;
    splits_ = static_cast<int>(
        std::clamp<std::int64_t>(std::min(idle, count_ / (along_ * 2 * kFew)), 1, kMostSplits));
  }

  template <class D>
  static D chosen(const D& dims, const Dims& axes) {
    D result;
    for (const auto axis : axes) result.push_back(dims[static_cast<int>(axis)]);
    return result;
  }

  std::string state() const {
    const Node& node = graph_[parts_.reduction];
    const Row& row = *row_of(node.op);
    const DType dtype = row.is_of_result ? node.type.dtype : graph_.type(node.inputs[0]).dtype;
    std::string text(row.state);
    if (const auto at = text.find('#'); at != std::string::npos)
      text.replace(at, 1, compute_type(dtype));
    return text;
  }

  // Declares `state` and takes the elements from `begin` to `end` of every result.
  std::string folding(const std::string& begin, const std::string& end) {
    std::string text = "State state = State::start();\nfor (int j = " + begin + "; j < " + end +
                       "; j += " + std::to_string(along_) + ") {\n";
    for (const auto& load : parts_.elements.loads) {
      const Strides strides = squeezed_strides(layout(load.value), load.as);
      text +=
          "const auto " + load.name + " = value_of(" + operands_.pointer(load.value, false) + "[" +
          offset_text(chosen(shape_, kept_), chosen(strides, kept_), "result", numbers_, "result") +
          " + " +
          offset_text(chosen(shape_, reduced_), chosen(strides, reduced_), "j", numbers_, "j") +
          "]);\n";
    }
    text += parts_.elements.body;
    const std::string x = parts_.before.empty()
                              ? "x"
                              : parts_.elements.results.at(graph_[parts_.reduction].inputs[0]);
    const std::string type(compute_type(graph_.type(graph_[parts_.reduction].inputs[0]).dtype));
    return text + "state.take(convert<" + type + ">(" + x + "), j);\n}\n";
  }

  std::string threads() {
    const std::string across = std::to_string(across_), results = numbers_.term(results_);
    return "const int place = blockIdx.x * " + across + " + threadIdx.x % " + across +
           ";\nconst int along = threadIdx.x / " + across + ";\nconst bool is_result = place < " +
           results + ";\n[[maybe_unused]] const int result = is_result ? place : " + results +
           " - 1;\n";
  }

  std::string merging_threads() const {
    return "__shared__ State shared[" + std::to_string(kReduceThreads) + "];\nmerge_threads<" +
           std::to_string(across_) + ", " + std::to_string(along_) + ">(state, shared);\n";
  }

  // From `state` to memory.
  std::string finish() {
    const Node& node = graph_[parts_.reduction];
    const DType dtype = node.type.dtype;
    const double count = static_cast<double>(count_);
    std::string text;
    if (node.op == Op::mean) text += "const auto count = " + number(count, dtype) + ";\n";
    if (node.op == Op::var)
      text +=
          "const auto left = " + number(std::max(count - node.attrs.number("ddof"), 0.0), dtype) +
          ";\n";
    text += "const " + std::string(compute_type(dtype)) +
            " y = " + std::string(row_of(node.op)->result) + ";\n";
    for (const auto& load : parts_.results.loads)
      text += "const auto " + load.name + " = value_of(" + operands_.pointer(load.value, false) +
              "[" +
              offset_text(load.as, broadcast(load.value, load.as), "place", numbers_, space()) +
              "]);\n";
    text += parts_.results.body;
    for (const ValueId id : group_.writes) {
      const Shape& shape = graph_.type(id).shape;
      text += operands_.pointer(id, true) + "[" +
              offset_text(shape, layout(id).strides, "place", numbers_, space()) + "] = stored<" +
              std::string(device_type(graph_.type(id).dtype)) + ">(" +
              (id == parts_.reduction ? "y" : parts_.results.results.at(id)) + ");\n";
    }
    return text;
  }
  // Every result has one: its extents may be merged otherwise than the others'.
  std::string space() { return "place" + std::to_string(spaces_++); }
  // A count of elements, or nearly: whole unless `ddof` is not.
  std::string number(double value, DType dtype) {
    if (!machine_.any_extent || value != std::floor(value)) return literal(value, dtype);
    return "convert<" + std::string(compute_type(dtype)) + ">(" +
           numbers_.term(static_cast<std::int64_t>(value)) + ")";
  }
  Strides broadcast(ValueId id, const Shape& as) const {
    return broadcast_strides(layout(id).shape, layout(id).strides, as);
  }

  std::string whole_text() {
    return threads() + folding("along", numbers_.term(count_)) + merging_threads() +
           "if (along == 0 && is_result) {\n" + finish() + "}\n";
  }
  std::string partial_text() {
    const std::string chunk = numbers_.term(ceil_div(count_, splits_));
    return threads() + "const int begin = blockIdx.y * " + chunk +
           ", rest = " + numbers_.term(count_) + " - begin;\n" +
           folding("begin + along", "begin + (rest < " + chunk + " ? rest : " + chunk + ")") +
           merging_threads() + "if (along == 0 && is_result) partial[blockIdx.y * " +
           numbers_.term(results_) + " + place] = state;\n";
  }
  std::string merging_text() {
    const std::string results = numbers_.term(results_);
    return "const int place = blockIdx.x * " + std::to_string(kReduceThreads) +
           " + threadIdx.x;\nif (place < " + results +
           ") {\nState state = State::start();\nfor (int k = 0; k < " + numbers_.term(splits_) +
           "; ++k) state.merge(partial[k * " + results + " + place]);\n" + finish() + "}\n";
  }

  Call call(const std::string& body, int results_of_block, unsigned splits,
            const std::string& what) {
    std::string text =
        "#include \"reduce.h\"\nusing namespace tensor::device;\nusing State = " + state() + ";\n" +
        numbers_.struct_text() + "extern \"C\" __global__ __launch_bounds__(" +
        std::to_string(kReduceThreads) + ") void KERNEL(";
    Call result;
    std::string parameters = operands_.parameters();
    result.arguments = operands_.arguments();
    if (splits_ > 1) {
      parameters += parameters.empty() ? "State* partial" : ", State* partial";
      result.arguments.emplace_back(Pointer{Pointer::Base::scratch, 0, 0});
    }
    numbers_.add_argument(result.arguments);
    result.source.text = text + parameters + numbers_.last_parameter() +
                         ") {\nlaunch_next();\nwait_for_previous();\n" + body + "}\n";
    const std::int64_t blocks = ceil_div(results_, results_of_block);
    result.launch.grid = {static_cast<unsigned>(blocks), splits};
    result.launch.block = {kReduceThreads};
    result.launch.overlaps_previous = machine_.overlaps_launches;
    const DType dtype = graph_.type(group_.writes.front()).dtype;
    name_kernel(result, machine_,
                "reduce_" + std::string(name(dtype)) + "_" + names_of(graph_, group_) + what);
    operands_.clear();
    numbers_ = Extents(machine_.any_extent);
    return result;
  }

  const LaidOutGraph& laid_;
  const Graph& graph_;
  const Group& group_;
  const Machine& machine_;
  ReduceParts parts_;
  Shape shape_;          // of the operand, without axes of extent 1
  Dims kept_, reduced_;  // its axes in the order in which they are counted
  bool kept_is_inside_ = false;
  std::int64_t results_ = 0, count_ = 0;     // count: elements of a result
  int across_ = 1, along_ = kReduceThreads;  // results of a block, threads of a result
  int splits_ = 1;                           // blocks of a result
  Operands operands_;
  Extents numbers_;
  int spaces_ = 0;
};

std::optional<Implementation> consider_reduce(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const auto parts = parts_of(graph, alone.group);
  if (!parts) return std::nullopt;
  const Node& node = graph[parts->reduction];
  const auto elements = static_cast<double>(num_elements(graph.type(node.inputs[0]).shape));
  double compute = computing_us(machine, node.op, 4 * elements);
  for (const ValueId id : parts->before) compute += computing_us(machine, graph[id].op, elements);
  // Rows in registers are faster where the row family takes the group.
  return Implementation{machine.launch_us + machine.times.generated.merging_us + compute +
                            2 * moving_us(machine, work_of(graph, alone.group).bytes),
                        [=](const Isolated& group) {
                          return ReduceGenerator(*parts, group.laid, group.group, machine).lower();
                        }};
}

}  // namespace

const Family kReduce = {"reduce", consider_reduce};

}  // namespace tensor::cuda
