// The locale of a user whose numbers have groups of digits and a decimal comma.
#pragma once

#include <locale>

namespace tensor::check {

struct ForeignNumbers : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
  char do_decimal_point() const override { return ','; }
  std::string do_truename() const override { return "wahr"; }
  std::string do_falsename() const override { return "falsch"; }
};

/// Has the program that locale while it lives.
class ForeignLocale {
 public:
  ForeignLocale()
      : before_(std::locale::global(std::locale(std::locale::classic(), new ForeignNumbers))) {}
  ForeignLocale(const ForeignLocale&) = delete;
  ForeignLocale& operator=(const ForeignLocale&) = delete;
  ~ForeignLocale() { std::locale::global(before_); }

 private:
  std::locale before_;
};

}  // namespace tensor::check
