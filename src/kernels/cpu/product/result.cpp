#include "src/kernels/cpu/product/result.h"

#include <algorithm>

namespace tensor::cpu {

std::size_t operand_of(const Group& group, ValueId id) {
  return static_cast<std::size_t>(std::find(group.reads.begin(), group.reads.end(), id) -
                                  group.reads.begin());
}

ProductResult::ProductResult(const LaidOutGraph& laid, const Group& group,
                             const AnchoredProduct& product, bool finishes)
    : product_(product), finishes_(finishes), column_axis_(column_axis(laid.graph, product)) {
  for (const ValueId id : {product.result, product.bytes})
    if (std::count(group.writes.begin(), group.writes.end(), id))
      outputs_.push_back(output_of(laid, group, id));
  Shape shape = laid.graph.type(product.result).shape;
  shape.erase(column_axis_);
  row_count_ = num_elements(shape);
  for (const ValueId id : product.epilogue.reads)
    operands_.push_back(id == product.sums ? 0 : operand_of(group, id));
  if (product.added < 0) return;
  addend_ = operand_of(group, product.added);
  Strides strides = laid.layouts[tensor::at(product.added)].strides;
  strides.erase(column_axis_);
  addend_row_ = Access(shape, strides).stride().value();
}

ProductResult::Output ProductResult::output_of(const LaidOutGraph& laid, const Group& group,
                                               ValueId id) const {
  const auto place = std::find(group.writes.begin(), group.writes.end(), id);
  Shape shape = laid.graph.type(id).shape;
  Strides strides = laid.layouts[tensor::at(id)].strides;
  const std::int64_t column = strides[column_axis_];
  shape.erase(column_axis_), strides.erase(column_axis_);
  return {group.reads.size() + static_cast<std::size_t>(place - group.writes.begin()),
          laid.graph.type(id).dtype, column, Access(shape, strides)};
}

bool ProductResult::Output::is_direct() const {
  return column == 1 && simd::table().finish[static_cast<int>(dtype)];
}

std::optional<std::int64_t> ProductResult::row_stride() const {
  const Output& result = outputs_.front();
  return result.dtype == f32 && result.column == 1 ? result.rows.stride() : std::nullopt;
}

float* ProductResult::at(Operands operands, std::int64_t row, std::int64_t column) const {
  const Output& result = outputs_.front();
  return reinterpret_cast<float*>(operands[result.operand]) + row * result.rows.stride().value() +
         column;
}

const float* ProductResult::addend(Operands operands, std::int64_t row, std::int64_t column) const {
  if (!addend_) return nullptr;
  return reinterpret_cast<const float*>(operands[*addend_]) + row * addend_row_ + column;
}

void ProductResult::plan(const LaidOutGraph& laid, std::int64_t rows, std::int64_t pitch) {
  if (!has_program()) return;
  program_.emplace(laid, product_.epilogue, *block_shape_of(laid.graph, product_.epilogue),
                   product_.sums, BlockProgram::TileSize{rows, pitch, column_axis_});
}

void ProductResult::run_program(Operands operands, const BlockProgram::Block& block,
                                std::int64_t pitch, float* sums, std::byte* scratch) const {
  if (!program_) return;
  std::byte* own[kMaxSlots];
  for (std::size_t i = 0; i < operands_.size(); ++i) own[i] = operands[operands_[i]];
  program_->run_tile(block, pitch, sums, {own, operands_.size()},
                     reinterpret_cast<float*>(scratch));
}

void ProductResult::store(Operands operands, const BlockProgram::Block& block, std::int64_t pitch,
                          float* sums) const {
  simd::Finish rows{.sums = sums, .sums_row = pitch, .columns = block.columns};
  rows.inverse = product_.inverse;
  if (is_stored_last()) {
    rows.add = addend(operands, block.row, block.column);
    rows.add_row = addend_row_;
    rows.bounds = bounds();
  }
  const bool are_direct = std::ranges::all_of(outputs_, &Output::is_direct);
  if (!are_direct && is_stored_last()) {
    rows.rows = block.rows, rows.to = sums, rows.to_row = pitch;
    simd::table().finish[static_cast<int>(f32)](rows);
    rows.add = nullptr, rows.bounds = {};
  }
  for (const Output& output : outputs_) store_to(output, operands, block, rows, sums);
}

void ProductResult::store_to(const Output& output, Operands operands,
                             const BlockProgram::Block& block, simd::Finish rows,
                             float* sums) const {
  const auto type = static_cast<int>(output.dtype);
  const std::int64_t size = item_size(output.dtype);
  std::byte* to = operands[output.operand] + block.column * output.column * size;
  output.rows.walk(block.row, block.rows,
                   [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
                     if (output.is_direct()) {
                       rows.rows = count, rows.to = to + offset * size, rows.to_row = stride;
                       simd::table().finish[type](rows);
                       rows.sums += count * rows.sums_row;
                       if (rows.add) rows.add += count * addend_row_;
                       return;
                     }
                     if (output.dtype == f32 && stride == 1 && output.column > 1) {
                       simd::table().turn(reinterpret_cast<float*>(to) + offset, output.column,
                                          sums, rows.sums_row, count, block.columns);
                       sums += count * rows.sums_row;
                       return;
                     }
                     for (std::int64_t i = 0; i < count; ++i, sums += rows.sums_row) {
                       std::byte* row = to + (offset + i * stride) * size;
                       if (output.dtype != i8) {
                         simd::table().store[type](row, output.column, sums, block.columns);
                         continue;
                       }
                       // The last output: bytes may take the place of the sums.
                       rows.sums = sums, rows.to = sums, rows.rows = 1;
                       simd::table().finish[type](rows);
                       const auto* bytes = reinterpret_cast<const std::byte*>(sums);
                       for (std::int64_t n = 0; n < block.columns; ++n)
                         row[n * output.column] = bytes[n];
                     }
                   });
}

std::string ProductResult::description() const {
  const std::string added = addend_ ? ", added" : "";
  return std::string(product_.bias >= 0 ? ", bias" : "") + (adds_last() ? "" : added) +
         (bounds().have_slope() ? ", slope" : "") +
         (!bounds().have_limits()                                       ? ""
          : bounds().least == 0 && bounds().most == simd::Bounds().most ? ", relu"
                                                                        : ", bounds") +
         (has_scale() ? ", scaled" : "") + (adds_last() ? added : "") +
         (product_.bytes >= 0 ? ", rounded" : "") +
         (program_ ? ", " + std::to_string(program_->instruction_count()) + " instructions" : "");
}

}  // namespace tensor::cpu
