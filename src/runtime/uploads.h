// Uploads: constants on their way to a device, in the forms that kernels want.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/trace/derived.h"

namespace tensor::detail {

/// Those that are on the device already, derived for another program, are shared; others are packed
/// and copied there, many into one block, because drivers give memory in large pages.
class Uploads {
 public:
  using Pack = std::function<Tensor(const std::vector<Tensor>&)>;

  Uploads(const Graph& graph, Device device);
  /// `to`, which stays where it is until finish(), gets what `pack` makes of the constants; `form`
  /// says what that is.
  void add(const std::string& form, std::vector<Tensor> constants, const Pack& pack, Tensor& to);
  /// All of them are there afterwards.
  void finish();

 private:
  struct Upload {
    DerivedConstants::Derivation derivation;
    Tensor packed;  // on the host
    std::int64_t place;
    Tensor* to;
  };
  void flush();

  const Graph& graph_;
  const Device device_;
  std::string where_;  // "on cuda:0 "
  std::vector<Upload> waiting_;
  std::int64_t bytes_ = 0;  // of those that wait
};

}  // namespace tensor::detail
