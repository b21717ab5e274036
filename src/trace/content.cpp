#include "src/trace/content.h"

#include <bit>
#include <cstring>

#include "src/core/storage.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// Four lanes make the hash of the bytes as fast as memory.
std::uint64_t hash_of_bytes(const std::byte* bytes, std::size_t count) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
  std::uint64_t lanes[4] = {1, 2, 3, 4}, words[4] = {};
  const auto mix = [&] {
    for (int i = 0; i < 4; ++i) lanes[i] = std::rotl(lanes[i] ^ words[i], 29) * kOdd;
  };
  for (; count >= sizeof words; bytes += sizeof words, count -= sizeof words) {
    std::memcpy(words, bytes, sizeof words);
    mix();
  }
  std::memset(words, 0, sizeof words);
  std::memcpy(words, bytes, count);
  mix();
  std::uint64_t hash = count;
  for (const std::uint64_t lane : lanes) hash = std::rotl(hash ^ lane, 29) * kOdd;
  return hash;
}

}  // namespace

std::uint64_t hash_of_elements(const Tensor& x) {
  detail::TensorImpl once = detail::stored(x);
  for (int axis = 0; axis < once.type.shape.rank(); ++axis)
    if (once.strides[axis] == 0 && once.type.shape[axis] > 1) once.type.shape[axis] = 1;
  const Tensor distinct = detail::make_tensor(std::move(once));
  const Tensor rows = distinct.is_contiguous() ? distinct : distinct.copy();
  return hash_of_bytes(detail::stored(rows).first(), static_cast<std::size_t>(rows.nbytes()));
}

Tensor copy_of_elements(const Tensor& x) {
  detail::TensorImpl once = detail::stored(x);
  const Shape shape = once.type.shape;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (once.strides[axis] == 0 && shape[axis] > 1) once.type.shape[axis] = 1;
  return broadcast_to(detail::make_tensor(std::move(once)).copy(), shape);
}

bool has_same_elements(const Tensor& a, const Tensor& b) {
  if (!(a.type() == b.type())) return false;
  const detail::TensorImpl &x = detail::stored(a), &y = detail::stored(b);
  if (x.first() == y.first() && x.strides == y.strides) return true;
  const Tensor left = a.is_contiguous() ? a : a.copy(), right = b.is_contiguous() ? b : b.copy();
  return a.size() == 0 || std::memcmp(detail::stored(left).first(), detail::stored(right).first(),
                                      static_cast<std::size_t>(left.nbytes())) == 0;
}

}  // namespace tensor
