#include "tensor/tensor_map.h"

#include <string_view>
#include <vector>

#include "src/core/closest.h"
#include "tensor/error.h"

namespace tensor {

const Tensor& TensorMap::at(const std::string& name) const {
  if (const auto found = find(name); found != end()) return found->second;
  if (const auto found = foreign.find(name); found != foreign.end()) throw UserError(found->second);
  std::vector<std::string_view> names;
  for (const auto& [other, x] : *this) names.push_back(other);
  fail("TensorMap", "got the name \"", name, "\", which none of the ", size(), " tensors has",
       did_you_mean(name, names));
}

Tensor& TensorMap::at(const std::string& name) {
  return const_cast<Tensor&>(std::as_const(*this).at(name));
}

void TensorMap::merge(TensorMap& other) {
  std::map<std::string, Tensor>::merge(other);
  foreign.merge(other.foreign);
}

}  // namespace tensor
