// Key: what tells one thing from another, as bytes, for maps in memory. They are written many times
// faster than text, which files and people get.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "tensor/attrs.h"
#include "tensor/handle.h"

namespace tensor {

/// Parts without a fixed length are written behind it, so that lists of parts of the same kinds
/// have one key only where all parts are equal.
class Key {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>) Key& operator<<(
      T part) {
    return add(&part, sizeof part);
  }
  Key& operator<<(std::string_view text) { return add_list(text.data(), text.size()); }
  Key& operator<<(const std::string& text) { return *this << std::string_view(text); }
  Key& operator<<(const char* text) { return *this << std::string_view(text); }
  Key& operator<<(const Dims& dims) {
    return add_list(dims.begin(), static_cast<std::size_t>(dims.rank()));
  }
  Key& operator<<(const TensorType& type) { return *this << type.dtype << type.shape; }
  Key& operator<<(const Attrs& attrs) {
    *this << attrs.entries().size();
    for (const auto& [name, value] : attrs.entries()) *this << name << value;
    return *this;
  }
  Key& operator<<(const AttrValue& value) {
    *this << value.get().index();
    std::visit(
        [this]<class V>(const V& v) {
          if constexpr (std::is_same_v<V, Ints>)
            add_list(v.data(), v.size());
          else if constexpr (!std::is_same_v<V, std::monostate>)
            *this << v;
        },
        value.get());
    return *this;
  }

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  Key& add(const void* bytes, std::size_t count) {
    bytes_.append(static_cast<const char*>(bytes), count);
    return *this;
  }
  template <class T>
  Key& add_list(const T* parts, std::size_t count) {
    return (*this << count).add(parts, count * sizeof(T));
  }

  std::string bytes_;
};

}  // namespace tensor
