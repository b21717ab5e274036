// From a description of calls to kernels on a device: compiled in parallel, through the cache on
// disk, and loaded once a process.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/kernels/cuda/driver/device.h"
#include "src/kernels/cuda/lowered.h"

namespace tensor::cuda {

/// The kernels of these calls, in their order. Calls of one text share one kernel, also with those
/// that were loaded before and are still in use.
std::vector<std::shared_ptr<Kernel>> load_kernels(Device& device,
                                                  std::span<const Call* const> calls);

/// The machine code of a call's kernel, from the cache on disk or compiled now. Any number of
/// threads may ask, and no GPU takes part.
Cubin compiled(const Call& call, const DeviceInfo& device);

/// The kernel of what `compiled` gave. An entry of the cache may be one that this driver refuses:
/// then it is compiled once more.
std::shared_ptr<Kernel> load_kernel(Device& device, const Call& call, const Cubin& cubin);

/// The address of what an argument points to.
using Resolve = std::function<Address(const Pointer&)>;

/// Puts a call into a stream. A call that overlaps its predecessor must follow a kernel.
void start(Stream& stream, Kernel& kernel, const Call& call, const Resolve& resolve,
           bool follows_kernel);

}  // namespace tensor::cuda
