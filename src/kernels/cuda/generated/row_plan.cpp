#include "src/kernels/cuda/generated/row_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/core/rounding.h"
#include "src/core/view.h"

namespace tensor::cuda {
namespace {

constexpr int kMostThreads = 1024;   // of a block
constexpr int kMostElements = 32;    // of one value in a thread's registers
constexpr int kMostRegisters = 112;  // for all values
constexpr std::size_t kMostNodes = 16;

template <class D>
D chosen(const D& dims, const Dims& axes) {
  D result;
  for (const auto axis : axes) result.push_back(dims[static_cast<int>(axis)]);
  return result;
}

}  // namespace

std::optional<BlockShape> RowPlan::accept(const Graph& graph, const Group& group) {
  if (group.nodes.size() > kMostNodes) return std::nullopt;
  auto shape = block_shape_of(graph, group, true);
  if (!shape || !shape->has_rows) return std::nullopt;
  if (num_elements(shape->extents) > std::int64_t{1} << 31) return std::nullopt;
  return shape;
}

bool RowPlan::can_be_held(const BlockShape& shape) {
  return shape.column_count() <= kMostThreads * kMostElements;
}

RowPlan::RowPlan(BlockShape rows_of, const LaidOutGraph& laid, const Group& group,
                 const Machine& machine, RowWay way_of_them)
    : shape(std::move(rows_of)),
      way(way_of_them),
      rows(shape.row_count()),
      columns(shape.column_count()),
      laid_(laid),
      graph_(laid.graph),
      group_(group) {
  order_axes();
  if (way == RowWay::held)
    choose_schedule(machine);
  else
    choose_windows(machine);
}

RowPlace RowPlan::place(ValueId id, const Shape& as, BlockExtent extent) const {
  RowPlace result;
  result.rows.extents = chosen(shape.extents, row_axes_);
  if (extent == BlockExtent::row) {  // its axes are those of the rows, in their order
    Dims order;
    for (const auto axis : row_axes_) order.push_back(place_among_rows(axis));
    result.rows.strides = chosen(strides_over(shape.rows(), layout(id), as), order);
  } else {
    const Strides strides = strides_over(shape.extents, layout(id), as);
    result.rows.strides = chosen(strides, row_axes_);
    result.columns.extents = chosen(shape.extents, column_axes_);
    result.columns.strides = chosen(strides, column_axes_);
  }
  result.rows.dtype = result.columns.dtype = graph_.type(id).dtype;
  result.columns.offset = layout(id).offset;
  return result;
}
std::int64_t RowPlan::place_among_rows(std::int64_t axis) const {
  std::int64_t place = 0;
  for (std::int64_t i = 0; i < axis; ++i) place += !shape.columns.contains(i);
  return place;
}

bool RowPlan::is_scattered() const {
  constexpr std::int64_t kSector = 16;  // elements of 16 bits that come at once
  return way == RowWay::held && team > 1 && rows_between_ > 1 && inner_columns_ < kSector;
}

// The value of the group that is largest in memory and has an element for each of the block's.
void RowPlan::order_axes() {
  const Layout* widest = nullptr;
  const auto consider = [&](ValueId id) {
    if (!widest && num_elements(graph_.type(id).shape) == num_elements(shape.extents))
      widest = &layout(id);
  };
  for (const ValueId id : group_.reads) consider(id);
  for (const ValueId id : group_.writes) consider(id);
  Dims order;
  for (int axis = 0; axis < shape.extents.rank(); ++axis) order.push_back(axis);
  if (widest) {
    const Strides strides = strides_over(shape.extents, *widest, widest->shape);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return std::abs(strides[static_cast<int>(a)]) > std::abs(strides[static_cast<int>(b)]);
    });
  }
  rows_are_inside = !order.empty() && !shape.columns.contains(order.back());
  for (const auto axis : order)
    (shape.columns.contains(axis) ? column_axes_ : row_axes_).push_back(axis);
  find_rows_between(order);
}

// From the innermost axis on: columns, rows, and columns again.
void RowPlan::find_rows_between(const Dims& order) {
  const auto is_column = [&](int place) { return shape.columns.contains(order[place]); };
  const auto extent = [&](int place) { return shape.extents[static_cast<int>(order[place])]; };
  int place = order.rank();
  inner_columns_ = rows_between_ = 1;
  while (place > 0 && is_column(place - 1)) inner_columns_ *= extent(--place);
  while (place > 0 && !is_column(place - 1)) rows_between_ *= extent(--place);
  if (place == 0) rows_between_ = 1;
}

// Everything that is loaded or stored element by element.
std::vector<RowPlace> RowPlan::element_places() const {
  std::vector<RowPlace> places;
  for (const ValueId id : group_.nodes) {
    const Node& node = graph_[id];
    const bool is_elementwise_here = is_elementwise(node.op);
    if (is_elementwise_here && shape.members.at(id) == BlockExtent::row) continue;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId input = node.inputs[k];
      if (shape.members.contains(input)) continue;
      if (node.op == Op::layer_norm_by_sums && k == 3) continue;  // they are made again
      const bool is_row = !is_elementwise_here && k == 0;
      places.push_back(
          place(input, is_row ? graph_.type(input).shape : node.type.shape, BlockExtent::element));
    }
  }
  for (const ValueId id : group_.writes)
    if (shape.members.at(id) == BlockExtent::element)
      places.push_back(place(id, graph_.type(id).shape, BlockExtent::element));
  return places;
}

// Neighbouring elements that every operand has in one piece of 16 bytes at most, or apart.
void RowPlan::choose_pack(const std::vector<RowPlace>& places, std::int64_t most) {
  pack = static_cast<int>(most);
  const auto fits = [&](const RowPlace& p) { return p.columns.inner().extent % pack == 0; };
  while (pack > 1 && !(columns % pack == 0 && std::all_of(places.begin(), places.end(), fits)))
    pack /= 2;
}

void RowPlan::choose_schedule(const Machine& machine) {
  const std::vector<RowPlace> places = element_places();
  std::int64_t widest = 2, values = 1;
  for (const RowPlace& p : places) {
    if (!p.depends_on_row()) continue;
    widest = std::max(widest, item_size(p.rows.dtype));
    ++values;
  }
  choose_pack(places, 16 / widest);
  const std::int64_t most = std::max<std::int64_t>(
      std::min<std::int64_t>(kMostRegisters / values, kMostElements) / pack * pack, pack);
  if (rows_are_inside && columns <= most) {
    // Neighbouring lanes have neighbouring rows.
    pack = 1, team = 1, packs = static_cast<int>(columns);
    block = 128;
    return;
  }
  const std::int64_t all = columns / pack;
  const std::int64_t least = ceil_div(columns, most);
  const std::int64_t spread = std::int64_t{machine.device.multiprocessors} * kMostThreads / rows;
  const std::int64_t wanted = std::min<std::int64_t>(
      std::max({least, std::min<std::int64_t>(spread, 256), std::int64_t{32}}), all);
  team = 1;
  while (team < wanted && team < 32) team *= 2;
  if (wanted > 32) team = static_cast<int>(std::min<std::int64_t>(round_up(wanted, 32), 1024));
  if (machine.any_extent) {
    // Few teams for many numbers of rows: the next power of two, or what holds the row at once.
    const auto whole = std::min<std::int64_t>(round_up(all, 32), 1024);
    if (team > 32)
      team = static_cast<int>(
          std::min<std::int64_t>(std::bit_ceil(static_cast<unsigned>(team)), whole));
  }
  packs = static_cast<int>(ceil_div(all, team));
  block = team > 32 ? team : 128;
}

void RowPlan::choose_windows(const Machine& machine) {
  constexpr int kThreads = 512;
  constexpr int kWindow = 16, kMostPacks = 4;  // of a thread: elements of a value, and addresses
  constexpr int kRegisters = 80;               // for all values of a window
  constexpr std::int64_t kMostPartial = 4096;  // states that a block merges
  const std::vector<RowPlace> places = element_places();
  std::int64_t widest = 2;
  for (const RowPlace& p : places)
    if (p.depends_on_row()) widest = std::max(widest, item_size(p.rows.dtype));
  choose_pack(places, 16 / widest);
  const int elements = std::min(kWindow, kRegisters / (1 + static_cast<int>(places.size())));
  packs = std::clamp(elements / pack, 1, kMostPacks);
  block = kThreads;
  // Neighbouring lanes have rows that lie between columns, as groups of channels do where these
  // come last.
  const auto across = static_cast<int>(
      std::bit_ceil(static_cast<unsigned>(std::min<std::int64_t>(rows_between_, 32))));
  team = block / across;
  if (way == RowWay::whole) return;
  const std::int64_t window = std::int64_t{team} * packs * pack;
  const std::int64_t free = 2 * machine.device.multiprocessors / blocks();
  const std::int64_t wanted =
      std::clamp<std::int64_t>(std::min(free, kMostPartial / across), 1, ceil_div(columns, window));
  slice = static_cast<int>(round_up(ceil_div(columns, wanted), window));
  splits = static_cast<int>(ceil_div(columns, slice));
}

}  // namespace tensor::cuda
