// Json: the values of a document, kept flat, each knowing its parent so that messages can name its
// path.
#include "tensor/json.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "src/core/closest.h"
#include "src/io/json_reader.h"
#include "src/io/source.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor {

enum class JsonForm : std::uint8_t { scalar, array, object };

struct Json::Node {
  const Node* parent = nullptr;
  std::string key;        // in an object; of the root: the document's name
  std::size_t index = 0;  // in an array
  JsonForm form = JsonForm::scalar;
  JsonScalar scalar;
  std::vector<const Node*> children;  // in the file's order
  std::vector<const Node*> sorted;    // of an object, by key

  const Node* find(std::string_view name) const {
    const auto at = std::lower_bound(
        sorted.begin(), sorted.end(), name,
        [](const Node* child, std::string_view wanted) { return child->key < wanted; });
    return at != sorted.end() && (*at)->key == name ? *at : nullptr;
  }

  std::string path() const {
    if (!parent) return key;
    std::string tail;
    for (const Node* node = this; node->parent; node = node->parent) {
      if (node->parent->form == JsonForm::array) {
        tail = '[' + std::to_string(node->index) + ']' + tail;
      } else {
        const std::string shown = in_quotes(node->key);
        const bool plain =
            node->key.find('.') == std::string::npos && shown.size() == node->key.size() + 2;
        tail = '.' + (plain ? node->key : shown) + tail;
      }
    }
    const Node* root = this;
    while (root->parent) root = root->parent;
    return root->key + ": " + (tail.front() == '.' ? tail.substr(1) : tail);
  }

  // What a message says was found.
  std::string shown() const {
    if (form == JsonForm::array) return "an array of " + std::to_string(children.size());
    if (form == JsonForm::object) return "an object";
    struct Visitor {
      std::string operator()(std::monostate) const { return "null"; }
      std::string operator()(bool value) const { return value ? "true" : "false"; }
      std::string operator()(std::int64_t value) const { return std::to_string(value); }
      std::string operator()(double value) const {
        TextWriter text;
        text << value;
        return text.str();
      }
      std::string operator()(const std::string& value) const { return in_quotes(value); }
    };
    return std::visit(Visitor{}, scalar);
  }
};

namespace {
// A whole number within 64 bits, written with or without a fraction (2 or 2.0).
std::optional<std::int64_t> whole(const JsonScalar& scalar) {
  if (const auto* integer = std::get_if<std::int64_t>(&scalar)) return *integer;
  const auto* number = std::get_if<double>(&scalar);
  if (!number || std::trunc(*number) != *number || std::abs(*number) >= 0x1p63) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}
}  // namespace

struct Json::Document final : JsonEvents {
  std::deque<Node> nodes;   // stable addresses
  std::vector<Node*> open;  // arrays and objects not yet ended, from the root
  std::string pending;      // the key of the next value

  void scalar(JsonScalar value) override { add(JsonForm::scalar).scalar = std::move(value); }
  void key(std::string name) override { pending = std::move(name); }
  void begin(bool object) override {
    open.push_back(&add(object ? JsonForm::object : JsonForm::array));
  }
  void end() override {
    Node& node = *open.back();
    open.pop_back();
    if (node.form != JsonForm::object) return;
    node.sorted = node.children;
    std::sort(node.sorted.begin(), node.sorted.end(),
              [](const Node* a, const Node* b) { return a->key < b->key; });
  }

  Node& add(JsonForm form) {
    if (nodes.size() == most_values)
      fail(name, "holds more than ", most_values, " values, too many for what it is read as");
    Node& node = nodes.emplace_back();
    node.form = form;
    if (open.empty()) {
      node.key = name;
      return node;
    }
    Node& parent = *open.back();
    node.parent = &parent;
    if (parent.form == JsonForm::object)
      node.key = std::exchange(pending, {});
    else
      node.index = parent.children.size();
    parent.children.push_back(&node);
    return node;
  }

  std::string name;
  std::size_t most_values = kMostValues;
};

Json Json::parse(std::string_view text, std::string name, std::size_t most_values) {
  auto document = std::make_shared<Document>();
  document->name = std::move(name);
  document->most_values = most_values;
  read_json(text, document->name, *document);
  return Json(std::shared_ptr<const Node>(document, &document->nodes.front()));
}

Json Json::load(const std::string& path, std::int64_t max_bytes) {
  const Source file = Source::open(path);
  if (file.size() > max_bytes)
    fail(path, "has ", file.size(), " bytes, more than the ", max_bytes,
         " that a JSON file may have");
  return parse(file.read_text(0, file.size()), path);
}

bool Json::is_object() const { return node_->form == JsonForm::object; }
bool Json::is_array() const { return node_->form == JsonForm::array; }
bool Json::is_string() const { return holds<std::string>(); }
bool Json::is_number() const { return holds<std::int64_t>() || holds<double>(); }
bool Json::is_integer() const { return node_->form == JsonForm::scalar && whole(node_->scalar); }
bool Json::is_bool() const { return holds<bool>(); }
bool Json::is_null() const { return holds<std::monostate>(); }

template <class T>
bool Json::holds() const {
  return node_->form == JsonForm::scalar && std::holds_alternative<T>(node_->scalar);
}

void Json::mismatch(std::string_view needed) const {
  fail(path(), "got ", node_->shown(), ", need ", needed);
}

Json Json::child(const Node* node) const { return Json(std::shared_ptr<const Node>(node_, node)); }

std::size_t Json::size() const {
  if (node_->form == JsonForm::scalar) mismatch("an array or an object");
  return node_->children.size();
}

std::vector<std::string> Json::keys() const {
  if (!is_object()) mismatch("an object");
  std::vector<std::string> result;
  for (const Node* node : node_->children) result.push_back(node->key);
  return result;
}

bool Json::has(std::string_view key) const {
  if (!is_object()) mismatch("an object");
  const Node* node = node_->find(key);
  return node && !child(node).is_null();
}

Json Json::operator[](std::string_view key) const {
  if (!is_object()) mismatch("an object with the key " + in_quotes(key));
  if (const Node* node = node_->find(key)) return child(node);
  constexpr std::size_t kMostCompared =
      1000;  // the comparison is slow; nobody misspells one of 1000 keys
  std::vector<std::string_view> names;
  for (const Node* node : node_->children)
    if (names.size() < kMostCompared) names.push_back(node->key);
  fail(path(), "the key ", in_quotes(key), " is missing", did_you_mean(key, names));
}

Json Json::operator[](std::size_t index) const {
  if (!is_array()) mismatch("an array");
  if (index >= node_->children.size())
    fail(path(), "got ", node_->shown(), ", need an element ", index);
  return child(node_->children[index]);
}

bool Json::boolean() const {
  if (!is_bool()) mismatch("true or false");
  return std::get<bool>(node_->scalar);
}

std::int64_t Json::integer() const {
  if (!is_integer()) mismatch("a whole number");
  return *whole(node_->scalar);
}

double Json::number() const {
  if (!is_number()) mismatch("a number");
  if (const auto* integer = std::get_if<std::int64_t>(&node_->scalar))
    return static_cast<double>(*integer);
  return std::get<double>(node_->scalar);
}

std::string Json::text() const {
  if (!is_string()) mismatch("a string");
  return std::get<std::string>(node_->scalar);
}

Ints Json::ints() const {
  if (!is_array()) mismatch("an array of whole numbers");
  Ints result;
  for (const Node* node : node_->children) result.push_back(child(node).integer());
  return result;
}

std::vector<double> Json::numbers() const {
  if (!is_array()) mismatch("an array of numbers");
  std::vector<double> result;
  for (const Node* node : node_->children) result.push_back(child(node).number());
  return result;
}

bool Json::boolean(std::string_view key, bool fallback) const {
  return has(key) ? (*this)[key].boolean() : fallback;
}
std::int64_t Json::integer(std::string_view key, std::int64_t fallback) const {
  return has(key) ? (*this)[key].integer() : fallback;
}
double Json::number(std::string_view key, double fallback) const {
  return has(key) ? (*this)[key].number() : fallback;
}
std::string Json::text(std::string_view key, std::string_view fallback) const {
  return has(key) ? (*this)[key].text() : std::string(fallback);
}

std::string Json::path() const { return node_->path(); }

AttrValue Json::attribute() const {
  if (is_object()) mismatch("a value or an array of whole numbers");
  if (is_array()) {
    Ints flat;
    flatten(flat);
    return flat;
  }
  return std::visit(
      []<class T>(const T& value) {
        if constexpr (std::is_same_v<T, std::monostate>)
          return AttrValue();
        else
          return AttrValue(value);
      },
      node_->scalar);
}

void Json::flatten(Ints& out) const {
  if (!is_array()) {
    out.push_back(integer());
    return;
  }
  for (const Node* node : node_->children) child(node).flatten(out);  // at most kMaxJsonDepth deep
}

}  // namespace tensor
