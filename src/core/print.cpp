// Printing a tensor as NumPy 2.4 prints an array with str(). (NumPys before 2.3 use exponents from
// 1e8 on, for scalars from 1e16 on, in every type.)
#include "tensor/print.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "src/core/decimal.h"
#include "src/core/dispatch.h"
#include "src/core/view.h"

namespace tensor {
namespace {

std::mutex options_mutex;
PrintOptions current_options;

using Words = std::vector<std::string>;  // the elements as text, all of one width

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::size_t longest(const Words& words) {
  std::size_t width = 0;
  for (const std::string& word : words) width = std::max(width, word.size());
  return width;
}

// ---- Floating-point numbers.

// Numbers from here on have an exponent, in a tensor and alone: the types hold that many digits
// (bf16 is written as f16 is).
template <class T>
constexpr double kPlainLimit = sizeof(T) == 2   ? 1e3
                               : sizeof(T) == 4 ? 1e6
                                                : 1e8;
template <class T>
constexpr double kPlainLimitAlone = sizeof(T) == 8 ? 1e16 : kPlainLimit<T>;

struct Parts {
  std::string whole, fraction;  // before and behind the point
};

std::string without_trailing_zeros(std::string digits) {
  digits.erase(digits.find_last_not_of('0') + 1);
  return digits;
}

Parts plain_parts(const Decimal& x) {
  const std::string sign = x.negative ? "-" : "";
  if (x.exponent < 0)
    return {sign + '0', std::string(static_cast<std::size_t>(-x.exponent - 1), '0') + x.digits};
  std::string digits = x.digits;
  const auto point = static_cast<std::size_t>(x.exponent) + 1;
  if (digits.size() < point) digits.resize(point, '0');
  return {sign + digits.substr(0, point), digits.substr(point)};
}

// At most `precision` digits behind the point.
template <class T>
Parts plain_parts_of(T x, int precision) {
  Parts parts = plain_parts(shortest_decimal(x));
  if (parts.fraction.size() > static_cast<std::size_t>(precision)) {
    const std::string text = rounded_text(static_cast<double>(x), precision);
    const std::size_t point = std::min(text.find('.'), text.size());  // none without a fraction
    parts = {text.substr(0, point), text.substr(std::min(point + 1, text.size()))};
  }
  parts.fraction = without_trailing_zeros(parts.fraction);
  return parts;
}

std::string exponent_text(int exponent, std::size_t digits) {
  const std::string text = std::to_string(std::abs(exponent));
  return (exponent < 0 ? "e-" : "e+") + std::string(digits - std::min(digits, text.size()), '0') +
         text;
}

std::string mantissa_text(const Decimal& x) {
  return (x.negative ? "-" : "") + x.digits.substr(0, 1) + '.' + x.digits.substr(1);
}

template <class T>
Words plain_words(const std::vector<T>& finite, int precision) {
  std::vector<Parts> parts;
  std::size_t left = 0, right = 0;
  for (const T x : finite) {
    parts.push_back(plain_parts_of(x, precision));
    left = std::max(left, parts.back().whole.size());
    right = std::max(right, parts.back().fraction.size());
  }
  Words words;
  for (const Parts& part : parts)
    words.push_back(padded(part.whole, left) + '.' + part.fraction +
                    std::string(right - part.fraction.size(), ' '));
  return words;
}

template <class T>
Words exponent_words(const std::vector<T>& finite, int precision) {
  std::size_t count = 0, exponent_digits = 2, left = 1;
  std::vector<Decimal> shortest;
  for (const T x : finite) {
    Decimal decimal = shortest_decimal(x);
    shortest.push_back(decimal);
    if (decimal.digits.size() > static_cast<std::size_t>(precision) + 1)
      decimal = rounded_decimal(static_cast<double>(x), precision);
    count = std::max(count, without_trailing_zeros(decimal.digits.substr(1)).size());
    exponent_digits = std::max(exponent_digits, std::to_string(std::abs(decimal.exponent)).size());
    if (decimal.negative) left = 2;
  }
  Words words;
  for (std::size_t i = 0; i < finite.size(); ++i) {
    // Digits beyond those that are needed are the number's own, not zeros.
    const Decimal decimal =
        shortest[i].digits.size() == count + 1
            ? shortest[i]
            : rounded_decimal(static_cast<double>(finite[i]), static_cast<int>(count));
    const std::string mantissa = mantissa_text(decimal);
    words.push_back(padded(mantissa, left + 1 + count) +
                    exponent_text(decimal.exponent, exponent_digits));
  }
  return words;
}

// Whether numbers of such different or extreme sizes are written with exponents.
template <class T>
bool needs_exponents(const std::vector<T>& finite) {
  using C = Compute<T>;
  C largest = 0, smallest = 0;
  for (const T x : finite) {
    const C magnitude = std::fabs(static_cast<C>(x));
    if (magnitude == 0) continue;
    largest = std::max(largest, magnitude);
    smallest = smallest == 0 ? magnitude : std::min(smallest, magnitude);
  }
  if (largest == 0) return false;
  // NumPy computes in the type itself.
  return largest >= C(kPlainLimit<T>) || smallest < static_cast<C>(T(C(1e-4))) ||
         static_cast<C>(T(largest / smallest)) > C(1000);
}

template <class T>
Words floating_words(const std::vector<T>& values, int precision) {
  std::vector<T> finite;
  Words special;  // the others, in order
  for (const T x : values) {
    const auto value = static_cast<double>(x);
    if (std::isfinite(value))
      finite.push_back(x);
    else
      special.push_back(std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
  }
  const Words numbers =
      needs_exponents(finite) ? exponent_words(finite, precision) : plain_words(finite, precision);
  const std::size_t width = std::max(longest(numbers), longest(special));
  Words words;
  auto number = numbers.begin();
  auto other = special.begin();
  for (const T x : values)
    words.push_back(padded(std::isfinite(static_cast<double>(x)) ? *number++ : *other++, width));
  return words;
}

// A tensor without axes: all digits, and at least one behind the point.
template <class T>
std::string alone(T x) {
  const auto value = static_cast<double>(x), magnitude = std::fabs(value);
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  const Decimal decimal = shortest_decimal(x);
  if (value == 0 || (magnitude >= 1e-4 && magnitude < kPlainLimitAlone<T>)) {
    const Parts parts = plain_parts(decimal);
    return parts.whole + '.' + (parts.fraction.empty() ? "0" : parts.fraction);
  }
  std::string mantissa = mantissa_text(decimal);
  if (mantissa.back() == '.') mantissa.pop_back();
  return mantissa + exponent_text(decimal.exponent, 2);
}

// ---- Elements of any type.

template <class T>
std::string alone_text(T x) {
  if constexpr (std::is_same_v<T, bool>)
    return x ? "True" : "False";
  else if constexpr (std::is_integral_v<T>)
    return std::to_string(x);
  else
    return alone(x);
}

template <class T>
Words words_of(const std::vector<T>& values, int precision) {
  if constexpr (!std::is_integral_v<T>) {
    return floating_words(values, precision);
  } else {
    Words words;
    for (const T x : values) words.push_back(alone_text(x));
    // " True" is as wide as "False", also where there is no False.
    const std::size_t width = std::is_same_v<T, bool> ? 5 : longest(words);
    for (std::string& word : words) word = padded(word, width);
    return words;
  }
}

// ---- The brackets.

// The elements that are shown: all, or the first and last few along every axis.
struct Excerpt {
  Shape shape;
  bool summarised;
  std::int64_t edge_items;

  bool cuts(int axis) const { return summarised && shape[axis] > 2 * edge_items; }
  // Calls body(index) for the shown indices along an axis, and gap() where some are left out.
  template <class Body, class Gap>
  void along(int axis, const Body& body, const Gap& gap) const {
    for (std::int64_t i = 0; i < shape[axis]; ++i) {
      if (cuts(axis) && i == edge_items) {
        gap();
        i = shape[axis] - edge_items;
      }
      body(i);
    }
  }
};

template <class T>
void collect(const ConstView& x, const Excerpt& excerpt, int axis, std::int64_t offset,
             std::vector<T>& values) {
  if (axis == x.rank()) return values.push_back(x.as<T>()[offset]);
  excerpt.along(
      axis,
      [&](std::int64_t i) { collect(x, excerpt, axis + 1, offset + i * x.strides[axis], values); },
      [] {});
}

// Writes nested rows; `words` are taken one after the other.
class Writer {
 public:
  Writer(std::ostream& out, const Excerpt& excerpt, const Words& words, int line_width)
      : out_(out),
        excerpt_(excerpt),
        next_(words.begin()),
        line_width_(static_cast<std::size_t>(line_width)) {}

  void write(int axis) {
    out_ << '[';
    const int axes_left = excerpt_.shape.rank() - axis;
    if (axes_left == 1)
      write_row(axis);
    else
      write_rows(axis, std::string(static_cast<std::size_t>(axes_left - 1), '\n'));
    out_ << ']';
  }

 private:
  void write_rows(int axis, const std::string& separator) {
    const std::string indent(static_cast<std::size_t>(axis) + 1, ' ');
    bool first = true;
    const auto item = [&] {
      if (!first) out_ << separator << indent;
      first = false;
    };
    excerpt_.along(
        axis, [&](std::int64_t) { item(), write(axis + 1); }, [&] { item(), out_ << "..."; });
  }

  // A line has room for the closing brackets of all axes, unless a single word is too long for it.
  void write_row(int axis) {
    const std::string indent(static_cast<std::size_t>(axis) + 1, ' ');
    const std::size_t width = line_width_ - std::min(line_width_, indent.size());
    std::string line = indent;
    bool first_line = true;
    const auto put_line = [&] {
      out_ << (first_line ? line.substr(indent.size()) : '\n' + line);
      first_line = false;
    };
    const auto put = [&](const std::string& word) {
      if (line.size() > indent.size()) line += ' ';
      if (line.size() > indent.size() && line.size() + word.size() > width) {
        line.erase(line.find_last_not_of(' ') + 1);
        put_line();
        line = indent;
      }
      line += word;
    };
    excerpt_.along(
        axis, [&](std::int64_t) { put(*next_++); }, [&] { put("..."); });
    put_line();
  }

  std::ostream& out_;
  const Excerpt& excerpt_;
  Words::const_iterator next_;
  std::size_t line_width_;
};

}  // namespace

void set_print_options(const PrintOptions& options) {
  const auto check = [](const char* name, int value, int least) {
    if (value < least)
      fail("set_print_options", "got the ", name, " ", value, ", need at least ", least);
  };
  check("precision", options.precision, 0);
  check("line_width", options.line_width, 1);
  check("threshold", options.threshold, 0);
  check("edge_items", options.edge_items, 1);
  const std::lock_guard lock(options_mutex);
  current_options = options;
}

PrintOptions print_options() {
  const std::lock_guard lock(options_mutex);
  return current_options;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined";
  if (detail::impl(tensor).recorder) return out << tensor.type();  // traced: there are no values
  if (tensor.size() == 0) return out << "[]";
  const Tensor here = tensor.to(Device());
  const ConstView x = const_view(here);
  const PrintOptions how = print_options();
  const Excerpt excerpt{x.shape, tensor.size() > how.threshold, how.edge_items};
  dispatch(x.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    if (x.rank() == 0) {
      out << alone_text(*x.as<T>());
      return;
    }
    std::vector<T> values;
    collect(x, excerpt, 0, 0, values);
    Writer(out, excerpt, words_of(values, how.precision), how.line_width).write(0);
  });
  return out;
}

}  // namespace tensor
