// With TENSOR_LOCALE a test program is one whose user's locale groups digits and has a decimal
// comma: in C++, and in C if that locale (such as de_DE.UTF-8) is installed.
#include "tests/locale.h"

#include <clocale>
#include <cstdlib>

namespace {

[[gnu::constructor]] void take_locale() {
  const char* const name = std::getenv("TENSOR_LOCALE");
  if (!name) return;
  static const tensor::check::ForeignLocale foreign;
  std::setlocale(LC_ALL, name);
  std::setlocale(LC_MESSAGES, "C");  // what the system says remains in the tests' language
}

}  // namespace
