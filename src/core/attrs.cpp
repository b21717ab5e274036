#include "tensor/attrs.h"

#include <algorithm>
#include <charconv>
#include <ostream>
#include <string>

#include "tensor/error.h"

namespace tensor {
namespace {

// As streams print it, with more digits where those are not all: passes, caches and logs tell
// operators apart by these texts.
std::string text_of(double value) {
  char text[32];
  char* end = std::to_chars(text, std::end(text), value, std::chars_format::general, 6).ptr;
  double read = 0;
  std::from_chars(text, end, read);
  if (read != value) end = std::to_chars(text, std::end(text), value).ptr;
  return {text, end};
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const AttrValue& value) {
  std::visit(
      [&]<class V>(const V& v) {
        if constexpr (std::is_same_v<V, std::monostate>)
          out << "none";
        else if constexpr (std::is_same_v<V, bool>)
          out << (v ? "true" : "false");
        else if constexpr (std::is_same_v<V, std::string>)
          out << '"' << v << '"';
        else if constexpr (std::is_same_v<V, double>)
          out << text_of(v);
        else if constexpr (std::is_same_v<V, Ints>) {
          out << '[';
          for (std::size_t i = 0; i < v.size(); ++i)
            out << (i > 0 ? ", " : "") << std::to_string(v[i]);
          out << ']';
        } else
          out << std::to_string(v);
      },
      value.get());
  return out;
}

namespace {

[[noreturn]] void wrong_type(std::string_view name, const AttrValue& value, std::string_view need) {
  fail("attribute", name, " is ", value, ", need ", need);
}

[[noreturn]] void missing(std::string_view name) {
  fail("attribute", name, " is missing and has no default");
}

}  // namespace

Attrs::Attrs(std::initializer_list<Entry> entries) {
  if (entries.size() > 0) entries_ = std::make_shared<const std::vector<Entry>>(entries);
}

const std::vector<Attrs::Entry>& Attrs::entries() const {
  static const std::vector<Entry> none;
  return entries_ ? *entries_ : none;
}

const AttrValue* Attrs::find(std::string_view name) const {
  const auto& all = entries();
  const auto entry = std::ranges::find(all, name, &Entry::first);
  return entry == all.end() || entry->second.is_none() ? nullptr : &entry->second;
}
bool Attrs::has(std::string_view name) const { return find(name) != nullptr; }

void Attrs::set(std::string name, AttrValue value) {
  std::vector<Entry> changed = entries();
  const auto entry = std::ranges::find(changed, name, &Entry::first);
  if (entry == changed.end())
    changed.emplace_back(std::move(name), std::move(value));
  else
    entry->second = std::move(value);
  entries_ = std::make_shared<const std::vector<Entry>>(std::move(changed));
}

bool Attrs::flag(std::string_view name) const {
  const AttrValue* value = find(name);
  if (!value) missing(name);
  if (const auto* flag = std::get_if<bool>(&value->get())) return *flag;
  wrong_type(name, *value, "true or false");
}
bool Attrs::flag(std::string_view name, bool fallback) const {
  return has(name) ? flag(name) : fallback;
}

std::int64_t Attrs::integer(std::string_view name) const {
  const AttrValue* value = find(name);
  if (!value) missing(name);
  if (const auto* integer = std::get_if<std::int64_t>(&value->get())) return *integer;
  wrong_type(name, *value, "an integer");
}
std::int64_t Attrs::integer(std::string_view name, std::int64_t fallback) const {
  return has(name) ? integer(name) : fallback;
}

double Attrs::number(std::string_view name) const {
  const AttrValue* value = find(name);
  if (!value) missing(name);
  if (const auto* integer = std::get_if<std::int64_t>(&value->get()))
    return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value->get())) return *number;
  wrong_type(name, *value, "a number");
}
double Attrs::number(std::string_view name, double fallback) const {
  return has(name) ? number(name) : fallback;
}

std::string Attrs::text(std::string_view name) const {
  const AttrValue* value = find(name);
  if (!value) missing(name);
  if (const auto* text = std::get_if<std::string>(&value->get())) return *text;
  wrong_type(name, *value, "a text");
}
std::string Attrs::text(std::string_view name, std::string_view fallback) const {
  return has(name) ? text(name) : std::string(fallback);
}

Ints Attrs::ints(std::string_view name) const {
  const AttrValue* value = find(name);
  if (!value) missing(name);
  if (const auto* integer = std::get_if<std::int64_t>(&value->get())) return {*integer};
  if (const auto* list = std::get_if<Ints>(&value->get())) return *list;
  wrong_type(name, *value, "a list of integers");
}
Ints Attrs::ints(std::string_view name, Ints fallback) const {
  return has(name) ? ints(name) : fallback;
}

std::ostream& operator<<(std::ostream& out, const Attrs& attrs) {
  bool first = true;
  for (const auto& [name, value] : attrs.entries()) {
    out << (first ? "" : ", ") << name << '=' << value;
    first = false;
  }
  return out;
}

}  // namespace tensor
