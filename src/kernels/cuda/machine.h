// What is known of a GPU: data for the cost model and for schedules, which needs no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/kernels/cuda/time_model.h"
#include "src/kernels/features.h"
#include "tensor/dtype.h"

namespace tensor::cuda {

/// What the driver or a data sheet says of a GPU.
struct DeviceInfo {
  int index = 0;
  std::string name;
  int capability = 0;  // 90 for compute capability 9.0
  int multiprocessors = 0;
  int registers = 0;  // of 32 bits, a multiprocessor
  int threads = 0;    // resident, a multiprocessor
  std::int64_t memory_bytes = 0, l2_bytes = 0;
  std::int64_t shared_bytes = 0;        // a multiprocessor
  std::int64_t shared_block_bytes = 0;  // at most, a block
  double clock_ghz = 0;                 // the highest
  double memory_gbps = 0;               // by the data sheet's arithmetic: twice clock times width
  int limited_from = 0;                 // the GPU's own capability, if used as an older one

  /// The same GPU with the instructions of an older one ("75", "80", "86" or "89"), if it is newer;
  /// "" changes nothing. UserError for others.
  DeviceInfo limited_to(std::string_view capability) const;
  /// Under which measurements of its kernels are kept: "NVIDIA H200", "NVIDIA H200 as sm_80".
  std::string tuned_as() const;
  /// What to compile for: "sm_90a" where there are instructions of this architecture alone.
  std::string architecture() const;
};

/// What the cost model and the schedules know of a GPU: data, not code. Rates follow from the GPU's
/// data and the constants of its time model: measuring does not change them, for plans and learned
/// models depend on them. What an architecture has and lacks is a field, which families ask for.
struct Machine {
  DeviceInfo device;
  double tensor_tflops = 0;        // products of 16-bit operands on Tensor Cores
  double tf32_tflops = 0;          // those of float32 operands, rounded; 0 where there are none
  double byte_tops = 0;            // those of i8 operands, with sums in 32 bits; 0 likewise
  double f32_tflops = 0;           // multiply-adds on the other cores
  double memory_gbps = 0;          // streaming from memory
  double l2_gbps = 0;              // streaming from the second-level cache
  double special_tops = 0;         // exp, erf and the like
  double launch_us = 0;            // from one kernel's end to the next one's work, in a graph
  double host_gbps = 0;            // to and from the host
  double mma_share = 0;            // of the Tensor Cores' rates: what mma.sync gets
  double arrival = 0;              // bytes a clock that cp.async, or loads, bring a multiprocessor
  double clock_mhz = 0;            // that busy multiprocessors keep
  bool copies_async = false;       // from memory to shared memory, past the registers (cp.async)
  bool overlaps_launches = false;  // a kernel may start while its predecessor ends (griddepcontrol)
  bool has_wgmma = false;          // and the tensor memory accelerator with it: families of its own
  bool multiplies_bf16 = false;    // and float32 rounded to tf32, on Tensor Cores
  bool is_short_of_registers = false;  // ptxas spills in tiles of 128 x 64 of mma.sync
  /// Whether kernels take their problem's extents as an argument: one kernel then serves inputs of
  /// many sizes, which the compiler need not be waited for, where else it knows all numbers.
  bool any_extent = false;
  TimeModel times;
};
Machine machine_of(const DeviceInfo& device, const TimeModel& times);
/// The machine has the constants of the GPU's model, or typical ones.
Machine machine_of(const DeviceInfo& device);

/// What multiplies: Tensor Cores operands of 16 bits, or float32 rounded to tf32, or i8, or other
/// cores.
enum class Multiplier : std::uint8_t { mma, tf32, bytes, plain };
/// Of an operand's element where it is multiplied.
constexpr int item_bytes(Multiplier multiplier) {
  return multiplier == Multiplier::mma ? 2 : multiplier == Multiplier::bytes ? 1 : 4;
}

/// The best that there is for operands of this type. `is_tf32`: float32 may be rounded.
Multiplier multiplier_of(DType dtype, bool is_tf32, const Machine& machine);
/// The rate of mma.sync: the newest Tensor Cores give their full rate to newer instructions only.
double mma_tflops(Multiplier multiplier, const Machine& machine);

/// Whether so many bytes come from the second-level cache, where a kernel
/// before left them.
bool is_cached(const Machine& machine, double bytes);

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

}  // namespace tensor::cuda
