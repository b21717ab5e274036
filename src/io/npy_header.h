// The header of an npy file: a Python dictionary as text (numpy.lib.format describes it).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/io/widened.h"

namespace tensor {

struct NpyHeader {
  TensorType type;               // of the tensor; the shape as NumPy shows it
  std::optional<Narrow> narrow;  // of the elements in the file, if they are of another type
  bool swapped = false;          // big-endian elements
  bool fortran_order = false;    // the first axis varies fastest
};

/// UserError naming `where` on text that is no such dictionary, ForeignMember on an element type or
/// a rank that this library does not hold.
NpyHeader parse_npy_header(std::string_view text, const std::string& where);

/// All bytes in front of the elements, for version 1.0 of the format. UserError naming `where` for
/// bf16.
std::string npy_prefix(const TensorType& type, const std::string& where);

}  // namespace tensor
