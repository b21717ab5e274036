// Memory of devices other than the CPU. Core only says what it asks for: src/runtime defines these
// functions, because it alone knows the devices.
#pragma once

#include <span>

#include "src/core/storage.h"

namespace tensor::detail {

/// Uninitialised memory of a device that is not the CPU, aligned to kDeviceAlignment. UserError
/// where there is no such device, or not so much memory.
std::shared_ptr<Storage> allocate_on(const Device& device, std::int64_t bytes);

/// What kernels may take for granted of the first element of a tensor of its own.
constexpr std::int64_t kDeviceAlignment = 256;

/// Copies between the host and the memory at `address` of a device; done when they return.
void upload(const Device& device, std::byte* address, std::span<const std::byte> from);
void download(const Device& device, const std::byte* address, std::span<std::byte> to);

}  // namespace tensor::detail
