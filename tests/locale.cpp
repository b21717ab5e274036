// With TENSOR_LOCALE a test program is one whose user's locale groups digits and has a decimal
// comma: in C++, and in C if that locale (as de_DE.UTF-8, or FOLDER/de_DE.UTF-8) is there.
#include "tests/locale.h"

#include <clocale>
#include <cstdlib>
#include <string>

namespace {

[[gnu::constructor]] void take_locale() {
  const char* const wanted = std::getenv("TENSOR_LOCALE");
  if (!wanted) return;
  static const tensor::check::ForeignLocale foreign;
  const std::string name = wanted;
  const std::size_t slash = name.rfind('/');
  if (slash != std::string::npos) ::setenv("LOCPATH", name.substr(0, slash).c_str(), 1);
  std::setlocale(LC_ALL, name.c_str() + (slash == std::string::npos ? 0 : slash + 1));
  std::setlocale(LC_MESSAGES, "C");  // what the system says remains in the tests' language
}

}  // namespace
