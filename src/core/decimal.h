// Decimal digits of floating-point numbers, as the printing of tensors needs them.
#pragma once

#include <string>

namespace tensor {

/// The number digits[0].digits[1]digits[2]... times 10^exponent, or its negative.
struct Decimal {
  bool negative = false;
  std::string digits;  // at least one
  int exponent = 0;
};

/// The fewest digits that tell x from all other numbers of its type (Float16, BFloat16, float or
/// double), and of those the nearest to x. x is finite.
template <class T>
Decimal shortest_decimal(T x);

/// x rounded to `count` digits behind the first one, ties to even.
Decimal rounded_decimal(double x, int count);

/// x rounded to `count` digits behind the point: "-12.50".
std::string rounded_text(double x, int count);

}  // namespace tensor
