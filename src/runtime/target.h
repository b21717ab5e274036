// Target: what compiling needs to know of the device that a program will run on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/kernels/cpu/kernel.h"
#include "src/kernels/cuda/machine.h"
#include "src/kernels/family.h"
#include "src/trace/fuse.h"
#include "tensor/device.h"

namespace tensor::cuda {
class Communicator;
}

namespace tensor::detail {

struct Program;
class Engine;

/// Which of the devices that divide the products of a program among them; one divides nothing.
struct Share {
  int index = 0, count = 1;
  std::shared_ptr<cuda::Communicator> sums = nullptr;  // of several
};

/// The kernels of a plan, group by group, before they are bound to memory.
class Kernels {
 public:
  virtual ~Kernels() = default;
  /// What runs a group: "sm90a_gemm_f16_f32_128x128x64_s4_add".
  virtual std::string description(std::size_t group) const = 0;
  /// Kernels that were generated for a group, each as one text that needs no other file.
  struct Source {
    std::string name, text;
  };
  virtual std::vector<Source> sources(std::size_t) const { return {}; }
};

struct Target {
  Device device;
  std::string name;      // for reports: "2 threads", "NVIDIA H200"
  std::string tuned_as;  // of measurements: those of one name can be compared
  std::string driver;    // what may make a difference beside it
  std::string kernels;   // another text is other kernels; empty where the version alone tells
  std::shared_ptr<Offers> offers;  // what its families can do
  /// Whether it has instructions for products of bf16. Programs that are to be compiled in bf16 are
  /// compiled in f32 where it has not: nothing would be gained.
  bool multiplies_bf16 = true;
  /// Whether a family folds layer_norm into products of narrow types: such programs are prepared so
  /// that it can (cast_norms).
  bool folds_norms = false;
  /// A multiple of which the channels of images are that convolutions may read as bytes by one
  /// scale, on a GPU; 0 where no kernel does.
  std::int64_t byte_channels = 0;
  /// Whether its kernels are compiled, and once for many sizes.
  bool any_extent = false;
  Share share = {};
  /// Whether kernels are as fast in bf16 as in f16, so that what was measured of one type serves
  /// the other.
  bool bf16_is_like_f16 = false;
  /// The least time that the device needs for a group's work, in microseconds.
  std::function<double(const Graph&, const Group&)> roofline_us;
  std::string peak_rates = "assumed";  // how the rates behind it are known, for reports
  /// Makes a plan's kernels, each group by its family as its schedule says.
  std::function<std::unique_ptr<Kernels>(const LaidOutGraph&, const FusionPlan&)> lower;
  /// Binds them to the values of a program, which are placed.
  std::function<std::unique_ptr<Engine>(const Program&, std::unique_ptr<Kernels>)> build;

  /// The cheapest offer's time: what fusion goes by where nothing was measured.
  CostFn cost() const;
};

/// The processor's name in a file like /proc/cpuinfo; where Linux knows none (AArch64), who made it
/// and which part it is, so that logs of unlike machines do not mix.
std::string processor_of(const char* cpuinfo);
Target cpu_target(const cpu::Machine& machine, int spin_us = -1);
/// A GPU of which this is known; the driver is first called when a program is built.
Target cuda_target(const cuda::DeviceInfo& info);
Target cuda_target(const cuda::Machine& machine);

/// `threads` counts on the CPU only, 0 meaning all. Kernels of a GPU that take `any_extent` are
/// compiled once for many sizes. UserError where there is no such device.
/// `spin_us` as in CompileOptions.
Target target_of(const Device& device, int threads, bool any_extent = false, int spin_us = -1);

}  // namespace tensor::detail
