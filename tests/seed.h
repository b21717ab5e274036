// The seed of all random numbers of a test program, so that a failure can be had again.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace tensor::check {

/// The environment variable TENSOR_SEED, or a fresh one. Printed when first asked for.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("TENSOR_SEED");
    const std::uint64_t chosen = text ? std::stoull(text) : std::random_device()();
    std::cout << "TENSOR_SEED=" << chosen << std::endl;  // now, in case of a crash
    return chosen;
  }();
  return value;
}

}  // namespace tensor::check
