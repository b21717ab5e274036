// The constants of a plan: each once, though one size has three matrices where another has them
// side by side as one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tensor/handle.h"
#include "tensor/tensor_map.h"

namespace tensor::detail {

/// Constants in memory order by name (content_name). One that is a slice of another is kept as
/// that.
class PlanConstants {
 public:
  struct Part {
    std::string of;
    std::int64_t axis = 0, begin = 0, extent = 0;
  };

  PlanConstants() = default;
  /// Those that a file holds.
  explicit PlanConstants(std::map<std::string, Tensor> stored) : all_(std::move(stored)) {}
  /// And a slice of one of them. UserError, "where: ...", unless it is one.
  void add_part(const std::string& where, const std::string& name, const Part& part);

  /// The name of a constant of these elements, from now on if there was none.
  std::string add(const Tensor& x);
  const Tensor* find(const std::string& name) const;
  /// What a file has to hold.
  std::map<std::string, Tensor> stored() const;
  const std::map<std::string, Part>& parts() const { return parts_; }

 private:
  void absorb(const std::string& part, const std::string& whole, const Part& place);

  std::map<std::string, Tensor> all_;
  std::map<std::string, Part> parts_;  // of stored ones; views of them are in all_, too
};

}  // namespace tensor::detail
