#include "src/io/json_reader.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "src/io/source.h"
#include "tensor/error.h"

namespace tensor {
namespace {

// A character pointer that tells how far the parser has read, which its events do not.
struct TrackedIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* position = nullptr;
  const char** furthest = nullptr;

  reference operator*() const { return *position; }
  TrackedIterator& operator++() {
    *furthest = ++position;
    return *this;
  }
  TrackedIterator operator++(int) {
    const TrackedIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const TrackedIterator& other) const { return position == other.position; }
};

// What the parser of nlohmann-json calls; returning true means "go on".
class Handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(std::string_view text, std::string_view name, JsonEvents& events)
      : text_(text), name_(name), events_(events), position_(text.data()) {}

  void run() {
    const TrackedIterator first{text_.data(), &position_};
    const TrackedIterator last{text_.data() + text_.size(), &position_};
    nlohmann::json::sax_parse(first, last, this);
  }

  bool null() override { return scalar_value({}); }
  bool boolean(bool value) override { return scalar_value(value); }
  bool number_integer(number_integer_t value) override { return scalar_value(std::int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return scalar_value(static_cast<double>(value));
    return scalar_value(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return scalar_value(value); }
  bool string(string_t& value) override { return scalar_value(std::move(value)); }
  bool binary(binary_t&) override { internal_error("json", "binary data in text"); }

  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second)
      fail(name_, "line ", line(), ": the key ", in_quotes(value), " appears twice in one object");
    events_.key(std::move(value));
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...", with the last token
    // in it.
    std::string_view message = error.what();
    message.remove_prefix(std::min(message.find("] ") + 2, message.size()));
    constexpr std::string_view kAt = "parse error at ";
    if (message.starts_with(kAt))
      fail(name_, "not valid JSON: ", shown(message.substr(kAt.size())));
    fail(name_, "not valid JSON: line ", line(), ": ", shown(message));
  }

 private:
  bool scalar_value(JsonScalar value) {
    events_.scalar(std::move(value));
    return true;
  }
  bool open(bool object) {
    if (keys_.size() == kMaxJsonDepth)
      fail(name_, "line ", line(), ": nested deeper than ", kMaxJsonDepth, " levels");
    keys_.emplace_back();
    events_.begin(object);
    return true;
  }
  bool close() {
    keys_.pop_back();
    events_.end();
    return true;
  }
  std::ptrdiff_t line() const { return 1 + std::count(text_.data(), position_, '\n'); }
  static std::string shown(std::string_view message) {
    constexpr std::size_t kLongest = 240;
    std::string result;
    for (const char c : message.substr(0, kLongest)) result += c >= 0x20 && c < 0x7f ? c : '?';
    return message.size() > kLongest ? result + "..." : result;
  }

  std::string_view text_;
  std::string_view name_;
  JsonEvents& events_;
  const char* position_;
  std::vector<std::set<std::string>> keys_;  // of every open object (none for an array)
};

}  // namespace

void read_json(std::string_view text, std::string_view name, JsonEvents& events) {
  // The parser takes a zero byte for the end and never looks at what follows it.
  if (const std::size_t zero = text.find('\0'); zero != text.npos)
    fail(name, "not valid JSON: line ",
         1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(zero), '\n'),
         ": a zero byte");
  Handler(text, name, events).run();
}

std::string json_string(const std::string& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(path, "cannot be written: the name or metadata ", in_quotes(text), " is not UTF-8");
  }
}

}  // namespace tensor
