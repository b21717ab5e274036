// Target: what compiling needs to know of the device that a program will run on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/kernels/cpu/kernel.h"
#include "src/kernels/cuda/driver/device.h"
#include "src/trace/fuse.h"
#include "tensor/device.h"

namespace tensor::detail {

struct Program;
class Engine;

struct Target {
  Device device;
  std::string name;      // for reports: "2 threads", "NVIDIA H200"
  std::string tuned_as;  // of measurements: those of one name can be compared
  std::string driver;    // what may make a difference beside it
  std::string kernels;   // another text is other kernels; empty where the version alone tells
  CostFn cost;
  int families = 0;
  /// Whether it has instructions for products of bf16. Programs that are to be compiled in bf16 are
  /// compiled in f32 where it has not: nothing would be gained.
  bool multiplies_bf16 = true;
  /// Whether a family folds layer_norm into products of narrow types: such programs are prepared so
  /// that it can (cast_norms).
  bool folds_norms = false;
  /// Whether kernels are as fast in bf16 as in f16, so that what was measured of one type serves
  /// the other.
  bool bf16_is_like_f16 = false;
  /// Microseconds that a family thinks it takes, nullopt when it declines the group.
  std::function<std::optional<double>(int family, const Graph&, const Group&)> estimate;
  /// What may be tried for a group that the family accepts; nullopt where there is one way only.
  std::function<std::optional<Space>(int family, const Graph&, const Group&)> space;
  std::function<std::string_view(int family)> family_name;
  /// The least time that the device needs for a group's work, in microseconds.
  std::function<double(const Graph&, const Group&)> roofline_us;
  std::string peak_rates = "assumed";  // how the rates behind it are known, for reports
  /// Builds the kernels of a program whose values are placed.
  std::function<std::unique_ptr<Engine>(const Program&)> build;
};

Target cpu_target(const cpu::Machine& machine);
/// A GPU of which this is known; the driver is first called when a program is built.
Target cuda_target(const cuda::DeviceInfo& info);

/// `threads` counts on the CPU only, 0 meaning all. UserError where there is no such device.
Target target_of(const Device& device, int threads);

}  // namespace tensor::detail
