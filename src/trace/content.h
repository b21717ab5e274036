// The elements of a tensor as such, wherever and however they lie.
#pragma once

#include <cstdint>

#include "tensor/handle.h"

namespace tensor {

/// A hash, as fast as memory. What a broadcast repeats counts once.
std::uint64_t hash_of_elements(const Tensor& x);

/// Whether types and bytes are the same.
bool has_same_elements(const Tensor& a, const Tensor& b);

/// A copy; a broadcast stays one.
Tensor copy_of_elements(const Tensor& x);

}  // namespace tensor
