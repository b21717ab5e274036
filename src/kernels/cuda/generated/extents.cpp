#include "src/kernels/cuda/generated/extents.h"

#include <algorithm>
#include <cstring>

#include "src/core/rounding.h"
#include "src/kernels/cuda/generated/expression.h"
#include "src/kernels/cuda/templates/divisor.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

bool is_long(std::int64_t value) { return std::abs(value) > INT32_MAX; }

}  // namespace

void Extents::declare(std::string_view type, const std::string& name) {
  members_ += "  " + std::string(type) + " " + name + ";\n";
}

template <class T>
void Extents::append(const T& value) {
  bytes_.resize(static_cast<std::size_t>(
      round_up(static_cast<std::int64_t>(bytes_.size()), std::int64_t{alignof(T)})));
  alignment_ = std::max(alignment_, alignof(T));
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
}

void Extents::constant(const std::string& name, std::int64_t value) {
  members_ += constant_text(name.c_str(), value);
}
void Extents::flag(const std::string& name, bool value) {
  members_ += flag_text(name.c_str(), value);
}
void Extents::function(const std::string& head, const std::string& result) {
  members_ += std::string(are_any_ ? "  " : "  static ") + head + (are_any_ ? " const" : "") +
              " { return " + result + "; }\n";
}

void Extents::number(const std::string& name, std::int64_t value) {
  if (!are_any_) return constant(name, value);
  declare(is_long(value) ? "long long" : "int", name);
  is_long(value) ? append(static_cast<long long>(value)) : append(static_cast<int>(value));
}
void Extents::choice(const std::string& name, bool value) {
  if (!are_any_) return flag(name, value);
  declare("bool", name);
  append(value);
}
void Extents::divisor(const std::string& name, std::int64_t value) {
  if (!are_any_) return constant(name, value);
  if (value < 1 || is_long(value)) internal_error("Extents", "a divisor of ", value);
  declare("Divisor", name);
  append(device::Divisor::of(static_cast<int>(value)));
}
void Extents::numbers(const std::string& name, const Pair& pair, const char* h, const char* w) {
  number(name + h, pair.h);
  number(name + w, pair.w);
}
void Extents::divisors(const std::string& name, const Pair& pair, const char* h, const char* w) {
  divisor(name + h, pair.h);
  divisor(name + w, pair.w);
}

std::string Extents::term(std::int64_t value) {
  if (!are_any_) return value < 0 ? "(" + std::to_string(value) + ")" : std::to_string(value);
  const std::string name = fresh();
  number(name, value);
  return object_ + "." + name;
}
std::string Extents::real(double value) {
  if (!are_any_) return literal(value, f32);
  const std::string name = fresh();
  declare("float", name);
  append(static_cast<float>(value));
  return object_ + "." + name;
}
std::string Extents::divided_by(const std::string& name, std::int64_t value) {
  if (!are_any_) return std::to_string(value) + "u";
  const auto known = std::find_if(divisors_.begin(), divisors_.end(),
                                  [&](const auto& divisor) { return divisor.first == name; });
  if (known == divisors_.end()) {
    divisor(name, value);
    divisors_.emplace_back(name, value);
  } else if (known->second != value) {
    internal_error("Extents", name, " is ", known->second, " and ", value);
  }
  return object_ + "." + name;
}

std::string Extents::struct_text() const {
  if (members_.empty()) return {};
  const std::string size =
      bytes_.empty()
          ? ""
          : "static_assert(sizeof(" + type_ + ") == " + std::to_string(argument().size()) + ");\n";
  return "struct " + type_ + " {\n" + members_ + "};\n" + size;
}
std::string Extents::parameter() const {
  return bytes_.empty() ? "" : "const __grid_constant__ " + type_ + " " + object_;
}
std::string Extents::last_parameter() const {
  return bytes_.empty() ? "" : ",\n    " + parameter();
}
std::string Extents::object_text() const {
  return bytes_.empty() ? "  constexpr " + type_ + " " + object_ + "{};\n" : "";
}
std::string Extents::member_text() const {
  return are_any_ ? "  const " + type_ + "& " + object_ + ";\n" : "";
}
std::string Extents::member_value(bool others_follow) const {
  return !are_any_ ? "" : others_follow ? object_ + ", " : object_;
}

std::vector<std::byte> Extents::argument() const {
  std::vector<std::byte> bytes = bytes_;
  bytes.resize(static_cast<std::size_t>(
      round_up(static_cast<std::int64_t>(bytes.size()), static_cast<std::int64_t>(alignment_))));
  return bytes;
}
void Extents::add_argument(std::vector<Argument>& arguments) const {
  if (!bytes_.empty()) arguments.emplace_back(argument());
}

}  // namespace tensor::cuda
