#include "src/io/npy_header.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/io/foreign.h"
#include "src/io/source.h"
#include "tensor/error.h"

namespace tensor {
namespace {

// Reads the part of Python's literals that NumPy writes here: strings, True, False, whole numbers,
// tuples of them.
class LiteralReader {
 public:
  LiteralReader(std::string_view text, const std::string& where) : rest_(text), where_(where) {}

  bool take(char wanted) {
    skip_space();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void need(char wanted) {
    if (!take(wanted)) fail_here(std::string("'") + wanted + "'");
  }

  bool at_end() {
    skip_space();
    return rest_.empty();
  }

  std::string_view string() {
    const char quote = take('"') ? '"' : '\'';
    if (quote == '\'' && !take('\'')) fail_here("a string");
    const std::size_t end = rest_.find(quote);
    if (end == std::string_view::npos) fail_here("the end of a string");
    const std::string_view result = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return result;
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"})
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    fail_here("True or False");
  }

  Shape shape() {
    Shape result;
    need('(');
    while (!take(')')) {
      if (result.rank() == kMaxRank)
        refuse_member(where_, "has more than ", kMaxRank,
                      " axes, which is the most that a tensor can have");
      result.push_back(whole_number());
      if (take(',')) continue;
      need(')');
      // "(3)" is a number in Python, not a tuple.
      if (result.rank() == 1) fail(where_, "the header: got a shape that is no tuple");
      break;
    }
    return result;
  }

  [[noreturn]] void fail_here(const std::string& needed) const {
    fail(where_, "the header: got ", rest_.empty() ? "its end" : in_quotes(rest_.substr(0, 20)),
         ", need ", needed);
  }

 private:
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size()));
  }

  std::int64_t whole_number() {
    skip_space();
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc() || number < 0) fail_here("a whole number from 0 to 2^63 - 1");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    if (rest_.starts_with('L')) rest_.remove_prefix(1);  // as Python 2 wrote them
    return number;
  }

  std::string_view rest_;
  const std::string& where_;
};

struct Held {
  std::string_view code;
  DType dtype;
};
constexpr Held kNpyTypes[] = {{"b1", boolean}, {"u1", u8},  {"i1", i8},  {"i2", i16}, {"i4", i32},
                              {"i8", i64},     {"f2", f16}, {"f4", f32}, {"f8", f64}};

struct Widened {
  std::string_view code;
  Narrow type;
};
constexpr Widened kWidened[] = {{"u2", Narrow::u16}, {"u4", Narrow::u32}, {"u8", Narrow::u64}};

// What NumPy calls a type that this library does not hold.
std::string foreign_name(std::string_view code) {
  int bytes = 0;
  std::from_chars(code.data() + 1, code.data() + code.size(), bytes);
  const std::string bits = bytes > 0 && bytes <= 64 ? std::to_string(8 * bytes) : "";
  switch (code.front()) {
    case 'u':
      return "uint" + bits;
    case 'i':
      return "int" + bits;
    case 'f':
      return "float" + bits;
    case 'c':
      return "complex" + bits;
    case 'O':
      return "Python objects";
    case 'S':
    case 'a':
      return "byte strings";
    case 'U':
      return "strings";
    case 'V':
      return "raw memory";
    case 'M':
      return "dates";
    case 'm':
      return "time spans";
    default:
      return "an unknown type";
  }
}

void read_descr(std::string_view descr, const std::string& where, NpyHeader& header) {
  if (descr.size() < 2 || std::string_view("<>|=").find(descr.front()) == std::string_view::npos)
    fail(where, "the header: got the descr ", in_quotes(descr), ", need one such as '<f4'");
  const std::string_view code = descr.substr(1);
  for (const Held& held : kNpyTypes)
    if (held.code == code) {
      header.type.dtype = held.dtype;
      header.swapped = descr.front() == '>';
      return;
    }
  for (const Widened& row : kWidened)
    if (row.code == code) {
      header.narrow = row.type;
      header.type.dtype = widened_dtype(row.type);
      header.swapped = descr.front() == '>';
      return;
    }
  refuse_member(
      where, "holds ", foreign_name(code), " (descr ", in_quotes(descr),
      "), which this library does not: convert it with NumPy's astype to bool, int8 to int64, "
      "uint8 to uint64 or float16 to float64 before saving");
}

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& where) {
  NpyHeader header;
  bool descr = false, order = false, shape = false;
  LiteralReader reader(text, where);
  const auto once = [&](bool& seen, std::string_view key) {
    if (seen) fail(where, "the header: the key ", key, " appears twice");
    seen = true;
  };
  reader.need('{');
  while (!reader.take('}')) {
    const std::string_view key = reader.string();
    reader.need(':');
    if (key == "descr") {
      once(descr, key);
      if (reader.take('['))
        refuse_member(
            where,
            "holds records of several fields, which this library does not: save each field by "
            "itself");
      read_descr(reader.string(), where, header);
    } else if (key == "fortran_order") {
      once(order, key);
      header.fortran_order = reader.boolean();
    } else if (key == "shape") {
      once(shape, key);
      header.type.shape = reader.shape();
    } else {
      fail(where, "the header: got the key ", in_quotes(key),
           ", need exactly descr, fortran_order and shape");
    }
    if (reader.take(',')) continue;
    reader.need('}');
    break;
  }
  if (!reader.at_end()) reader.fail_here("its end");
  if (!descr || !order || !shape)
    fail(where, "the header: the key ",
         !descr   ? "descr"
         : !order ? "fortran_order"
                  : "shape",
         " is missing");
  return header;
}

std::string npy_prefix(const TensorType& type, const std::string& where) {
  std::string_view code;
  for (const Held& held : kNpyTypes)
    if (held.dtype == type.dtype) code = held.code;
  if (code.empty()) fail(where, "NumPy has no bf16: convert the tensor with astype(f32) first");
  std::string text = "{'descr': '";
  text += item_size(type.dtype) == 1 ? '|' : '<';
  text += code;
  text += "', 'fortran_order': False, 'shape': (";
  for (int axis = 0; axis < type.shape.rank(); ++axis)
    text += (axis > 0 ? ", " : "") + std::to_string(type.shape[axis]);
  text += type.shape.rank() == 1 ? ",), }" : "), }";

  constexpr std::size_t kStart = 10,
                        kAlignment = 64;  // magic, version and length; NumPy aligns the elements so
  text.append(kAlignment - 1 - (kStart + text.size()) % kAlignment, ' ');
  text += '\n';
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix += static_cast<char>(text.size() & 0xff);
  prefix += static_cast<char>(text.size() >> 8);
  return prefix + text;
}

}  // namespace tensor
