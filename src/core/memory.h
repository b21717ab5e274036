// Memory for the elements of tensors.
#pragma once

#include <cstddef>
#include <memory>

namespace tensor::detail {

/// At least so many bytes, aligned to 64, uninitialised; nullptr where the machine has not that
/// many. Blocks of middling size are kept for the next who asks when their owner lets them go: the
/// system would take their pages, and give new ones filled with zeros, which costs more than most
/// of what is computed in them. At most kMostKept bytes lie idle so.
std::shared_ptr<void> allocate_block(std::size_t bytes);

inline constexpr std::size_t kLeastKept = std::size_t{1} << 17, kLargestKept = std::size_t{1} << 24,
                             kMostKept = std::size_t{1} << 25;

/// How many bytes lie idle.
std::size_t kept_bytes();

}  // namespace tensor::detail
