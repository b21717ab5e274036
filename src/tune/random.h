// Random numbers of a seed, the same on every machine: the standard library's distributions differ
// between implementations, its generator does not.
#pragma once

#include <cstdint>
#include <random>

namespace tensor {

class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}

  /// From 0, below `limit`, which is above 0; each equally likely.
  std::size_t below(std::size_t limit) {
    const std::uint64_t most = UINT64_MAX - UINT64_MAX % limit;
    std::uint64_t number = generator_();
    while (number >= most) number = generator_();
    return static_cast<std::size_t>(number % limit);
  }
  /// From 0, below 1.
  double uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 generator_;
};

}  // namespace tensor
