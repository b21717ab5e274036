// The families pointwise (elementwise groups) and row (those with sums, softmax or layer_norm over
// rows): block programs.
#include "src/kernels/cpu/blocks/program.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/elementwise.h"

namespace tensor::cpu {
namespace {

class BlockKernel : public Kernel {
 public:
  BlockKernel(const LaidOutGraph& laid, const Group& group, const BlockShape& shape, int threads)
      : program_(laid, group, shape, threads), name_(shape.has_rows ? "row" : "pointwise") {}
  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    program_.run(operands, scratch);
  }
  std::size_t scratch_bytes() const override { return program_.scratch_bytes(); }
  std::string description() const override {
    return name_ + " " + simd::table().name + ", " + std::to_string(program_.instruction_count()) +
           " instructions";
  }

 private:
  BlockProgram program_;
  std::string name_;
};

std::optional<BlockShape> accept(const Graph& graph, const Group& group, bool has_rows) {
  if (operator_count(graph, group.nodes) > kMostOperators) return std::nullopt;
  for (const ValueId id : group.nodes)
    if (graph.is_op(id, Op::layer_norm_by_sums)) return std::nullopt;  // made for GPUs alone
  auto shape = block_shape_of(graph, group);
  return shape && shape->has_rows == has_rows ? shape : std::nullopt;
}

// Whether many rows lie side by side.
bool has_neighbours(const BlockShape& shape, const Strides& strides) {
  constexpr std::int64_t kMany = 8;
  for (int axis = 0; axis < strides.rank(); ++axis)
    if (strides[axis] == 1 && !shape.columns.contains(axis)) return shape.extents[axis] >= kMany;
  return false;
}

// How many nanoseconds one thread takes to find the elements of rows that lie far apart in memory,
// a few side by side: each time that is a line of the cache which nothing brings nearer ahead.
double stray_ns(const Isolated& alone, const BlockShape& shape, const Machine& machine) {
  constexpr double kShortRun = 256, kNear = 3, kFar = 100, kTurned = 1;  // bytes; nanoseconds
  const Graph& graph = alone.laid.graph;
  double ns = 0;
  for (const ValueId id : alone.group.reads) {
    if (!(squeezed(graph.type(id).shape) == shape.extents)) continue;
    const Strides strides =
        squeezed_strides(alone.laid.layouts[static_cast<std::size_t>(id)], graph.type(id).shape);
    std::int64_t run = 1;
    bool is_same = true;  // one number for the row
    for (const auto axis : shape.columns) {
      const std::int64_t stride = strides[static_cast<int>(axis)];
      is_same &= stride == 0;
      if (stride == 1) run = shape.extents[static_cast<int>(axis)];
    }
    if (is_same) continue;
    const auto size = static_cast<double>(item_size(graph.type(id).dtype));
    if (run == shape.column_count() || static_cast<double>(run) * size >= kShortRun) continue;
    const auto elements = static_cast<double>(num_elements(shape.extents));
    // Lines of rows side by side are turned in the cache.
    if (shape.columns.rank() == 1 && size == 4 && has_neighbours(shape, strides)) {
      ns += elements * kTurned;
      continue;
    }
    const bool is_near = elements * size <= machine.near_cache_bytes;
    ns += elements / static_cast<double>(run) * (is_near ? kNear : kFar);
  }
  return ns;
}

template <bool has_rows>
std::optional<Implementation> consider(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const Group& group = alone.group;
  const auto shape = accept(graph, group, has_rows);
  if (!shape) return std::nullopt;
  const double elements =
      static_cast<double>(shape->row_count()) * static_cast<double>(shape->column_count());
  double simple = 0, hard = 0;
  for (const ValueId id : group.nodes) {
    const VectorOp code = *vector_op(graph[id].op);
    const bool by_row = shape->members.at(id) == BlockExtent::row && is_elementwise(graph[id].op);
    const double count = by_row ? static_cast<double>(shape->row_count()) : elements;
    simple += count * code.passes;
    hard += count * code.series;
  }
  const double bytes = work_of(graph, group).bytes;
  const double stray = has_rows ? stray_ns(alone, *shape, machine) : 0;
  return implementation(
      alone, machine,
      [=](const Machine& m) {
        const double compute = simple / m.simple_gops + hard / m.special_gops;
        const double rate = bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
        return m.dispatch_us + (compute + bytes / rate + stray / m.threads) / 1e3;
      },
      [=](const Isolated& one, const Machine& m) {
        return std::make_unique<BlockKernel>(one.laid, one.group, *shape, m.threads);
      });
}

}  // namespace

const Family kPointwise = {"pointwise", consider<false>};
const Family kRow = {"row", consider<true>};

}  // namespace tensor::cpu
