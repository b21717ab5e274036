// Trials on a GPU.
#pragma once

#include <deque>
#include <string>

#include "src/kernels/cuda/driver/device.h"
#include "src/tune/problem.h"
#include "src/tune/trial.h"

namespace tensor {

/// For a worker's process: `problems` are those of its candidates' tasks.
Measuring gpu_measuring(int device, const std::deque<Problem>& problems);

/// What a GPU is, asked in a process that ends afterwards: this one stays free to have children
/// that use it. UserError where there is none.
cuda::DeviceInfo ask_for_device(int index);
/// The same as text, for the pipe.
std::string device_text(const cuda::DeviceInfo& info);
cuda::DeviceInfo parse_device(const std::string& text);

}  // namespace tensor
