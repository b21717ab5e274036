// Attrs: the named, non-tensor arguments of an operator (axis, eps, stride ...), as a graph node
// stores them.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/export.h"
#include "tensor/shape.h"

namespace tensor {

using Ints = std::vector<std::int64_t>;

/// None, a flag, a number, a text or a list of integers.
class AttrValue {
 public:
  AttrValue() = default;
  AttrValue(bool value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) AttrValue(T value) : value_(static_cast<std::int64_t>(value)) {}
  template <std::floating_point T>
  AttrValue(T value) : value_(static_cast<double>(value)) {}
  AttrValue(std::string value) : value_(std::move(value)) {}
  AttrValue(const char* value) : value_(std::string(value)) {}
  AttrValue(DType dtype) : value_(std::string(tensor::name(dtype))) {}
  AttrValue(Ints value) : value_(std::move(value)) {}
  AttrValue(const Dims& value) : value_(Ints(value.begin(), value.end())) {}

  using Variant = std::variant<std::monostate, bool, std::int64_t, double, std::string, Ints>;
  const Variant& get() const { return value_; }
  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  friend bool operator==(const AttrValue&, const AttrValue&) = default;

 private:
  Variant value_;
};

TENSOR_API std::ostream& operator<<(std::ostream& out, const AttrValue& value);

/// An ordered list of name = value, which copies share until one is changed. Every getter throws
/// UserError that names the attribute when it is absent (and has no default) or of another type;
/// None counts as absent. Integers are accepted where a number is wanted.
class TENSOR_API Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;
  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  bool has(std::string_view name) const;
  void set(std::string name, AttrValue value);

  bool flag(std::string_view name) const;
  bool flag(std::string_view name, bool fallback) const;
  std::int64_t integer(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  double number(std::string_view name) const;
  double number(std::string_view name, double fallback) const;
  std::string text(std::string_view name) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  /// A list; a single integer counts as a list of one.
  Ints ints(std::string_view name) const;
  Ints ints(std::string_view name, Ints fallback) const;
  Dims dims(std::string_view name) const { return Dims(ints(name)); }
  DType dtype(std::string_view name) const { return parse_dtype(text(name)); }

  const std::vector<Entry>& entries() const;
  friend bool operator==(const Attrs& a, const Attrs& b) {
    return a.entries_ == b.entries_ || a.entries() == b.entries();
  }

 private:
  const AttrValue* find(std::string_view name) const;
  std::shared_ptr<const std::vector<Entry>> entries_;  // null: none
};

/// Prints "axis=-1, keepdims=true".
TENSOR_API std::ostream& operator<<(std::ostream& out, const Attrs& attrs);

}  // namespace tensor
