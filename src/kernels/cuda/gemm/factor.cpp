#include "src/kernels/cuda/gemm/factor.h"

#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/cuda/generated/expression.h"

namespace tensor::cuda {
namespace {

// Where the matrix `batch` begins, in elements.
std::string offset_of_batch(const Factor& f, Extents& numbers, const std::string& name) {
  std::string text = "0";
  for (int axis = 0; axis < f.batch.rank(); ++axis) {
    const std::string of = name + std::to_string(axis) + "_";
    text += " + i64(batch";
    if (f.batch_step[axis] > 1) text += " / " + numbers.divided_by(of + "step", f.batch_step[axis]);
    text += " % " + numbers.divided_by(of + "extent", f.batch[axis]) + ") * " +
            numbers.term(f.batch_stride[axis]);
  }
  return text;
}

// Copies a factor to dense rows at `to`, `pitch` elements long, zero beyond k.
Call copy_factor(const Factor& factor, std::int64_t batches, DType dtype, std::int64_t pitch,
                 const Pointer& from, const Pointer& to, const Machine& machine) {
  const std::string type(device_type(dtype));
  const std::int64_t elements = batches * factor.rows * pitch;
  Extents numbers(machine.any_extent);
  // Of more elements than an int counts, 64 bits are divided.
  const bool is_far = elements > INT32_MAX;
  const auto divided_by = [&](const char* by, std::int64_t value) {
    return is_far ? "i64(" + numbers.term(value) + ")" : numbers.divided_by(by, value);
  };
  const std::string index = is_far ? "i" : "unsigned(i)", width = divided_by("width", pitch);
  const std::string body =
      "  for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < " + numbers.term(elements) +
      "; i += gridDim.x * 256ll) {\n    const int column = int(" + index + " % " + width +
      "), row = int(" + index + " / " + width + " % " + divided_by("height", factor.rows) +
      "), batch = int(" + index + " / " + divided_by("area", pitch * factor.rows) +
      ");\n    to[i] = column < " + numbers.term(factor.k) + " ? from[" +
      offset_of_batch(factor, numbers, "batch") + " + i64(row) * " +
      numbers.term(factor.row_stride) + " + i64(column) * " + numbers.term(factor.k_stride) +
      "] : stored<" + type + ">(0);\n  }\n";
  Call call;
  call.source.text = "#include \"numbers.h\"\nusing namespace tensor::device;\n" +
                     numbers.struct_text() +
                     "extern \"C\" __global__ __launch_bounds__(256) void KERNEL(const " + type +
                     "* from, " + type + "* to" + numbers.last_parameter() +
                     ") {\n  wait_for_previous();\n  launch_next();\n" + body + "}\n";
  const auto blocks =
      std::min<std::int64_t>(ceil_div(elements, 256), 8 * machine.device.multiprocessors);
  call.launch.grid.x = static_cast<unsigned>(blocks);
  call.launch.block.x = 256;
  call.launch.overlaps_previous = machine.overlaps_launches;
  call.arguments = {from, to};
  numbers.add_argument(call.arguments);
  name_kernel(call, machine, "rows_" + std::string(name(dtype)));
  return call;
}

}  // namespace

Factor Factor::of(const Layout& layout, ValueId value, const Shape& batch, bool is_turned) {
  const int rank = layout.shape.rank();
  const int rows = is_turned ? rank - 1 : rank - 2, k = is_turned ? rank - 2 : rank - 1;
  Factor factor{value, layout.shape[rows], layout.shape[k], layout.strides[rows],
                layout.strides[k]};
  factor.offset = layout.offset;
  // Axes of the batch are those of the value, from the innermost on.
  std::int64_t step = 1;
  for (int axis = batch.rank() - 1; axis >= 0; step *= batch[axis--]) {
    const int own = axis - batch.rank() + rank - 2;
    if (own >= 0 && layout.shape[own] > 1)
      factor.add_axis(layout.shape[own], layout.strides[own], step);
  }
  return factor;
}

Factor Factor::dense(ValueId value, std::int64_t batches, std::int64_t rows, std::int64_t k,
                     std::int64_t pitch) {
  Factor factor{value, rows, k, pitch, 1};
  factor.add_axis(batches, rows * pitch, 1);
  return factor;
}

void Factor::add_axis(std::int64_t extent, std::int64_t stride, std::int64_t step) {
  if (extent == 1 || stride == 0) return;
  const bool merges =
      !batch.empty() && batch_step[0] * batch[0] == step && batch_stride[0] * batch[0] == stride;
  if (merges) {
    batch[0] *= extent;
    return;
  }
  batch.insert(0, extent);
  batch_stride.insert(0, stride);
  batch_step.insert(0, step);
}

Factor Factor::settled() const {
  Factor f = *this;
  if (f.k == 1 && f.row_stride != 1) f.k_stride = 1;
  if (f.rows == 1) f.row_stride = f.k_stride == 1 ? in_chunks(f.k, i8) : 1;
  return f;
}

Factor Factor::turned() const {
  Factor f = *this;
  std::swap(f.rows, f.k);
  std::swap(f.row_stride, f.k_stride);
  return f;
}

bool Factor::fits_boxes(DType dtype) const {
  constexpr int kMostAxes = 5;
  const std::int64_t chunk = chunk_of(dtype);
  const auto is_aligned = [=](std::int64_t n) { return n > 0 && n % chunk == 0; };
  return k_stride == 1 && is_aligned(row_stride) && offset % chunk == 0 &&
         batch.rank() + 2 <= kMostAxes &&
         std::all_of(batch_stride.begin(), batch_stride.end(), is_aligned);
}

Extents factor_numbers(const Factor& f, DType dtype, bool are_any, const std::string& type,
                       const std::string& object) {
  Extents numbers(are_any, type, object);
  numbers.text("using Element = " + std::string(device_type(dtype)) + ";");
  numbers.number("kRows", f.rows);
  numbers.number("kDepth", f.k);
  // Neighbours are known to be some.
  const auto add_stride = [&](const char* name, std::int64_t stride) {
    stride == 1 ? numbers.constant(name, stride) : numbers.number(name, stride);
  };
  add_stride("kRowStride", f.row_stride);
  add_stride("kDepthStride", f.k_stride);
  std::string begin = "0";
  for (int axis = 0; axis < f.batch.rank(); ++axis) {
    const std::string of = std::to_string(axis);
    numbers.divisor("kStep" + of, f.batch_step[axis]);
    numbers.divisor("kExtent" + of, f.batch[axis]);
    numbers.number("kStride" + of, f.batch_stride[axis]);
    begin += " + i64(batch / kStep" + of + " % kExtent" + of + ") * kStride" + of;
  }
  numbers.function("i64 at(int batch)", begin);
  return numbers;
}

TensorMapOf Source::map(DType dtype, int box_rows) const {
  const Factor f = is_turned ? factor.turned() : factor;
  const auto bytes = static_cast<std::int64_t>(item_size(dtype));
  const int width = static_cast<int>(128 / bytes);
  TensorMapOf map{memory, dtype, {f.k, f.rows}, {f.row_stride * bytes}, {width, box_rows}};
  if (is_turned) map.box[1] = 64;
  for (int axis = f.batch.rank() - 1; axis >= 0; --axis) {
    map.extents.push_back(f.batch[axis]);
    map.stride_bytes.push_back(f.batch_stride[axis] * bytes);
    map.box.push_back(1);
  }
  return map;
}

void Source::add_corner(Extents& numbers, const std::string& name) const {
  const Factor& f = factor;
  std::string text = is_turned ? "y, x" : "x, y";
  for (int axis = f.batch.rank() - 1; axis >= 0; --axis) {
    const std::string step = name + "_step" + std::to_string(axis),
                      extent = name + "_extent" + std::to_string(axis);
    if (f.batch_step[axis] > 1) numbers.divisor(step, f.batch_step[axis]);
    numbers.divisor(extent, f.batch[axis]);
    text += ", batch" + (f.batch_step[axis] > 1 ? " / " + step : "") + " % " + extent;
  }
  numbers.function(
      "Corner<" + std::to_string(2 + f.batch.rank()) + "> " + name + "(int x, int y, int batch)",
      "{{" + text + "}}");
}

Source copied(const Factor& factor, const Pointer& from, std::int64_t batches, DType dtype,
              const Machine& machine, Lowered& lowered) {
  const std::int64_t pitch = in_chunks(factor.k, dtype);
  const Pointer to{Pointer::Base::scratch, 0, lowered.scratch_bytes};
  lowered.calls.push_back(copy_factor(factor, batches, dtype, pitch, from, to, machine));
  const std::int64_t bytes = batches * factor.rows * pitch * item_size(dtype);
  lowered.scratch_bytes += (bytes + 1023) / 1024 * 1024;
  return {Factor::dense(factor.value, batches, factor.rows, factor.k, pitch), to};
}

}  // namespace tensor::cuda
