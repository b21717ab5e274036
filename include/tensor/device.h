// Device: where a tensor's elements lie, and where a compiled function runs.
#pragma once

#include <concepts>
#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>

#include "tensor/export.h"

namespace tensor {

/// "cpu", "cuda" (the first GPU) or "cuda:1". UserError on anything else. Whether there is such a
/// GPU is seen by what uses it: x.to(), empty(), compile() (UserError if there is none).
class TENSOR_API Device {
 public:
  enum class Kind { cpu, cuda };

  Device() = default;
  Device(std::string_view text);
  Device(const char* text) : Device(std::string_view(text)) {}
  Device(const std::string& text) : Device(std::string_view(text)) {}
  Device(std::nullptr_t) = delete;
  template <std::integral T>
  Device(T) = delete;  // 0 would be a null pointer; the second GPU is "cuda:1"

  Kind kind() const { return kind_; }
  bool is_cuda() const { return kind_ == Kind::cuda; }
  int index() const { return index_; }
  friend bool operator==(const Device&, const Device&) = default;

 private:
  Kind kind_ = Kind::cpu;
  int index_ = 0;
};
/// Prints "cpu" or "cuda:0".
TENSOR_API std::ostream& operator<<(std::ostream& out, const Device& device);

}  // namespace tensor
