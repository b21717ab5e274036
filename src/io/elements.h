// The bytes of a tensor's elements, for readers and writers of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tensor/handle.h"

namespace tensor {

/// The bytes that a tensor of that type takes; nothing when they are 2^63 or more, not counting
/// zero extents (so that the answer does not depend on the order of the axes).
std::optional<std::int64_t> checked_bytes(const TensorType& type);

/// The memory of a fresh contiguous tensor, to be filled.
std::span<std::byte> element_bytes(const Tensor& x);

/// The elements from `first` on, in memory that `file` keeps: a read-only view where their
/// alignment allows typed access and there are any, else an undefined tensor. `in_file`: it maps a
/// file, so that its pages can be read again.
Tensor mapped_elements(const std::shared_ptr<const std::byte>& file, const std::byte* first,
                       const TensorType& type, bool in_file);

/// x itself when its elements are in a row in this process's memory, else a copy. UserError naming
/// `where` when x is undefined.
Tensor rowed(const Tensor& x, const std::string& where);

/// UserError unless every byte of a bool tensor's elements is 0 or 1: anything else is no bool in
/// C++.
void check_bools(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tensor
