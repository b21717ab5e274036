// TensorMap: tensors by name, as files hold them.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "tensor/handle.h"

namespace tensor {

/// What a file holds, by name. A file may also hold what no tensor can (strings, complex numbers,
/// F8, a text in an archive): iterating passes over that, and `at` throws why it is no tensor.
class TensorMap : public std::map<std::string, Tensor> {
 public:
  using std::map<std::string, Tensor>::map;
  TensorMap(std::map<std::string, Tensor> tensors)
      : std::map<std::string, Tensor>(std::move(tensors)) {}

  /// UserError on a name that is foreign, or not there.
  TENSOR_API const Tensor& at(const std::string& name) const;
  TENSOR_API Tensor& at(const std::string& name);
  /// Moves from `other` all whose names are not here yet, foreign ones too.
  TENSOR_API void merge(TensorMap& other);

  std::map<std::string, std::string> foreign;  ///< the names of what no tensor can hold, and why
};

}  // namespace tensor
