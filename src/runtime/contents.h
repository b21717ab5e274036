// Constants by their elements: what is in plan files and in memory once, though several executables
// have it from different places.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/core/storage.h"

namespace tensor::detail {

/// "constant.0123456789abcdef": by a hash of the elements, so that what else has this name need be
/// compared with it.
std::string content_name(const Tensor& x);

/// x with its axes in the order in which they lie in memory, and that order: a weight that is used
/// transposed is the same constant as it. An empty order, and x as it is, if its elements do not
/// lie in a row.
struct InMemoryOrder {
  explicit InMemoryOrder(const Tensor& x);
  Tensor rows;
  Dims order;
};
/// The tensor that lies in memory as `rows` does, in the order of the axes that x had.
Tensor from_memory_order(const Tensor& rows, const Dims& order);

/// Knows constants in memory order by name as long as they are there, and keeps none of them. Any
/// number of threads may use it.
class Contents {
 public:
  /// The tensor of this name that is known, if its elements are x's; otherwise x, which is known
  /// from now on if none was.
  Tensor share(const std::string& name, const Tensor& x);
  /// A known tensor with the elements and strides of x, or x.
  Tensor known(const Tensor& x) const;
  /// Forgets what is no longer there.
  void tidy();

 private:
  struct Known {
    TensorImpl impl;  // without its storage
    std::weak_ptr<Storage> storage;
  };
  Tensor find(const std::string& name) const;

  mutable std::mutex mutex_;
  std::map<std::string, Known> known_;
};

}  // namespace tensor::detail
