// What the text of an option must be, for CLI11's checks.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace models {

/// Says what is wrong with a text, nothing if it can be taken.
using Validator = std::function<std::string(const std::string& text)>;

/// A whole number from `least` to `most`.
Validator whole_number(std::int64_t least,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
/// The number that passed the next check, written with a point in every locale.
double parse_number(const std::string& text);
/// A number from `least` to `most`, which NaN is not.
Validator number(double least, double most);

}  // namespace models
