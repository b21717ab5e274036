// Json: a read-only JSON value with checked access, for config files. Strict: duplicate keys, depth
// over 64, trailing text and invalid UTF-8 are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/attrs.h"

namespace tensor {

/// Every getter throws UserError that names the file and the path of the value ("config.json:
/// backbone.depths[2] ...").
class TENSOR_API Json {
 public:
  /// A value takes some 150 bytes in memory but may take 2 in a text ("1,"): without a limit on
  /// their number a small hostile text would fill the memory.
  static constexpr std::size_t kMostValues = std::size_t{1} << 18;

  /// Parses text; `name` is how messages call it. UserError on what is refused.
  static Json parse(std::string_view text, std::string name, std::size_t most_values = kMostValues);
  /// Reads and parses a file of at most `max_bytes` (UserError on a larger one).
  static Json load(const std::string& path, std::int64_t max_bytes = 64 << 20);

  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_number() const;
  bool is_integer() const;
  bool is_bool() const;
  bool is_null() const;

  std::size_t size() const;               ///< of an array or object
  std::vector<std::string> keys() const;  ///< of an object, in the file's order
  bool has(std::string_view key) const;   ///< present and not null
  Json operator[](std::string_view key) const;
  Json operator[](std::size_t index) const;

  bool boolean() const;
  std::int64_t integer() const;  ///< a number without fraction that fits
  double number() const;
  std::string text() const;
  Ints ints() const;  ///< an array of integers
  std::vector<double> numbers() const;

  // Object members with a default for absent or null.
  bool boolean(std::string_view key, bool fallback) const;
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;
  double number(std::string_view key, double fallback) const;
  std::string text(std::string_view key, std::string_view fallback) const;

  std::string path() const;  ///< "config.json: backbone.depths[2]", for messages
  /// The value as an operator attribute: lists of lists of integers become one flat list.
  AttrValue attribute() const;

 private:
  struct Node;
  struct Document;
  explicit Json(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  template <class T>
  bool holds() const;
  [[noreturn]] void mismatch(std::string_view needed) const;
  Json child(const Node* node) const;
  void flatten(Ints& out) const;

  std::shared_ptr<const Node> node_;  // keeps the whole document alive
};

}  // namespace tensor
