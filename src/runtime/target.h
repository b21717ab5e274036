// Target: what compiling needs to know of the device that a program will run on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/kernels/cpu/kernel.h"
#include "src/trace/fuse.h"
#include "tensor/device.h"

namespace tensor::detail {

struct Program;
class Engine;

struct Target {
  Device device;
  std::string name;  // for reports: "2 threads", "NVIDIA H200"
  CostFn cost;
  std::function<std::string_view(int family)> family_name;
  /// The least time that the device needs for a group's work, in microseconds.
  std::function<double(const Graph&, const Group&)> roofline_us;
  /// Builds the kernels of a program whose values are placed.
  std::function<std::unique_ptr<Engine>(const Program&)> build;
};

Target cpu_target(const cpu::Machine& machine);

/// `threads` counts on the CPU only, 0 meaning all. UserError where there is no such device.
Target target_of(const Device& device, int threads);

}  // namespace tensor::detail
