#include "models/common/validators.h"

#include <charconv>

#include "tensor/text.h"

namespace models {
namespace {

template <class Number>
bool is_within(const std::string& text, Number least, Number most) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end && number >= least && number <= most;
}

template <class Number>
Validator validator(const char* kind, Number least, Number most) {
  return [=](const std::string& text) {
    if (is_within(text, least, most)) return std::string();
    tensor::TextWriter problem;
    problem << "got \"" << text << "\", need a " << kind;
    if (most == std::numeric_limits<Number>::max())
      problem << " of at least " << least;
    else
      problem << " from " << least << " to " << most;
    return problem.str();
  };
}

}  // namespace

Validator whole_number(std::int64_t least, std::int64_t most) {
  return validator("whole number", least, most);
}

double parse_number(const std::string& text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Validator number(double least, double most) { return validator("number", least, most); }

}  // namespace models
