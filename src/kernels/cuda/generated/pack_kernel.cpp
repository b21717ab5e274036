#include "src/kernels/cuda/generated/pack_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/core/rounding.h"
#include "src/core/view.h"
#include "src/kernels/elementwise.h"
#include "src/kernels/match/block_shape.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor::cuda {
namespace {

constexpr int kPackThreads = 256;  // of a block

const PackSource* source_of(std::span<const PackSource> sources, Op op) {
  for (const PackSource& source : sources)
    if (source.op == op) return &source;
  return nullptr;
}

// What a group is to a kernel over packs, whatever the layouts.
struct PackParts {
  std::vector<ValueId> sources, elementwise;
  ElementCode code;
  Shape shape;              // of the first result
  bool is_uniform = false;  // all elements have the same coordinates, axes of extent 1 aside
};

std::optional<PackParts> parts_of(std::span<const PackSource> table, const Graph& graph,
                                  const Group& group) {
  PackParts parts;
  std::map<ValueId, std::string> given;
  for (const ValueId id : group.nodes) {
    const PackSource* source = source_of(table, graph[id].op);
    if (!source) {
      parts.elementwise.push_back(id);
      continue;
    }
    if (!source->accepts(graph, id)) return std::nullopt;
    for (const ValueId input : graph[id].inputs)
      if (operand_of(group, input, false) < 0) return std::nullopt;
    given[id] = "s" + std::to_string(parts.sources.size());
    parts.sources.push_back(id);
  }
  if (!table.empty() && parts.sources.empty()) return std::nullopt;
  auto code = element_code(graph, parts.elementwise, given);
  if (!code) return std::nullopt;
  parts.code = std::move(*code);
  for (const ValueId id : parts.sources) parts.code.shapes[id] = graph.type(id).shape;

  parts.shape = graph.type(group.writes.front()).shape;
  const std::int64_t count = num_elements(parts.shape);
  if (count == 0 || count > std::numeric_limits<std::int32_t>::max() - (1 << 20))
    return std::nullopt;
  const Shape axes = squeezed(parts.shape);
  parts.is_uniform = true;
  for (const auto& [id, shape] : parts.code.shapes) {
    if (num_elements(shape) != count) return std::nullopt;
    parts.is_uniform &= squeezed(shape) == axes;
  }
  for (const ValueId id : group.writes)
    if (!(parts.code.shapes.at(id) == graph.type(id).shape)) return std::nullopt;
  if (!parts.sources.empty() && !parts.is_uniform) return std::nullopt;
  return parts;
}

// Axes of extent more than 1, from the widest stride to the narrowest.
Dims order_of(const Shape& shape, const Strides& strides) {
  Dims order;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1) order.push_back(axis);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(strides[static_cast<int>(a)]) > std::abs(strides[static_cast<int>(b)]);
  });
  return order;
}

template <class D>
D reordered(const D& dims, const Dims& order) {
  D result;
  for (const auto axis : order) result.push_back(dims[static_cast<int>(axis)]);
  return result;
}

class PackGenerator {
 public:
  PackGenerator(std::span<const PackSource> table, PackParts parts, const LaidOutGraph& laid,
                const Group& group, const Machine& machine)
      : table_(table),
        laid_(laid),
        graph_(laid.graph),
        group_(group),
        machine_(machine),
        parts_(std::move(parts)),
        operands_(laid.graph, group),
        numbers_(machine.any_extent) {
    choose_order();
    order_for_runs();
    for (const auto& load : parts_.code.loads) loads_.push_back(access(load.value, load.as, false));
    for (const ValueId id : group.writes)
      stores_.push_back(access(id, graph_.type(id).shape, true));
    choose_pack();
    choose_run();
  }

  Lowered lower(std::string_view family) {
    Call call;
    call.source.text = text();
    const std::int64_t packs = ceil_div(count() / run_ / pack_, unroll_);
    call.launch.grid = {static_cast<unsigned>(ceil_div(packs, kPackThreads))};
    call.launch.block = {kPackThreads};
    call.launch.overlaps_previous = machine_.overlaps_launches;
    call.arguments = operands_.arguments();
    numbers_.add_argument(call.arguments);
    const DType dtype = graph_.type(group_.writes.front()).dtype;
    name_kernel(call, machine_,
                std::string(family) + "_" + std::string(name(dtype)) + "_" +
                    names_of(graph_, group_) + "_v" + std::to_string(pack_ * run_));
    return lowered_as(std::move(call));
  }

 private:
  const Layout& layout(ValueId id) const { return laid_.layouts[at(id)]; }
  std::int64_t count() const { return num_elements(parts_.shape); }

  // The elements are taken in the order in which the widest result lies in memory.
  void choose_order() {
    if (!parts_.is_uniform) return;
    ValueId widest = group_.writes.front();
    for (const ValueId id : group_.writes)
      if (item_size(graph_.type(id).dtype) > item_size(graph_.type(widest).dtype)) widest = id;
    const Shape& shape = layout(widest).shape;
    order_ = order_of(squeezed(shape), squeezed_strides(layout(widest), shape));
  }

  // The longest run of the only source; its packs lie along the source's last axis, `across_`.
  int most_run() const {
    if (parts_.sources.size() != 1 || !parts_.is_uniform) return 1;
    const ValueId id = parts_.sources.front();
    const PackSource& source = *source_of(table_, graph_[id].op);
    return source.most_run ? source.most_run(graph_, id, machine_.any_extent) : 1;
  }

  // Results that lie along the runs are stored by run. Then threads lie along what the operand has
  // next to each other, for it is read more often.
  void order_for_runs() {
    if (most_run() == 1) return;
    const Node& node = graph_[parts_.sources.front()];
    const Shape& shape = node.type.shape;
    const int last = shape.rank() - 1;
    Strides strides;
    std::int64_t place = -1;
    for (int axis = 0; axis <= last; ++axis)
      if (shape[axis] != 1) strides.push_back(layout(node.inputs[0]).strides[axis]), ++place;
    if (order_.back() == place) {
      order_ = order_of(squeezed(shape), strides);
      most_pack_ = 1;  // the results are pieces along the run
    }
    across_ = static_cast<int>(std::find(order_.begin(), order_.end(), place) - order_.begin());
  }

  void choose_run() {
    if (across_ < 0) return;
    constexpr int kMostElements = 32;  // that a thread has registers for
    // Wide packs share little: on an H200 fewer threads than that took a fifth longer.
    const std::int64_t least = wanted_threads() * (pack_ > 1 ? 4 : 1);
    run_ = std::min(most_run(), kMostElements / pack_);
    while (run_ > 1 && count() / run_ / pack_ < least) run_ /= 2;
    for (std::vector<Access>* accesses : {&loads_, &stores_})
      for (Access& a : *accesses) {
        a.across = a.strides[across_];
        a.extents[across_] /= run_;
        a.strides[across_] *= run_;
      }
  }

  // Enough for every multiprocessor.
  std::int64_t wanted_threads() const {
    return std::int64_t{machine_.device.multiprocessors} * kPackThreads;
  }

  Access access(ValueId id, const Shape& as, bool is_write) {
    Access result;
    result.pointer = operands_.pointer(id, is_write);
    result.dtype = graph_.type(id).dtype;
    result.extents = squeezed(as);
    result.strides = squeezed_strides(layout(id), as);
    result.offset = layout(id).offset;
    if (parts_.is_uniform) {
      result.extents = reordered(result.extents, order_);
      result.strides = reordered(result.strides, order_);
    }
    return result;
  }

  // The axis of the sources' shape that packs lie along; -1 for a single element.
  int inner_axis() const {
    if (order_.empty()) return -1;
    int place = 0;
    for (int axis = 0; axis < parts_.shape.rank(); ++axis)
      if (parts_.shape[axis] != 1 && place++ == order_.back()) return axis;
    return -1;
  }

  void choose_pack() {
    std::int64_t widest = 1;
    const auto widen = [&](DType dtype) { widest = std::max(widest, item_size(dtype)); };
    for (const Access& a : loads_)
      if (a.inner().stride == 1) widen(a.dtype);
    for (const Access& a : stores_) widen(a.dtype);
    for (const ValueId id : parts_.sources)
      for (const ValueId input : graph_[id].inputs) widen(graph_.type(input).dtype);
    pack_ = static_cast<int>(std::min<std::int64_t>(16 / widest, most_pack_));
    while (pack_ > 1 && !pack_fits(pack_)) pack_ /= 2;
    // Few elements are better spread over the multiprocessors.
    while (pack_ > 2 && count() / pack_ < wanted_threads()) pack_ /= 2;
    // More loads on their way once every multiprocessor has its fill of threads.
    if (parts_.sources.empty() && count() / pack_ > 16 * wanted_threads() && loads_.size() <= 4)
      unroll_ = 2;
  }

  bool pack_fits(int pack) const {
    const auto fits = [&](const Access& a) { return a.inner().extent % pack == 0; };
    if (!std::all_of(loads_.begin(), loads_.end(), fits)) return false;
    if (!std::all_of(stores_.begin(), stores_.end(), fits)) return false;
    const int inner = inner_axis();
    for (const ValueId id : parts_.sources) {
      if (inner < 0 || parts_.shape[inner] % pack != 0) return false;
      if (!source_of(table_, graph_[id].op)->fits(graph_, id, source_axis(id, inner), pack))
        return false;
    }
    return true;
  }

  // Axes of extent 1 aside, a source's result has the axes of the first result.
  int source_axis(ValueId id, int axis) const {
    int place = 0;
    for (int i = 0; i < axis; ++i) place += parts_.shape[i] != 1;
    const Shape& shape = graph_.type(id).shape;
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] != 1 && place-- == 0) return i;
    return -1;
  }

  std::string text() {
    TextWriter body;
    write_loads(body);
    write_results(body);
    TextWriter out;
    out << "#include \"numbers.h\"\n";
    if (uses_images()) out << "#include \"image.h\"\n";
    out << "using namespace tensor::device;\n"
        << numbers_.struct_text() << "extern \"C\" __global__ __launch_bounds__(" << kPackThreads
        << ") void KERNEL(" << operands_.parameters() << numbers_.last_parameter()
        << ") {\n"
           "launch_next();\n"
           "wait_for_previous();\n"
        << "const int first = (blockIdx.x * " << kPackThreads * unroll_ << " + threadIdx.x) * "
        << pack_ << ";\n"
        << body.str() << "}\n";
    return out.str();
  }

  bool uses_images() const {
    return !parts_.sources.empty() && table_.data() == image_sources().data();
  }

  void begin_loop(TextWriter& out) {
    if (end_.empty()) end_ = numbers_.term(count() / run_);
    out << "#pragma unroll\nfor (int u = 0; u < " << unroll_
        << "; ++u) {\nconst int i = first + u * " << kPackThreads * pack_ << ";\nif (i < " << end_
        << ") {\n";
  }

  // Where all elements have the same coordinates, all offsets are of the same extents.
  std::string space() { return parts_.is_uniform ? "i" : "i" + std::to_string(spaces_++); }

  // A thread's elements of an operand: so many pieces of so many elements.
  struct Pieces {
    int count, size;
    bool is_packed;  // each aligned in memory
    std::string element(const std::string& e) const {
      const std::string n = std::to_string(size);
      return "[" + e + " / " + n + "][" + e + " % " + n + "]";
    }
    std::string extents() const {
      return "[" + std::to_string(count) + "][" + std::to_string(size) + "]";
    }
  };
  Pieces pieces(const Access& a) const {
    bool is_whole = pack_ == 1 && run_ > 1 && a.across == 1 && a.offset % run_ == 0;
    for (int i = 0; i < a.extents.rank(); ++i)
      is_whole &= a.extents[i] == 1 || a.strides[i] % run_ == 0;
    return is_whole ? Pieces{1, run_, true} : Pieces{run_, pack_, a.is_packed(pack_)};
  }
  // Loads or stores every piece of an array.
  void move(TextWriter& out, bool is_load, const Access& a, const std::string& array) {
    const Pieces p = pieces(a);
    const std::string offset = offset_text(a.extents, a.strides, "i", numbers_, space());
    const std::string across = p.count > 1 ? numbers_.term(a.across) : "";
    for (int k = 0; k < p.count; ++k) {
      const std::string address =
          a.pointer + " + " + offset + (k > 0 ? " + " + std::to_string(k) + " * " + across : "");
      const std::string piece = array + "[" + std::to_string(k) + "]";
      const std::int64_t stride = a.inner().stride;
      out << (is_load ? load_text(piece, address, p.size, p.is_packed, stride, numbers_)
                      : store_text(address, piece, p.size, p.is_packed, stride, numbers_));
    }
  }

  void write_loads(TextWriter& out) {
    const auto array = [&](std::size_t k) { return "a_" + parts_.code.loads[k].name; };
    for (std::size_t k = 0; k < loads_.size(); ++k)
      out << compute_type(loads_[k].dtype) << " " << array(k) << "[" << unroll_ << "]"
          << pieces(loads_[k]).extents() << ";\n";
    if (loads_.empty()) return;
    begin_loop(out);
    for (std::size_t k = 0; k < loads_.size(); ++k) move(out, true, loads_[k], array(k) + "[u]");
    out << "}\n}\n";
  }

  const std::string& source_name(ValueId id) const { return parts_.code.results.at(id); }

  void write_source(TextWriter& out, ValueId id) {
    const Shape& shape = graph_.type(id).shape;
    std::vector<std::string> coordinates;
    Shape extents = reordered(squeezed(parts_.shape), order_);
    if (across_ >= 0) extents[across_] /= run_;
    int place = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const std::string name = "c" + source_name(id) + "_" + std::to_string(axis);
      Strides unit = Strides::filled(extents.rank(), 0);
      if (shape[axis] != 1) {
        const auto at = std::find(order_.begin(), order_.end(), place++) - order_.begin();
        unit[static_cast<int>(at)] = at == across_ ? run_ : 1;
      }
      out << "[[maybe_unused]] const int " << name << " = "
          << offset_text(extents, unit, "i", numbers_, "i") << ";\n";
      coordinates.push_back(name);
    }
    const int inner = inner_axis();
    SourceWriter writer(pack_, run_, inner < 0 ? shape.rank() - 1 : source_axis(id, inner),
                        coordinates, numbers_);
    for (const ValueId input : graph_[id].inputs)
      writer.operands.push_back(
          {operands_.pointer(input, false), layout(input), graph_.type(input).dtype});
    source_of(table_, graph_[id].op)->write(graph_, id, writer, "a_" + source_name(id));
    out << writer.text.str();
  }

  void write_results(TextWriter& out) {
    begin_loop(out);
    for (const ValueId id : parts_.sources) write_source(out, id);
    const auto array = [&](std::size_t k) { return "y" + std::to_string(group_.reads.size() + k); };
    for (std::size_t k = 0; k < stores_.size(); ++k)
      out << compute_type(stores_[k].dtype) << " " << array(k) << pieces(stores_[k]).extents()
          << ";\n";
    out << "#pragma unroll\nfor (int e = 0; e < " << run_ * pack_ << "; ++e) {\n";
    for (std::size_t k = 0; k < loads_.size(); ++k)
      out << "const auto " << parts_.code.loads[k].name << " = a_" << parts_.code.loads[k].name
          << "[u]" << pieces(loads_[k]).element("e") << ";\n";
    for (const ValueId id : parts_.sources)
      out << "const auto " << source_name(id) << " = a_" << source_name(id) << "[e];\n";
    out << parts_.code.body;
    for (std::size_t k = 0; k < stores_.size(); ++k)
      out << array(k) << pieces(stores_[k]).element("e") << " = "
          << parts_.code.results.at(group_.writes[k]) << ";\n";
    out << "}\n";
    for (std::size_t k = 0; k < stores_.size(); ++k) move(out, false, stores_[k], array(k));
    out << "}\n}\n";
  }

  std::span<const PackSource> table_;
  const LaidOutGraph& laid_;
  const Graph& graph_;
  const Group& group_;
  const Machine& machine_;
  PackParts parts_;
  Dims order_;  // of the axes of extent more than 1; empty where elements are taken row-major
  std::vector<Access> loads_, stores_;
  Operands operands_;
  Extents numbers_;
  std::string end_;  // of the loop
  int spaces_ = 0;
  int pack_ = 1, most_pack_ = 8, unroll_ = 1;
  int run_ = 1, across_ = -1;  // packs of a thread, and the place in order_ that they lie along
};

// Instructions of an element of an operator, roughly.
double instructions(Op op) {
  if (op == Op::softmax || op == Op::log_softmax) return 20;
  return element_cost(op).instructions;
}

}  // namespace

std::optional<Implementation> consider_packs(std::span<const PackSource> sources,
                                             std::string_view family, const Isolated& alone,
                                             const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const auto parts = parts_of(sources, graph, alone.group);
  if (!parts) return std::nullopt;
  const auto count = static_cast<double>(num_elements(parts->shape));
  double compute = 0, again = 0;  // bytes that are loaded more than once
  for (const ValueId id : parts->elementwise) compute += computing_us(machine, graph[id].op, count);
  for (const ValueId id : parts->sources) {
    const double loads = source_of(sources, graph[id].op)->loads(graph, id);
    compute += computing_us(machine, graph[id].op, count * loads);
    again += (loads - 1) * count * static_cast<double>(item_size(graph.type(id).dtype));
  }
  const double moving = moving_us(machine, work_of(graph, alone.group).bytes);
  return Implementation{
      machine.launch_us + compute + moving + again / machine.l2_gbps / 1e3,
      [=](const Isolated& group) {
        return PackGenerator(sources, *parts, group.laid, group.group, machine).lower(family);
      }};
}

double moving_us(const Machine& machine, double bytes) {
  return machine.times.generated.latency_us +
         bytes / (is_cached(machine, bytes) ? machine.l2_gbps : machine.memory_gbps) / 1e3;
}

double computing_us(const Machine& machine, Op op, double count) {
  return count * instructions(op) / (machine.f32_tflops / 2 * 1e6);
}

std::string names_of(const Graph& graph, const Group& group) {
  constexpr std::size_t kMost = 4;
  std::string names;
  for (std::size_t i = 0; i < group.nodes.size() && i < kMost; ++i)
    names += (i > 0 ? "_" : "") + std::string(info(graph[group.nodes[i]].op).name);
  if (group.nodes.size() > kMost) names += "_and" + std::to_string(group.nodes.size() - kMost);
  return names;
}

}  // namespace tensor::cuda
