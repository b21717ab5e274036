// CUDA kernel families: how a fused group becomes kernels. A family looks at types, layouts and
// constants only: what it makes is a description, which needs no GPU, so that the same kernels are
// launched on a device, compiled for every architecture, and run on an emulator in tests.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "src/kernels/cuda/device.h"
#include "src/kernels/features.h"
#include "src/kernels/schedule.h"
#include "src/kernels/work.h"
#include "src/trace/fuse.h"
#include "src/trace/layout.h"

namespace tensor::cuda {

/// What the cost model and the schedules know of a GPU: data, not code. Rates are what the GPU's
/// data promises, times what an H200 reached of it: measuring does not change them, for plans and
/// learned models depend on them.
struct Machine {
  DeviceInfo device;
  double tensor_tflops = 0;  // products of 16-bit operands on Tensor Cores
  double tf32_tflops = 0;    // those of float32 operands, rounded; 0 where there are none
  double f32_tflops = 0;     // multiply-adds on the other cores
  double memory_gbps = 0;    // streaming from memory
  double l2_gbps = 0;        // streaming from the second-level cache
  double special_tops = 0;   // exp, erf and the like
  double launch_us = 0;      // from one kernel's end to the next one's work, in a graph
  double host_gbps = 0;      // to and from the host
};
Machine machine_of(const DeviceInfo& device);

/// The most that a GPU does, for the share that a kernel reaches of it.
struct Ceilings {
  double f16_tflops = 0, bf16_tflops = 0;  // products on Tensor Cores
  double memory_gbps = 0;
  bool are_measured = false;  // on a GPU of this name; otherwise they are the machine's rates
};
Ceilings ceilings_of(const Machine& machine);

/// What a learned cost model sees of it.
void set_machine(Features& features, const Machine& machine);
/// A GPU as data sheets describe it, for compiling where there is none: 75, 80, 86, 89, 90, 100 or
/// 120.
DeviceInfo typical_device(int capability);

/// Where an argument points: into an operand (the group's reads, then its writes), a constant that
/// was packed for the group, or its scratch.
struct Pointer {
  enum class Base : std::uint8_t { operand, packed, scratch } base = Base::operand;
  int index = 0;
  std::int64_t bytes = 0;  // from the base
};

/// A view of memory for the tensor memory accelerator (CUDA driver API, cuTensorMapEncodeTiled and
/// cuTensorMapEncodeIm2col): extents and strides from the fastest axis on, which has stride 1.
struct TensorMapOf {
  Pointer memory = {};
  DType dtype = f16;
  std::vector<std::int64_t> extents;       // in elements; 1 to 5
  std::vector<std::int64_t> stride_bytes;  // of all axes but the first: multiples of 16
  std::vector<int> box = {};               // elements of every axis; not for im2col
  std::vector<int> steps = {};             // between elements of a box, 1 where left out
  bool swizzled = true;  // the box's rows are 128 bytes, exchanged in chunks of 16
  struct Im2col {
    std::vector<int> lower, upper;  // of the window's corner, from the fastest axis of space on
    int channels = 0, pixels = 0;   // of a box
  };
  std::optional<Im2col> im2col = {};
};

/// One parameter of a kernel: an address, a tensor map (a __grid_constant__ TensorMap), or a number
/// or struct as it lies in memory.
using Argument = std::variant<Pointer, TensorMapOf, std::vector<std::byte>>;
template <class T>
Argument value_argument(const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  return std::vector<std::byte>(bytes, bytes + sizeof(T));
}

/// A launch of one kernel. Every kernel calls wait_for_previous() (device/ptx.h) before it reads
/// what earlier kernels wrote or writes anything, and may call launch_next() before.
struct Call {
  KernelSource source;
  std::string entry;  // the function's name, by the grammar of name_kernel
  Kernel::Launch launch;
  std::vector<Argument> arguments;
};

/// A group as kernels, in order.
struct Lowered {
  std::vector<Call> calls;
  /// Constants that the group reads, in the form its kernels want: made once, when linked.
  struct Packed {
    std::vector<int> operands;
    std::function<Tensor(const std::vector<Tensor>&)> pack;
  };
  std::vector<Packed> packed;
  std::int64_t scratch_bytes = 0;  // aligned to 1,024
  /// What runs, for the report: "sm90a_gemm_f16_f32_128x128x64_s4_add".
  std::string description;
  /// Instead of calls: runs on the host, on operands copied there and back.
  std::function<void(std::span<std::byte* const>)> on_host;
};

struct Family {
  std::string_view name;
  /// Microseconds on `machine`, nullopt when the family cannot run the group.
  std::optional<double> (*estimate)(const Graph& graph, const Group& group, const Machine& machine);
  /// Lowers an accepted group. The layouts are those of `laid.graph`, which the group belongs to.
  /// With the group's schedule, where that is one of its space; otherwise with the chosen one.
  Lowered (*lower)(const LaidOutGraph& laid, const Group& group, const Machine& machine);
  /// What may be tried for an accepted group; null where there is one way only.
  std::optional<Space> (*space)(const Graph& graph, const Group& group,
                                const Machine& machine) = nullptr;
};

/// The table in families.cpp; the last family, host, runs any single operator.
std::span<const Family> cuda_families();

/// The cheapest family of a group.
CostFn cuda_cost(const Machine& machine);

/// Lowers a group of a plan by its family, as if nothing else were in its graph (trace/isolate.h):
/// so that the blocks of a model share their kernels.
Lowered lower_group(const LaidOutGraph& laid, const Group& group, const Machine& machine);

/// Sets the call's entry and the names in its source, whose text calls it KERNEL. Names are
///   ARCHITECTURE_FAMILY_IN_SUM_[WINDOW_]TILE_sSTAGES[_HOW...][_EPILOGUE...]__HASH
/// of kernels that multiply: the types of operands and sums, a convolution's window, the tile, and
/// how else the schedule goes, as "k2" for two parts of the depth; and of all others
///   ARCHITECTURE_FAMILY_TYPE[_WHAT...]__HASH
/// with eight digits of a hash of the text: "sm90a_gemm_f16_f32_128x128x64_s4_add__1a2b3c4d".
/// `what` is what stands between architecture and hash.
void name_kernel(Call& call, const Machine& machine, const std::string& what);
/// Its name without the hash, for the report.
std::string description_of(const Call& call);

}  // namespace tensor::cuda
