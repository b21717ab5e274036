#include "src/io/elements.h"

#include <algorithm>

#include "src/core/storage.h"
#include "tensor/creation.h"
#include "tensor/error.h"

namespace tensor {

std::optional<std::int64_t> checked_bytes(const TensorType& type) {
  std::int64_t bytes = item_size(type.dtype);
  for (const auto extent : type.shape)
    if (extent != 0 && __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return type.shape.contains(0) ? 0 : bytes;
}

std::span<std::byte> element_bytes(const Tensor& x) {
  return {detail::stored(x).first(), static_cast<std::size_t>(x.nbytes())};
}

Tensor mapped_elements(const std::shared_ptr<const std::byte>& file, const std::byte* first,
                       const TensorType& type, bool in_file) {
  const auto size = static_cast<std::uintptr_t>(item_size(type.dtype));
  if (reinterpret_cast<std::uintptr_t>(first) % size != 0 || type.shape.contains(0)) return {};
  const Tensor x = from_memory(static_cast<const void*>(first), type.shape, type.dtype,
                               std::shared_ptr<const void>(file, first));
  detail::Storage& storage = *detail::impl(x).storage;
  storage.in_file = in_file;
  storage.is_exposed = false, storage.written_at = 0;
  return x;
}

Tensor rowed(const Tensor& x, const std::string& where) {
  if (!x.defined()) fail(where, "is undefined (default constructed): give it a value first");
  detail::require_values(x, where);
  const Tensor here = x.to(Device());
  return here.is_contiguous() ? here : here.copy();
}

void check_bools(std::span<const std::byte> bytes, const std::string& where) {
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad != bytes.end())
    fail(where, "element ", bad - bytes.begin(), " of bool is ", std::to_integer<int>(*bad),
         ", need 0 or 1");
}

}  // namespace tensor
