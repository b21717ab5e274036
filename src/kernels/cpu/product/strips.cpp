#include "src/kernels/cpu/product/strips.h"

#include <algorithm>
#include <cstring>

#include "src/core/view.h"
#include "src/kernels/host/strided_copy.h"
#include "tensor/text.h"

namespace tensor::cpu {

std::optional<Unit> tiles_for(DType dtype, const Machine& machine) {
  if (machine.tile_gflops <= 0 || dtype != bf16) return std::nullopt;
  return Unit{simd::table().multiply_tiles, bf16, 32, 32, true};
}
Unit vectors_for(DType dtype, const Machine& machine) {
  if (dtype == bf16 && machine.has_bf16 && simd::table().multiply_pairs)
    return {simd::table().multiply_pairs, bf16, 2, 0, false};
  return {simd::table().multiply, f32, 1, 0, false};
}

namespace {
// Sums whose lanes lie along k are folded at its end, which has to be far.
constexpr std::int64_t kLeastVectors = 4;
}  // namespace

Bundles bundles_of(const Node& node, const Shape& right, const Unit& unit) {
  if (node.op != Op::conv2d) {
    const Shape& result = node.type.shape;
    const std::int64_t batches = num_elements(result) / result.back() / result[result.rank() - 2];
    const bool is_one = right[right.rank() - 2] * right.back() == num_elements(right);
    return is_one ? Bundles{} : Bundles{batches, 1, true};
  }
  const std::int64_t groups = node.attrs.integer("groups"), columns = right[0] / groups;
  const std::int64_t width = unit.is_tiles ? kStrip : simd::table().lanes;
  std::int64_t bundle = std::min(groups, round_up(columns, width) / columns);
  while (groups % bundle != 0) --bundle;
  return {groups / bundle, bundle};
}

Strips::Strips(const Layout& right, const Node& node, WindowOrder order, std::int64_t k,
               std::int64_t run, const Unit& unit, const Numbers& numbers)
    : numbers_(numbers),
      bundles_(bundles_of(node, right.shape, unit)),
      k_(k),
      pitch_(round_up(k, unit.step)) {
  const int rank = right.shape.rank();
  TextWriter text;
  text << "strips of " << unit.taken << ", steps of " << unit.step << ", " << info(node.op).name;
  if (node.op != Op::conv2d) {
    columns_ = right.shape.back(), column_ = right.strides.back();
    shape_ = {1, right.shape[rank - 2]};
    strides_ = {0, right.strides[rank - 2]};
    target_ = {pitch_, 1};
    if (bundles_.are_batches) {
      Shape all = node.type.shape;
      all[all.rank() - 2] = right.shape[rank - 2];
      const Strides strides = broadcast_strides(right.shape, right.strides, all);
      Shape batches = all;
      Strides apart = strides;
      for (int i = 0; i < 2; ++i) batches.erase(batches.rank() - 1), apart.erase(apart.rank() - 1);
      batches_ = Access(batches, apart);
      text << ", " << bundles_.count << " batches of " << right.shape;
    }
  } else {
    const bool are_first = order == WindowOrder::channels_first;
    const std::int64_t channels = right.shape[1], height = right.shape[2], width = right.shape[3];
    const std::int64_t all = channels * bundles_.groups;  // channels of a row
    columns_ = right.shape[0], column_ = right.strides[0];
    shape_ = {1, height, width, channels};
    strides_ = {0, right.strides[2], right.strides[3], right.strides[1]};
    target_ = {pitch_, width * all, all, 1};
    next_group_ = channels;
    if (are_first) {
      target_ = {pitch_, width, 1, height * width};
      next_group_ = channels * height * width;
    }
    text << (are_first ? ", channels first, " : ", ") << bundles_.count << " of "
         << bundles_.groups;
  }
  const simd::Table& table = simd::table();
  are_few_ = unit.multiply == table.multiply && columns() <= table.few_columns &&
             run >= kLeastVectors * table.lanes;
  if (are_few_) text << ", columns one after the other";
  text_ = text.str();
}

std::string Strips::text() const { return text_; }

void Strips::pack(const std::byte* from, std::int64_t strip, float* to, std::byte* room) const {
  const std::int64_t first = column(strip), size = numbers_.stored_bytes();
  if (bundles_.are_batches)
    batches_.walk(strip / in_bundle(), 1,
                  [&](std::int64_t offset, std::int64_t, std::int64_t) { from += size * offset; });
  const std::int64_t count = std::min(kStrip, columns() - strip % in_bundle() * kStrip);
  const std::int64_t of_group = columns() / bundles_.groups;
  std::byte* stored = numbers_.are_same() ? room : room + words() * 4;
  if (k_ < pitch_ || bundles_.groups > 1)
    std::memset(room, 0, static_cast<std::size_t>(this->room()));
  Shape shape = shape_;
  Strides strides = strides_;
  strides[0] = column_;
  for (std::int64_t at = 0; at < count; at += shape[0]) {
    const std::int64_t in_bundle = (first + at) % columns(), group = in_bundle / of_group;
    shape[0] = std::min(count - at, (group + 1) * of_group - in_bundle);
    StridedCopy(shape, strides, target_, size)
        .run(from + size * (first + at) * column_,
             stored + size * (at * pitch_ + group * next_group_), 1);
  }
  if (stored != room) numbers_.copy(room, stored, 1, count * pitch_);
  if (are_few_)
    std::memcpy(to, room, static_cast<std::size_t>(words() * 4));
  else
    simd::table().pack_columns(to, kStrip, reinterpret_cast<const float*>(room), k_words(), count,
                               k_words());
}

}  // namespace tensor::cpu
