#include "src/kernels/cuda/gemm/factor.h"

#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/cuda/generated/expression.h"

namespace tensor::cuda {
namespace {

// Where the matrix `batch` begins, in elements.
std::string offset_of_batch(const Factor& f) {
  std::string text = "0";
  for (int axis = 0; axis < f.batch.rank(); ++axis)
    text += " + i64(batch / " + std::to_string(f.batch_step[axis]) + " % " +
            std::to_string(f.batch[axis]) + ") * " + std::to_string(f.batch_stride[axis]) + "ll";
  return text;
}

// Copies a factor to dense rows at `to`, `pitch` elements long, zero beyond the depth.
Call copy_factor(const Factor& factor, std::int64_t batches, DType dtype, std::int64_t pitch,
                 const Pointer& from, const Pointer& to, const Machine& machine) {
  const std::string type(device_type(dtype)), depth = std::to_string(factor.depth),
                                              rows = std::to_string(factor.rows),
                                              width = std::to_string(pitch);
  const std::int64_t elements = batches * factor.rows * pitch;
  Call call;
  call.source.text =
      "#include \"numbers.h\"\nusing namespace tensor::device;\n"
      "extern \"C\" __global__ __launch_bounds__(256) void KERNEL(const " +
      type + "* from, " + type +
      "* to) {\n"
      "  wait_for_previous();\n  launch_next();\n"
      "  for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < " +
      std::to_string(elements) +
      "ll; i += gridDim.x * 256ll) {\n"
      "    const int column = int(i % " +
      width + "), row = int(i / " + width + " % " + rows + "), batch = int(i / " +
      std::to_string(pitch * factor.rows) +
      ");\n"
      "    to[i] = column < " +
      depth + " ? from[" + offset_of_batch(factor) + " + i64(row) * " +
      std::to_string(factor.row_stride) + " + i64(column) * " +
      std::to_string(factor.depth_stride) + "] : stored<" + type + ">(0);\n  }\n}\n";
  const auto blocks =
      std::min<std::int64_t>(ceil_div(elements, 256), 8 * machine.device.multiprocessors);
  call.launch.grid.x = static_cast<unsigned>(blocks);
  call.launch.block.x = 256;
  call.launch.overlaps_previous = machine.overlaps_launches;
  call.arguments = {from, to};
  name_kernel(call, machine, "rows_" + std::string(name(dtype)));
  return call;
}

}  // namespace

Factor Factor::of(const Layout& layout, ValueId value, const Shape& batch, bool is_turned) {
  const int rank = layout.shape.rank();
  const int rows = is_turned ? rank - 1 : rank - 2, depth = is_turned ? rank - 2 : rank - 1;
  Factor factor{value, layout.shape[rows], layout.shape[depth], layout.strides[rows],
                layout.strides[depth]};
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

Factor Factor::dense(ValueId value, std::int64_t batches, std::int64_t rows, std::int64_t depth,
                     std::int64_t pitch) {
  Factor factor{value, rows, depth, pitch, 1};
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
  if (f.depth == 1 && f.row_stride != 1) f.depth_stride = 1;
  if (f.rows == 1) f.row_stride = f.depth_stride == 1 ? in_chunks(f.depth) : 1;
  return f;
}

Factor Factor::turned() const {
  Factor f = *this;
  std::swap(f.rows, f.depth);
  std::swap(f.row_stride, f.depth_stride);
  return f;
}

bool Factor::fits_boxes() const {
  constexpr int kMostAxes = 5;
  const auto is_aligned = [](std::int64_t n) { return n > 0 && n % kChunk == 0; };
  return depth_stride == 1 && is_aligned(row_stride) && offset % kChunk == 0 &&
         batch.rank() + 2 <= kMostAxes &&
         std::all_of(batch_stride.begin(), batch_stride.end(), is_aligned);
}

std::string factor_text(const std::string& name, const Factor& f, DType dtype,
                        const std::string& more) {
  return "struct " + name + " {\n  using Element = " + std::string(device_type(dtype)) + ";\n" +
         constant_text("kRows", f.rows) + constant_text("kDepth", f.depth) +
         constant_text("kRowStride", f.row_stride) + constant_text("kDepthStride", f.depth_stride) +
         more + "  static i64 at(int batch) { return " + offset_of_batch(f) + "; }\n};\n";
}

TensorMapOf Source::map(DType dtype, int box_rows) const {
  const Factor f = is_turned ? factor.turned() : factor;
  const auto bytes = static_cast<std::int64_t>(item_size(dtype));
  const int width = static_cast<int>(128 / bytes);
  TensorMapOf map{memory, dtype, {f.depth, f.rows}, {f.row_stride * bytes}, {width, box_rows}};
  if (is_turned) map.box[1] = 64;
  for (int axis = f.batch.rank() - 1; axis >= 0; --axis) {
    map.extents.push_back(f.batch[axis]);
    map.stride_bytes.push_back(f.batch_stride[axis] * bytes);
    map.box.push_back(1);
  }
  return map;
}

std::string Source::corner_text(const std::string& name) const {
  const Factor& f = factor;
  std::string text = is_turned ? "y, x" : "x, y";
  for (int axis = f.batch.rank() - 1; axis >= 0; --axis)
    text +=
        ", batch / " + std::to_string(f.batch_step[axis]) + " % " + std::to_string(f.batch[axis]);
  const std::string axes = std::to_string(2 + f.batch.rank());
  return "  static Corner<" + axes + "> " + name + "(int x, int y, int batch) { return {{" + text +
         "}}; }\n";
}

Source copied(const Factor& factor, const Pointer& from, std::int64_t batches, DType dtype,
              const Machine& machine, Lowered& lowered) {
  const std::int64_t pitch = in_chunks(factor.depth);
  const Pointer to{Pointer::Base::scratch, 0, lowered.scratch_bytes};
  lowered.calls.push_back(copy_factor(factor, batches, dtype, pitch, from, to, machine));
  const std::int64_t bytes = batches * factor.rows * pitch * 2;
  lowered.scratch_bytes += (bytes + 1023) / 1024 * 1024;
  return {Factor::dense(factor.value, batches, factor.rows, factor.depth, pitch), to};
}

}  // namespace tensor::cuda
