// The bytes of a safetensors file, for those who put them elsewhere than save_safetensors does.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "tensor/handle.h"

namespace tensor {

/// Takes the next bytes of a file.
using Write = std::function<void(std::span<const std::byte>)>;

/// `name` is for messages; errors of names and metadata come before anything is written.
void write_safetensors(const std::string& name, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata, const Write& write);

}  // namespace tensor
