// Streams for what files, messages and programs read: numbers as C++ writes them, whatever
// std::locale::global says.
#pragma once

#include <locale>
#include <sstream>
#include <utility>

namespace tensor {

/// A stream of the classic locale: no marks between groups of digits, a point before decimals.
template <class Stream>
class Classic : public Stream {
 public:
  template <class... Arguments>
  explicit Classic(Arguments&&... arguments) : Stream(std::forward<Arguments>(arguments)...) {
    this->imbue(std::locale::classic());
  }
};

using TextWriter = Classic<std::ostringstream>;
using TextReader = Classic<std::istringstream>;

/// Digits and letters as ASCII has them: those of <cctype> depend on setlocale.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
constexpr bool is_letter(char c) { return lower_case(c) >= 'a' && lower_case(c) <= 'z'; }

}  // namespace tensor
