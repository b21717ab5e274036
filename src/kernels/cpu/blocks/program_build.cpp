// Making a block program: the order of the axes, the instructions, and where every value lies.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <tuple>

#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "src/kernels/cpu/blocks/program.h"
#include "src/kernels/elementwise.h"

namespace tensor::cpu {

using simd::Extent;
using simd::Instruction;

namespace {

constexpr std::int64_t kShortestRow = 32;  // shorter ones are not worth the work of each row
constexpr std::int64_t kFloatsAtOnce = 16384;
// Where operands have different axes innermost, several stretches of one of them should fit a
// block.
constexpr std::int64_t kMostTurned = 512;
// Rows whose elements are neighbours of other rows' come together, a line of the cache of them, as
// long as the second-level cache holds them.
constexpr std::int64_t kTurnedRows = 16, kTurnedFloats = 1 << 16;
constexpr std::int64_t kLeastParallel = 60000;  // elements times instructions

bool is_short_float(DType dtype) { return dtype == f16 || dtype == bf16; }

bool all_zero(const Strides& strides, int begin, int end) {
  return std::all_of(strides.begin() + begin, strides.begin() + end,
                     [](std::int64_t s) { return s == 0; });
}

}  // namespace

class BlockProgramBuilder {
 public:
  BlockProgramBuilder(BlockProgram& program, const LaidOutGraph& laid, const Group& group,
                      const BlockShape& shape, int threads)
      : program_(program), laid_(laid), group_(group), shape_(shape), threads_(threads) {}

  void run() {
    order_axes();
    if (!shape_.has_rows) find_columns();
    for (int i = 0; i < extents_.rank(); ++i)
      (i < row_axes_ ? program_.rows_ : program_.columns_) *= extents_[i];
    for (const ValueId id : group_.nodes) lower(id);
    for (std::size_t i = 0; i < group_.writes.size(); ++i) write(i);
    place_buffers();
  }

  // Rows and columns in the order of the axes; only rows and numbers are read where they lie, since
  // a tile's rows are longer than what there is.
  void run_on_tiles(ValueId tile, BlockProgram::TileSize size) {
    is_tiled_ = true;
    int last = 0;
    const Shape& shape = graph().type(tile).shape;
    const int columns = (size.column_axis + shape.rank()) % shape.rank();
    for (int axis = 0, place = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      if (axis != columns) order_.push_back(place), extents_.push_back(shape[axis]);
      if (axis == columns) last = place;
      ++place;
    }
    order_.push_back(last), extents_.push_back(shape_.extents[last]);
    row_axes_ = extents_.rank() - 1;
    program_.columns_ = extents_.back();
    program_.rows_ = num_elements(extents_) / extents_.back();
    tile_ = tile;
    for (const ValueId id : group_.nodes) lower(id);
    std::int16_t result = values_.at(group_.writes.front());
    if (extent_of(result) != Extent::element) result = emit(Op::copy, Extent::element, {result});
    plan(result).place = Place::tile;
    program_.block_rows_ = size.rows;
    program_.block_columns_ = size.pitch;
    place_buffers();
  }

 private:
  using Place = BlockProgram::Place;

  const Graph& graph() const { return laid_.graph; }
  const Layout& layout(ValueId id) const { return laid_.layouts[at(id)]; }
  bool is_member(ValueId id) const { return shape_.members.contains(id); }

  // ---- Axes.

  // Rows first, each part in the order of memory of the largest value that goes in or out.
  void order_axes() {
    const int rank = shape_.extents.rank();
    Strides guide = Strides::filled(rank, 0);
    for (const ValueId id : group_.writes)
      if (shape_.members.at(id) == BlockExtent::element && all_zero(guide, 0, rank))
        guide = squeezed_strides(layout(id), graph().type(id).shape);
    for (const ValueId id : group_.reads) {
      if (!(squeezed(graph().type(id).shape) == shape_.extents)) continue;
      const Strides strides = squeezed_strides(layout(id), graph().type(id).shape);
      const bool is_better =
          turned(guide, strides) > kMostTurned && turned(strides, guide) <= kMostTurned;
      if (all_zero(guide, 0, rank) || is_better) guide = strides;
    }
    Dims axes;
    for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
    std::stable_sort(axes.begin(), axes.end(), [&](std::int64_t a, std::int64_t b) {
      const bool in_row_a = shape_.columns.contains(a), in_row_b = shape_.columns.contains(b);
      if (in_row_a != in_row_b) return in_row_b;
      return std::abs(guide[static_cast<int>(a)]) > std::abs(guide[static_cast<int>(b)]);
    });
    for (const auto axis : axes) {
      order_.push_back(axis);
      extents_.push_back(shape_.extents[static_cast<int>(axis)]);
    }
    row_axes_ = rank - shape_.columns.rank();
  }

  // How many elements that lie side by side by `guide` lie equally far apart by the others; 0 where
  // these are neighbours, too, or the same.
  std::int64_t turned(const Strides& guide, const Strides& others) const {
    std::int64_t length = 1, step = 0;
    for (int axis = guide.rank(); axis-- > 0;) {
      if (guide[axis] != length || (length > 1 && others[axis] != step * length)) continue;
      if (length == 1) step = others[axis];
      length *= shape_.extents[axis];
      axis = guide.rank();
    }
    return step > 1 ? length : 0;
  }

  // Without reductions a row is what every operand can walk through as one, or what is longer, if
  // the others are the same in all rows: numbers of groups of channels. Where that is too short,
  // everything is one row.
  void find_columns() {
    const int rank = extents_.rank();
    std::vector<Strides> all;
    for (const ValueId id : group_.nodes)
      for (const ValueId input : graph()[id].inputs)
        if (!is_member(input)) all.push_back(strides_of(input, graph().type(id).shape));
    for (const ValueId id : group_.writes) all.push_back(strides_of(id, graph().type(id).shape));
    row_axes_ = rank;
    std::int64_t columns = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const bool merges = axis == rank - 1 || std::all_of(all.begin(), all.end(), [&](auto& s) {
                            return s[axis] == s[axis + 1] * extents_[axis + 1];
                          });
      if (!merges) break;
      columns *= extents_[axis];
      row_axes_ = axis;
    }
    while (columns < kShortestRow && row_axes_ > 0) columns *= extents_[--row_axes_];
    const bool fits = std::all_of(all.begin(), all.end(), [&](const Strides& strides) {
      return all_zero(strides, 0, row_axes_) || is_run(strides, row_axes_);
    });
    if (!fits) row_axes_ = 0;
  }

  // Whether the axes from there on are as one.
  bool is_run(const Strides& strides, int begin) const {
    for (int axis = begin; axis + 1 < extents_.rank(); ++axis)
      if (strides[axis] != strides[axis + 1] * extents_[axis + 1]) return false;
    return true;
  }

  // Over the ordered axes.
  Strides strides_of(ValueId id, const Shape& as) const {
    const Strides strides = squeezed_strides(layout(id), as);
    Strides result;
    for (const auto axis : order_) result.push_back(strides[static_cast<int>(axis)]);
    return result;
  }
  // Over the ordered row axes, for values of one number a row.
  Strides row_strides_of(ValueId id, const Shape& as) const {
    const Strides strides = squeezed_strides(layout(id), as);
    Strides result;
    for (int i = 0; i < row_axes_; ++i) {
      std::int64_t place = 0;
      for (std::int64_t axis = 0; axis < order_[i]; ++axis) place += !shape_.columns.contains(axis);
      result.push_back(strides[static_cast<int>(place)]);
    }
    return result;
  }

  Access access(Extent extent, const Strides& strides) const {
    Shape extents;
    Strides part;
    const int begin = extent == Extent::column ? row_axes_ : 0;
    const int end = extent == Extent::row ? row_axes_ : extents_.rank();
    for (int i = begin; i < end && extent != Extent::number; ++i) {
      extents.push_back(extents_[i]);
      part.push_back(strides[i]);
    }
    return {extents, part};
  }

  // ---- Slots and instructions.

  std::int16_t new_slot(Extent extent) {
    if (program_.slots_.size() == kMaxSlots)
      internal_error("block program", "more than ", kMaxSlots, " values");
    program_.slots_.push_back({extent, Place::buffer, 0, 0});
    return static_cast<std::int16_t>(program_.slots_.size() - 1);
  }
  Extent extent_of(std::int16_t slot) const { return plan(slot).extent; }
  BlockProgram::SlotPlan& plan(std::int16_t slot) const {
    return program_.slots_[static_cast<std::size_t>(slot)];
  }
  using Operands = std::array<std::int16_t, 3>;
  static constexpr Operands kNone = {-1, -1, -1};

  std::int16_t emit(Op op, Extent extent, Operands in) {
    Instruction instruction{op, new_slot(extent), in[0], in[1], in[2]};
    instruction.reference = info(op).elementwise.floats;
    program_.code_.push_back(instruction);
    return instruction.to;
  }

  void lower(ValueId id) {
    const Node& node = graph()[id];
    const Extent extent = shape_.members.at(id) == BlockExtent::row ? Extent::row : Extent::element;
    const bool on_rows = !is_elementwise(node.op);
    Operands in = kNone;
    for (std::size_t k = 0; k < node.inputs.size(); ++k)
      in[k] = on_rows && k == 0 ? operand(node.inputs[k], graph().type(node.inputs[0]).shape,
                                          Extent::element, true)
                                : operand(node.inputs[k], node.type.shape, extent, false);
    const Graph* formula = formula_of(node.op, f32);
    std::int16_t slot =
        formula ? lower_formula(*formula, extent, in) : lower_operator(graph(), id, extent, in);
    if (!vector_op(node.op)->is_exact && is_short_float(node.type.dtype))
      round(slot, node.type.dtype);
    const bool is_written =
        std::find(group_.writes.begin(), group_.writes.end(), id) != group_.writes.end();
    if (is_written && extent_of(slot) != extent) slot = emit(Op::copy, extent, {slot, -1, -1});
    values_[id] = slot;
  }

  std::int16_t lower_operator(const Graph& graph, ValueId id, Extent extent, const Operands& in) {
    const Node& node = graph[id];
    if (node.op == Op::astype || node.op == Op::copy)
      return convert(in[0], graph.type(node.inputs[0]).dtype, node.type.dtype);
    const std::int16_t slot = emit(node.op, extent, in);
    const char* number = node.op == Op::layer_norm ? "eps" : node.op == Op::var ? "ddof" : nullptr;
    if (number) program_.code_.back().number = static_cast<float>(node.attrs.number(number, 0));
    return slot;
  }

  // The operators of a composed one, each on the block's extent.
  std::int16_t lower_formula(const Graph& formula, Extent extent, const Operands& operands) {
    std::vector<std::int16_t> slots(operands.begin(), operands.begin() + formula.inputs().size());
    for (ValueId id = static_cast<ValueId>(slots.size()); id < formula.size(); ++id) {
      const Node& node = formula[id];
      Operands in = kNone;
      for (std::size_t k = 0; k < node.inputs.size(); ++k) in[k] = slots[at(node.inputs[k])];
      slots.push_back(node.kind == NodeKind::constant ? constant_number(node.constant)
                                                      : lower_operator(formula, id, extent, in));
    }
    return slots[at(formula.outputs().front())];
  }

  void round(std::int16_t slot, DType dtype) {
    program_.code_.push_back({Op::astype, slot, slot});
    program_.code_.back().type = storage_of(dtype);
  }
  static simd::Storage storage_of(DType dtype) { return static_cast<simd::Storage>(dtype); }

  // Stores convert to integers, everything else holds floats.
  std::int16_t convert(std::int16_t from, DType source, DType target) {
    if (source == target) return from;
    const bool rounds = is_short_float(target) && source != boolean && source != u8 && source != i8;
    if (target != boolean && !rounds) return from;
    const std::int16_t slot = emit(Op::astype, extent_after(from), {from, -1, -1});
    program_.code_.back().type = storage_of(target);
    return slot;
  }
  // An instruction's result is an element or a number a row, whatever its operand.
  Extent extent_after(std::int16_t from) const {
    return extent_of(from) == Extent::row ? Extent::row : Extent::element;
  }

  std::int16_t operand(ValueId id, const Shape& as, Extent reader, bool as_elements) {
    if (is_member(id)) {
      ValueId member = id;
      while (!values_.contains(member)) member = graph()[member].inputs[0];
      return values_.at(member);
    }
    if (graph().is_constant(id) && graph()[id].constant.size() == 1 && !as_elements)
      return constant_number(graph()[id].constant);
    return read(id, as, reader, as_elements);
  }

  std::int16_t constant_number(const Tensor& value) {
    return constant({static_cast<float>(value.item<double>())}, Extent::number);
  }
  std::int16_t constant(std::vector<float> values, Extent extent) {
    const std::int16_t slot = new_slot(extent);
    plan(slot).place = Place::constant;
    plan(slot).offset = static_cast<std::int64_t>(program_.constants_.size());
    program_.constants_.insert(program_.constants_.end(), values.begin(), values.end());
    return slot;
  }

  std::int16_t read(ValueId id, const Shape& as, Extent reader, bool as_elements) {
    Strides strides = reader == Extent::row ? row_strides_of(id, as) : strides_of(id, as);
    Extent extent = reader;
    if (!as_elements) {
      const int rank = strides.rank();
      if (all_zero(strides, 0, rank))
        extent = Extent::number;
      else if (reader == Extent::element && all_zero(strides, row_axes_, rank))
        extent = Extent::row;
      else if (reader == Extent::element && row_axes_ > 0 && all_zero(strides, 0, row_axes_))
        extent = Extent::column;
    }
    const auto key = std::make_tuple(id, extent, std::vector(strides.begin(), strides.end()));
    if (const auto known = reads_.find(key); known != reads_.end()) return known->second;
    const Access path = access(extent, strides);
    const DType dtype = graph().type(id).dtype;
    const bool in_place = dtype == f32 && path.is_linear() &&
                          !(is_tiled_ && (extent == Extent::element || extent == Extent::column));
    std::int16_t slot;
    if (id == tile_) {
      slot = new_slot(Extent::element);
      plan(slot).place = Place::tile;
      return reads_[key] = slot;
    }
    if (extent == Extent::column && graph().is_constant(id) && !in_place && !is_tiled_) {
      slot = constant(column_values(id, path), extent);
    } else {
      slot = new_slot(extent);
      plan(slot).operand = static_cast<std::size_t>(
          std::find(group_.reads.begin(), group_.reads.end(), id) - group_.reads.begin());
      if (in_place)
        plan(slot).place = Place::direct;
      else
        program_.loads_.push_back({plan(slot).operand, dtype, path, slot});
    }
    return reads_[key] = slot;
  }

  std::vector<float> column_values(ValueId id, const Access& path) const {
    const Tensor& source = graph()[id].constant;
    const std::byte* data = detail::stored(source).first();
    std::vector<float> values(static_cast<std::size_t>(program_.columns_));
    float* to = values.data();
    path.walk(0, program_.columns_, [&](std::int64_t offset, std::int64_t stride, std::int64_t n) {
      simd::table().load[static_cast<int>(source.dtype())](
          to, data + offset * item_size(source.dtype()), stride, n);
      to += n;
    });
    return values;
  }

  void write(std::size_t index) {
    const ValueId id = group_.writes[index];
    const Shape& shape = graph().type(id).shape;
    const std::int16_t slot = values_.at(id);
    const std::size_t operand = group_.reads.size() + index;
    const Extent extent = extent_of(slot);
    const Access path =
        access(extent, extent == Extent::row ? row_strides_of(id, shape) : strides_of(id, shape));
    const DType dtype = graph().type(id).dtype;
    if (plan(slot).place == Place::buffer && dtype == f32 && path.is_linear()) {
      plan(slot).place = Place::direct;
      plan(slot).operand = operand;
    } else {
      program_.stores_.push_back({operand, dtype, path, slot});
    }
  }

  // ---- Buffers: one for every value that is alive at a time, shared by those of one extent.

  void place_buffers() {
    const std::size_t count = program_.slots_.size();
    std::vector<int> last(count, -1), buffer(count, -1);
    const int end = static_cast<int>(program_.code_.size());
    for (int i = 0; i < end; ++i) {
      const Instruction& instruction = program_.code_[static_cast<std::size_t>(i)];
      for (const auto slot : {instruction.to, instruction.a, instruction.b, instruction.c})
        if (slot >= 0) last[static_cast<std::size_t>(slot)] = i;
    }
    for (const auto& store : program_.stores_) last[static_cast<std::size_t>(store.slot)] = end;
    const auto take = [&](std::int16_t slot) {
      if (plan(slot).place == Place::buffer && buffer[static_cast<std::size_t>(slot)] < 0)
        buffer[static_cast<std::size_t>(slot)] = take_buffer(extent_of(slot));
    };
    for (const auto& load : program_.loads_) take(load.slot);
    for (int i = 0; i < end; ++i) {
      const Instruction& instruction = program_.code_[static_cast<std::size_t>(i)];
      for (const auto slot : {instruction.a, instruction.b, instruction.c})
        if (slot >= 0 && slot != instruction.to && last[static_cast<std::size_t>(slot)] == i &&
            buffer[static_cast<std::size_t>(slot)] >= 0)
          buffers_[static_cast<std::size_t>(buffer[static_cast<std::size_t>(slot)])].is_free = true;
      take(instruction.to);
    }
    if (!is_tiled_) size_blocks();
    for (Buffer& b : buffers_) {
      b.offset = program_.buffer_floats_;
      program_.buffer_floats_ += round_up(floats_of(b.extent), 16);
    }
    for (std::size_t slot = 0; slot < count; ++slot)
      if (buffer[slot] >= 0)
        program_.slots_[slot].offset = buffers_[static_cast<std::size_t>(buffer[slot])].offset;
  }

  int take_buffer(Extent extent) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      if (buffers_[i].is_free && buffers_[i].extent == extent) {
        buffers_[i].is_free = false;
        return static_cast<int>(i);
      }
    buffers_.push_back({extent, false, 0});
    return static_cast<int>(buffers_.size() - 1);
  }

  std::int64_t floats_of(Extent extent) const {
    switch (extent) {
      case Extent::element:
        return program_.block_rows_ * program_.block_columns_;
      case Extent::row:
        return program_.block_rows_;
      case Extent::column:
        return program_.block_columns_;
      case Extent::number:
        break;
    }
    return 1;
  }

  void size_blocks() {
    const auto elements = std::count_if(buffers_.begin(), buffers_.end(), [](const Buffer& b) {
      return b.extent == Extent::element;
    });
    const std::int64_t target =
        std::clamp<std::int64_t>(kFloatsAtOnce / (elements + 2), 1024, 4096);
    program_.block_columns_ =
        shape_.has_rows ? program_.columns_ : std::min(program_.columns_, target);
    std::int64_t least_rows = 1;
    for (const auto* transfers : {&program_.loads_, &program_.stores_})
      for (const auto& transfer : *transfers) {
        if (!transfer.access.is_turned()) continue;
        if (program_.rows_ == 1)
          program_.block_columns_ = whole_stretches(transfer.access.row_length());
        else if (program_.block_columns_ == program_.columns_)  // a part of a row is alone
          least_rows = std::clamp<std::int64_t>(kTurnedFloats / program_.columns_, 1, kTurnedRows);
      }
    program_.block_rows_ = std::clamp<std::int64_t>(
        target / program_.block_columns_, std::min(least_rows, program_.rows_), program_.rows_);
    const auto steps = static_cast<std::int64_t>(program_.code_.size() + program_.loads_.size() +
                                                 program_.stores_.size());
    program_.threads_ = program_.rows_ * program_.columns_ * steps < kLeastParallel ? 1 : threads_;
  }

  std::int64_t whole_stretches(std::int64_t length) const {
    return std::max(program_.block_columns_ / length * length,
                    std::min(length, program_.block_columns_));
  }

  struct Buffer {
    Extent extent;
    bool is_free;
    std::int64_t offset;
  };

  BlockProgram& program_;
  const LaidOutGraph& laid_;
  const Group& group_;
  const BlockShape& shape_;
  const int threads_;
  Dims order_;        // the axes of the block, outermost first
  Shape extents_;     // in that order
  int row_axes_ = 0;  // how many of them count rows
  bool is_tiled_ = false;
  ValueId tile_ = -1;
  std::map<ValueId, std::int16_t> values_;
  std::map<std::tuple<ValueId, Extent, std::vector<std::int64_t>>, std::int16_t> reads_;
  std::vector<Buffer> buffers_;
};

BlockProgram::BlockProgram(const LaidOutGraph& laid, const Group& group, const BlockShape& shape,
                           int threads) {
  BlockProgramBuilder(*this, laid, group, shape, threads).run();
}

BlockProgram::BlockProgram(const LaidOutGraph& laid, const Group& group, const BlockShape& shape,
                           ValueId tile, TileSize size) {
  BlockProgramBuilder(*this, laid, group, shape, 1).run_on_tiles(tile, size);
}

}  // namespace tensor::cpu
