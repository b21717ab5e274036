// A strict reader of JSON text that reports what it reads, value by value. It refuses duplicate
// keys, depth over 64, trailing text and invalid UTF-8, and keeps nothing itself: config files and
// safetensors headers both use it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace tensor {

/// null, true or false, a whole number that fits, any other number, a string.
using JsonScalar = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void scalar(JsonScalar value) = 0;
  virtual void key(std::string name) = 0;
  virtual void begin(bool object) = 0;  ///< an object, else an array
  virtual void end() = 0;
};

inline constexpr int kMaxJsonDepth = 64;

/// Reads `text`, called `name` in messages. UserError on text that is not strict JSON; what
/// `events` throws passes.
void read_json(std::string_view text, std::string_view name, JsonEvents& events);

/// A name or metadata as JSON writes it. UserError naming the file `path` when it is not UTF-8.
std::string json_string(const std::string& path, const std::string& text);

}  // namespace tensor
