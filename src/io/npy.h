// One array in npy's form, within a file of its own or an npz archive.
#pragma once

#include <string>

#include "src/io/byte_stream.h"
#include "tensor/handle.h"

namespace tensor {

/// Reads the array that fills the stream to its last byte.
Tensor read_npy(ByteStream& stream, const std::string& where);

}  // namespace tensor
