// The row family: reductions over rows, softmax and layer_norm with elementwise operators before
// and after. A row is held in the registers of a few lanes, a warp or a block.
#include <algorithm>
#include <cmath>
#include <set>

#include "src/core/view.h"
#include "src/kernels/cpu/spaces.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/pack_kernel.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

using cpu::BlockShape;
using simd::Space;

constexpr int kMostThreads = 1024;   // of a block
constexpr int kMostElements = 32;    // of one value in a thread's registers
constexpr int kMostRegisters = 112;  // for all values
constexpr std::size_t kMostNodes = 16;

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

bool is_elementwise(Op op) { return !device_function(op).empty(); }

// The group's rows, if it has any that a block can hold.
std::optional<BlockShape> accept(const Graph& graph, const Group& group) {
  if (group.nodes.size() > kMostNodes) return std::nullopt;
  auto shape = cpu::block_shape_of(graph, group);
  if (!shape || !shape->has_rows) return std::nullopt;
  if (shape->column_count() > kMostThreads * kMostElements) return std::nullopt;
  if (num_elements(shape->extents) > std::int64_t{1} << 31) return std::nullopt;
  return shape;
}

template <class D>
D chosen(const D& dims, const Dims& axes) {
  D result;
  for (const auto axis : axes) result.push_back(dims[static_cast<int>(axis)]);
  return result;
}

class Generator {
 public:
  Generator(const LaidOutGraph& laid, const Group& group, const Machine& machine)
      : laid_(laid), graph_(laid.graph), group_(group), machine_(machine) {
    auto shape = accept(graph_, group);
    if (!shape) internal_error("row", "a group that it declines");
    shape_ = std::move(*shape);
    rows_ = shape_.row_count();
    columns_ = shape_.column_count();
    order_axes();
    choose_schedule();
  }

  /// Whether lanes of a row would read from far apart.
  bool is_scattered() const { return rows_are_inside_ && team_ > 1; }

  Lowered lower() {
    const std::string body = write_body();
    Call call;
    call.source.text = text(body);
    call.launch.grid = {static_cast<unsigned>((rows_ + block_ / team_ - 1) / (block_ / team_))};
    call.launch.block = {static_cast<unsigned>(block_)};
    call.launch.overlaps_previous = machine_.device.capability >= 90;
    for (const int operand : used_)
      call.arguments.emplace_back(Pointer{Pointer::Base::operand, operand, 0});
    const DType dtype = graph_.type(group_.writes.front()).dtype;
    name_kernel(call, machine_,
                "row_" + std::string(name(dtype)) + "_" + names_of(graph_, group_) + "_" +
                    std::to_string(columns_) + "_t" + std::to_string(team_) + "_v" +
                    std::to_string(pack_));
    Lowered lowered;
    lowered.description = call.entry.substr(0, call.entry.rfind("__"));
    lowered.calls.push_back(std::move(call));
    return lowered;
  }

 private:
  // An operand over the rows and, if it has an element for each of them, over the columns.
  struct Place {
    Access rows, columns;
    std::string row_offset() const { return offset_text(rows.extents, rows.strides, "row"); }
    bool is_packed(int pack) const {
      return columns.is_packed(pack) &&
             std::all_of(rows.strides.begin(), rows.strides.end(),
                         [&](std::int64_t stride) { return stride % pack == 0; });
    }
    bool depends_on_row() const {
      for (int i = 0; i < rows.strides.rank(); ++i)
        if (rows.strides[i] != 0) return true;
      return false;
    }
  };

  const Layout& layout(ValueId id) const { return laid_.layouts[static_cast<std::size_t>(id)]; }

  Place place(ValueId id, const Shape& as, Space space) const {
    const Strides strides = cpu::squeezed_strides(layout(id), as);
    Place result;
    result.rows.extents = chosen(shape_.extents, row_axes_);
    if (space == Space::row) {  // its axes are those of the rows, in their order
      Dims order;
      for (const auto axis : row_axes_) order.push_back(place_among_rows(axis));
      result.rows.strides = chosen(strides, order);
    } else {
      result.rows.strides = chosen(strides, row_axes_);
      result.columns.extents = chosen(shape_.extents, column_axes_);
      result.columns.strides = chosen(strides, column_axes_);
    }
    result.rows.dtype = result.columns.dtype = graph_.type(id).dtype;
    result.columns.offset = layout(id).offset;
    return result;
  }
  std::int64_t place_among_rows(std::int64_t axis) const {
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < axis; ++i) place += !shape_.columns.contains(i);
    return place;
  }

  // The value of the group that is largest in memory and has an element for each of the block's.
  void order_axes() {
    const Layout* widest = nullptr;
    const auto consider = [&](ValueId id) {
      if (!widest && cpu::squeezed(graph_.type(id).shape) == shape_.extents) widest = &layout(id);
    };
    for (const ValueId id : group_.reads) consider(id);
    for (const ValueId id : group_.writes) consider(id);
    Dims order;
    for (int axis = 0; axis < shape_.extents.rank(); ++axis) order.push_back(axis);
    if (widest) {
      const Strides strides = cpu::squeezed_strides(*widest, widest->shape);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return std::abs(strides[static_cast<int>(a)]) > std::abs(strides[static_cast<int>(b)]);
      });
    }
    rows_are_inside_ = !order.empty() && !shape_.columns.contains(order.back());
    for (const auto axis : order)
      (shape_.columns.contains(axis) ? column_axes_ : row_axes_).push_back(axis);
  }

  // Everything that is loaded or stored element by element.
  std::vector<Place> element_places() const {
    std::vector<Place> places;
    for (const ValueId id : group_.nodes) {
      const Node& node = graph_[id];
      const bool is_elementwise_here = is_elementwise(node.op);
      if (is_elementwise_here && shape_.members.at(id) == Space::row) continue;
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId input = node.inputs[k];
        if (shape_.members.contains(input)) continue;
        const bool is_row = !is_elementwise_here && k == 0;
        places.push_back(
            place(input, is_row ? graph_.type(input).shape : node.type.shape, Space::element));
      }
    }
    for (const ValueId id : group_.writes)
      if (shape_.members.at(id) == Space::element)
        places.push_back(place(id, graph_.type(id).shape, Space::element));
    return places;
  }

  void choose_schedule() {
    const std::vector<Place> places = element_places();
    std::int64_t widest = 2, values = 1;
    for (const Place& p : places) {
      if (!p.depends_on_row()) continue;
      widest = std::max(widest, item_size(p.rows.dtype));
      ++values;
    }
    pack_ = static_cast<int>(16 / widest);
    const auto fits = [&](const Place& p) { return p.columns.inner().extent % pack_ == 0; };
    while (pack_ > 1 && !(columns_ % pack_ == 0 && std::all_of(places.begin(), places.end(), fits)))
      pack_ /= 2;
    const std::int64_t most = std::max<std::int64_t>(
        std::min<std::int64_t>(kMostRegisters / values, kMostElements) / pack_ * pack_, pack_);
    if (rows_are_inside_ && columns_ <= most) {
      // Neighbouring lanes have neighbouring rows.
      pack_ = 1, team_ = 1, packs_ = static_cast<int>(columns_);
      block_ = 128;
      return;
    }
    const std::int64_t packs = columns_ / pack_;
    const std::int64_t least = (columns_ + most - 1) / most;
    const std::int64_t spread =
        std::int64_t{machine_.device.multiprocessors} * kMostThreads / rows_;
    const std::int64_t wanted = std::min<std::int64_t>(
        std::max({least, std::min<std::int64_t>(spread, 256), std::int64_t{32}}), packs);
    team_ = 1;
    while (team_ < wanted && team_ < 32) team_ *= 2;
    if (wanted > 32)
      team_ = static_cast<int>(std::min<std::int64_t>((wanted + 31) / 32 * 32, 1024));
    packs_ = static_cast<int>((packs + team_ - 1) / team_);
    block_ = team_ > 32 ? team_ : 128;
  }

  bool is_exact() const { return std::int64_t{team_} * packs_ * pack_ == columns_; }

  // In names: equal groups have equal texts, whatever their values' numbers in the graph.
  std::string number_of(ValueId id) const {
    const auto at = std::find(group_.nodes.begin(), group_.nodes.end(), id);
    return at != group_.nodes.end() ? std::to_string(at - group_.nodes.begin())
                                    : "p" + std::to_string(operand_of(group_, id, false));
  }

  std::string pointer(ValueId id, bool is_write) {
    const int operand = operand_of(group_, id, is_write);
    if (std::find(used_.begin(), used_.end(), operand) == used_.end()) used_.push_back(operand);
    return "p" + std::to_string(operand);
  }

  std::string array(std::string_view type, const std::string& name) const {
    return std::string(type) + " " + name + "[" + std::to_string(packs_) + "][" +
           std::to_string(pack_) + "];\n";
  }

  // A loop over the packs that lie inside of the row.
  std::string begin_packs(bool checked) const {
    std::string text = "#pragma unroll\nfor (int p = 0; p < " + std::to_string(packs_) +
                       "; ++p) {\n[[maybe_unused]] const int c = (p * " + std::to_string(team_) +
                       " + lane) * " + std::to_string(pack_) + ";\n";
    if (checked && !is_exact()) text += "if (c >= " + std::to_string(columns_) + ") continue;\n";
    return text;
  }
  std::string begin_elements() const {
    return "#pragma unroll\nfor (int e = 0; e < " + std::to_string(pack_) + "; ++e) ";
  }

  // ---- Operands from memory, each loaded once.

  std::string load_elements(ValueId id, const Shape& as) {
    const Place p = place(id, as, Space::element);
    const std::string name = "a" + number_of(id);
    if (!loaded_.insert(name).second) return name;
    std::string text = array(compute_type(p.rows.dtype), name) + begin_packs(true);
    const std::string from = pointer(id, false) + " + " + p.row_offset() + " + " +
                             offset_text(p.columns.extents, p.columns.strides, "c");
    text += (p.is_packed(pack_) ? std::string("load_pack")
                                : "load_apart<" + std::to_string(p.columns.inner().stride) + ">") +
            "(" + name + "[p], " + from + ");\n}\n";
    // What no earlier kernel writes can be on its way before those end.
    constexpr int kFew = 8;
    const bool is_early = graph_.is_constant(id) && !p.depends_on_row() && packs_ * pack_ <= kFew;
    (is_early ? early_ : p.depends_on_row() ? loads_ : code_) += text;
    return name;
  }

  std::string load_row(ValueId id, const Shape& as) {
    const Place p = place(id, as, Space::row);
    const std::string name = "r" + number_of(id);
    if (!loaded_.insert(name).second) return name;
    loads_ +=
        "const auto " + name + " = value_of(" + pointer(id, false) + "[" + p.row_offset() + "]);\n";
    return name;
  }

  // ---- Members.

  // Views of members have the names of what they rename.
  std::map<ValueId, std::string> given(Space space) const {
    std::map<ValueId, std::string> names;
    for (const auto& [id, own] : shape_.members) {
      ValueId member = id;
      while (!std::binary_search(group_.nodes.begin(), group_.nodes.end(), member))
        member = graph_[member].inputs[0];
      if (own == Space::row)
        names[id] = "r" + number_of(member);
      else if (space == Space::element)
        names[id] = "a" + number_of(member) + "[p][e]";
    }
    return names;
  }

  void write_elementwise(ValueId id) {
    const Space space = shape_.members.at(id);
    auto names = given(space);
    names.erase(id);
    const auto code = element_code(graph_, std::span(&id, 1), names);
    if (!code) internal_error("row", "no text for ", info(graph_[id].op).name);
    const std::string type(compute_type(graph_.type(id).dtype));
    const std::string number = number_of(id);
    if (space == Space::row) {
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
    if (operand_of(group_, operand, false) >= 0 && !shape_.members.contains(operand))
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
             (team_ > 32 ? " + " + std::to_string(folds_ * team_ / 32) : "") + ");\n}\n";
    ++folds_;
  }

  std::string count_text() const { return literal(static_cast<double>(columns_), f32); }

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
    if (node.op == Op::layer_norm || node.op == Op::var) {
      // In two passes over the registers: a small variance far from zero is not lost.
      const std::string mean = "mean" + number;
      write_fold(mean + "_sum", kSum, from);
      code_ += "const float " + mean + " = " + mean + "_sum / " + count_text() + ";\n";
      write_fold("squares" + number, kSum, from, "(x - " + mean + ") * (x - " + mean + ")");
      if (node.op == Op::layer_norm)
        write_layer_norm(id, from);
      else
        write_quotient(id, "squares" + number,
                       std::max(static_cast<double>(columns_) - node.attrs.number("ddof"), 0.0));
      return;
    }
    if (node.op == Op::mean) {
      write_fold("sum" + number, kSum, from);
      write_quotient(id, "sum" + number, static_cast<double>(columns_));
      return;
    }
    write_fold("r" + number, fold_of(node.op), from);
  }

  void write_quotient(ValueId id, const std::string& sum, double count) {
    code_ += "const float r" + number_of(id) + " = " + sum + " / " + literal(count, f32) + ";\n";
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
    const Space space = shape_.members.at(id);
    const Place p = place(id, graph_.type(id).shape, space);
    const std::string to = pointer(id, true), number = number_of(id);
    if (space == Space::row) {
      code_ += "if (lane == 0 && is_row) " + to + "[" + p.row_offset() + "] = stored<" +
               std::string(device_type(p.rows.dtype)) + ">(r" + number + ");\n";
      return;
    }
    const std::string offset =
        p.row_offset() + " + " + offset_text(p.columns.extents, p.columns.strides, "c");
    code_ +=
        "if (is_row) {\n" + begin_packs(true) +
        (p.is_packed(pack_) ? std::string("store_pack")
                            : "store_apart<" + std::to_string(p.columns.inner().stride) + ">") +
        "(" + to + " + " + offset + ", a" + number + "[p]);\n}\n}\n";
  }

  std::string write_body() {
    for (const ValueId id : group_.nodes)
      if (is_elementwise(graph_[id].op))
        write_elementwise(id);
      else
        write_row_operator(id);
    for (const ValueId id : group_.writes) write_store(id);
    const std::string rows = std::to_string(rows_), team = std::to_string(team_);
    std::string text = "using Team = RowTeam<" + team + ">;\n";
    text += team_ > 32 ? "__shared__ float shared[" + std::to_string(folds_ * team_ / 32) + "];\n"
                       : "float* const shared = nullptr;\n";
    text += "const int lane = threadIdx.x % " + team + ";\nconst int place = blockIdx.x * " +
            std::to_string(block_ / team_) + " + threadIdx.x / " + team +
            ";\n[[maybe_unused]] const bool is_row = place < " + rows +
            ";\n[[maybe_unused]] const int row = is_row ? place : " + std::to_string(rows_ - 1) +
            ";\n";
    return text + early_ + "wait_for_previous();\n" + loads_ + code_;
  }

  std::string text(const std::string& body) const {
    std::string out =
        "#include \"row.h\"\nusing namespace tensor::device;\n"
        "extern \"C\" __global__ __launch_bounds__(" +
        std::to_string(block_) + ") void KERNEL(";
    const auto reads = static_cast<int>(group_.reads.size());
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const int operand = used_[i];
      const bool is_read = operand < reads;
      const ValueId id = is_read ? group_.reads[static_cast<std::size_t>(operand)]
                                 : group_.writes[static_cast<std::size_t>(operand - reads)];
      out += (i > 0 ? ",\n    " : "") + std::string(is_read ? "const " : "") +
             std::string(device_type(graph_.type(id).dtype)) + "* p" + std::to_string(operand);
    }
    return out + ") {\nlaunch_next();\n" + body + "}\n";
  }

  const LaidOutGraph& laid_;
  const Graph& graph_;
  const Group& group_;
  const Machine& machine_;
  BlockShape shape_;
  Dims row_axes_, column_axes_;   // of the block, as memory has them
  bool rows_are_inside_ = false;  // memory has neighbouring rows closer than neighbouring columns
  std::int64_t rows_ = 0, columns_ = 0;
  int pack_ = 1;     // neighbouring elements of a thread
  int packs_ = 1;    // of a thread
  int team_ = 32;    // threads of a row
  int block_ = 128;  // threads
  int folds_ = 0;
  std::vector<int> used_;  // operands, in the order of the parameters
  std::set<std::string> loaded_;
  std::string early_, loads_, code_;  // before and after earlier kernels have ended, and the rest
};

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  constexpr double kFoldUs = 0.15;  // through shuffles and shared memory, where nothing hides it
  const auto shape = accept(graph, group);
  if (!shape) return std::nullopt;
  const auto elements = static_cast<double>(num_elements(shape->extents));
  double compute = 0, folds = 0;
  for (const ValueId id : group.nodes) {
    const bool by_row = shape->members.at(id) == Space::row && is_elementwise(graph[id].op);
    compute += computing_us(machine, graph[id].op,
                            by_row ? static_cast<double>(shape->row_count()) : elements);
    if (!is_elementwise(graph[id].op)) folds += kFoldUs;
  }
  return machine.launch_us + folds + compute + moving_us(machine, work_of(graph, group).bytes);
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  Generator generator(laid, group, machine);
  // Layouts are not known when a group is chosen; the other family has lanes across the rows.
  if (generator.is_scattered() && kReduce.estimate(laid.graph, group, machine))
    return kReduce.lower(laid, group, machine);
  return generator.lower();
}

}  // namespace

const Family kRow = {"row", estimate, lower};

}  // namespace tensor::cuda
