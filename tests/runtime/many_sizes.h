// What tests of one function in many sizes share.
#pragma once

#include <cstring>
#include <set>
#include <vector>

#include "src/core/storage.h"
#include "src/runtime/program.h"
#include "tensor/tensor.h"

namespace many_sizes {

using Tensors = std::vector<tensor::Tensor>;

inline std::vector<tensor::TensorType> rows(std::int64_t count, std::int64_t width = 512) {
  return {{{count, width}, tensor::f32}};
}
inline Tensors random_rows(std::int64_t count, std::int64_t width = 512) {
  return {tensor::Generator(5).normal({count, width})};
}

inline bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(a[i].type() == b[i].type())) return false;
    const auto x = a[i].to_vector<double>(), y = b[i].to_vector<double>();
    if (std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) != 0) return false;
  }
  return true;
}

// The storages of the constants that an executable made.
inline std::set<const tensor::detail::Storage*> derived_of(const tensor::Executable& executable) {
  std::set<const tensor::detail::Storage*> result;
  for (const tensor::Tensor& x : executable.program().engine->constants()) {
    const auto& storage = tensor::detail::impl(x).storage;
    if (storage->origin && x.nbytes() > 4096) result.insert(storage.get());
  }
  return result;
}

}  // namespace many_sizes
