// How kernels over packs reach memory.
#include <cmath>
#include <limits>

#include "src/kernels/cuda/generated/pack_kernel.h"

namespace tensor::cuda {

Access::Inner Access::inner() const {
  Inner result{1, 0};
  bool has_one = false;
  for (int i = extents.rank(); i-- > 0;) {
    if (extents[i] == 1) continue;
    if (!has_one)
      result = {extents[i], strides[i]}, has_one = true;
    else if (strides[i] == result.stride * result.extent)
      result.extent *= extents[i];
    else
      break;
  }
  return result;
}

bool Access::is_packed(int pack) const {
  if (inner().stride != 1 || offset % pack != 0) return false;
  std::int64_t inside = 1;
  for (int i = extents.rank(); i-- > 0; inside *= extents[i])
    if (extents[i] != 1 && inside >= inner().extent && strides[i] % pack != 0) return false;
  return inner().extent % pack == 0;
}

void SourceWriter::load(const std::string& to, std::size_t operand,
                        const std::vector<std::string>& coordinates, int along, bool aligned) {
  const Operand& from = operands[operand];
  std::int64_t reach = 0;
  for (int axis = 0; axis < from.layout.shape.rank(); ++axis)
    reach += (from.layout.shape[axis] - 1) * std::abs(from.layout.strides[axis]);
  const bool is_far = reach > std::numeric_limits<std::int32_t>::max();
  std::string offset;
  bool others_aligned = from.layout.offset % pack_ == 0;
  for (int axis = 0; axis < from.layout.shape.rank(); ++axis) {
    const auto stride = from.layout.strides[axis];
    if (from.layout.shape[axis] == 1 || stride == 0) continue;
    if (axis != along) others_aligned &= stride % pack_ == 0;
    offset += (offset.empty() ? "" : " + ") + std::string(is_far ? "i64(" : "(") +
              coordinates[static_cast<std::size_t>(axis)] + ")" +
              (stride == 1 ? "" : " * " + numbers.term(stride));
  }
  if (offset.empty()) offset = "0";
  const std::int64_t stride =
      along < 0 || from.layout.shape[along] == 1 ? 0 : from.layout.strides[along];
  const bool is_packed = aligned && others_aligned && stride == 1;
  text << load_text(to, from.pointer + " + " + offset, pack_, is_packed, stride, numbers);
}

namespace {

// The last argument of load_apart and store_apart: of one element it does not matter.
std::string stride_text(int size, std::int64_t stride, Extents& numbers) {
  if (size == 1 || stride == 0 || stride == 1) return size == 1 ? "1" : std::to_string(stride);
  return numbers.term(stride);
}

}  // namespace

std::string load_text(const std::string& array, const std::string& from, int size, bool is_packed,
                      std::int64_t stride, Extents& numbers) {
  if (is_packed) return "load_pack(" + array + ", " + from + ");\n";
  return "load_apart(" + array + ", " + from + ", " + stride_text(size, stride, numbers) + ");\n";
}

std::string store_text(const std::string& to, const std::string& array, int size, bool is_packed,
                       std::int64_t stride, Extents& numbers) {
  if (is_packed) return "store_pack(" + to + ", " + array + ");\n";
  return "store_apart(" + to + ", " + array + ", " + stride_text(size, stride, numbers) + ");\n";
}

}  // namespace tensor::cuda
