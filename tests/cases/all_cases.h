// Every table of cases.
#pragma once

#include <set>

#include "tests/cases/neural_cases.h"
#include "tests/cases/pointwise_cases.h"
#include "tests/cases/product_cases.h"
#include "tests/cases/reduce_cases.h"
#include "tests/cases/shape_cases.h"

namespace tensor::cases {

/// Each case once: two drawn alike are one.
inline Cases all_cases() {
  Cases all;
  std::set<std::string> seen;
  for (Cases (*table)() : {pointwise_cases, reduce_cases, product_cases, neural_cases, shape_cases})
    for (Case& c : table())
      if (seen.insert(id(c)).second) all.push_back(std::move(c));
  return all;
}

}  // namespace tensor::cases
