#include "src/kernels/cuda/machine.h"

#include <algorithm>
#include <utility>

#include "tensor/error.h"

namespace tensor::cuda {
namespace {

// 16-bit multiply-adds with float32 sums, a clock and multiprocessor (NVIDIA's architecture
// whitepapers).
double tensor_operations(int capability) {
  switch (capability) {
    case 80:
    case 87:
      return 1024;
    case 90:
      return 2048;
    case 100:
    case 103:
      return 4096;
    default:
      return 512;
  }
}

double f32_operations(int capability) { return capability == 75 || capability == 80 ? 64 : 128; }

}  // namespace

std::string DeviceInfo::architecture() const {
  // wgmma and its companions exist on 9.0 alone, as do their successors on 10.0 and 12.0.
  const int own = std::max(capability, limited_from);
  return "sm_" + std::to_string(own) + (own >= 90 ? "a" : "");
}

DeviceInfo DeviceInfo::limited_to(std::string_view most) const {
  DeviceInfo limited = *this;
  if (most.empty()) return limited;
  // Not 90 and more: nothing newer has what these have.
  for (const int known : {75, 80, 86, 89})
    if (most == std::to_string(known)) {
      if (capability > known) limited.limited_from = std::exchange(limited.capability, known);
      return limited;
    }
  fail("TENSOR_MAX_CAPABILITY", "got \"", most,
       "\", need 75, 80, 86 or 89: leave it out for all that the GPU has");
}

std::string DeviceInfo::tuned_as() const {
  return limited_from ? name + " as sm_" + std::to_string(capability) : name;
}

Machine machine_of(const DeviceInfo& device, const TimeModel& times) {
  const int capability = device.capability;
  const auto& rates = times.rates;
  Machine m;
  m.device = device, m.times = times;
  m.has_wgmma = capability == 90;
  m.multiplies_bf16 = m.copies_async = capability >= 80;
  m.overlaps_launches = capability >= 90;
  m.is_short_of_registers = capability >= 100;
  const double clocks = device.multiprocessors * device.clock_ghz * 1e9;
  m.clock_mhz = rates.clock_share * 1e3 * device.clock_ghz;
  m.tensor_tflops = rates.tensor_share * 2 * tensor_operations(capability) * clocks / 1e12;
  m.tf32_tflops = m.multiplies_bf16 ? m.tensor_tflops / 2 : 0;
  m.byte_tops = m.multiplies_bf16 ? m.tensor_tflops * 2 : 0;
  m.mma_share = m.has_wgmma         ? rates.mma_share_beside_wgmma
                : capability == 100 ? rates.mma_share_beside_tcgen05
                                    : rates.mma_share;
  m.f32_tflops = rates.f32_share * 2 * f32_operations(capability) * clocks / 1e12;
  m.memory_gbps = rates.memory_share * device.memory_gbps;
  m.l2_gbps = std::max(m.memory_gbps, rates.l2_share * 64 * clocks / 1e9);
  m.special_tops = 16 * clocks / 1e12;
  m.launch_us = m.overlaps_launches ? rates.overlapped_launch_us : rates.launch_us;
  m.arrival = m.overlaps_launches ? rates.overlapped_arrival : rates.arrival;
  m.host_gbps = rates.host_gbps;
  return m;
}

Machine machine_of(const DeviceInfo& device) {
  return machine_of(device, time_model_of(device.name));
}

Ceilings ceilings_of(const Machine& machine) {
  struct Row {
    const char* name;
    Ceilings ceilings;
  };
  // These are medians of PyTorch's products of 8192 x 8192 and of its reading 4 GiB, over the runs
  // in bench/results/gpu/ceilings.json (bench/peers/gpu_peers.py measures them).
  static const Row kMeasured[] = {{"NVIDIA H200", {750, 774, 4406, true}}};
  for (const Row& row : kMeasured)
    if (machine.device.name == row.name) return row.ceilings;
  return {machine.tensor_tflops, machine.tensor_tflops, machine.memory_gbps, false};
}

Multiplier multiplier_of(DType dtype, bool is_tf32, const Machine& machine) {
  if (dtype == f16 || (dtype == bf16 && machine.multiplies_bf16)) return Multiplier::mma;
  if (dtype == i8 && machine.byte_tops > 0) return Multiplier::bytes;
  return dtype == f32 && is_tf32 && machine.multiplies_bf16 ? Multiplier::tf32 : Multiplier::plain;
}

double mma_tflops(Multiplier multiplier, const Machine& machine) {
  return machine.mma_share * (multiplier == Multiplier::tf32    ? machine.tf32_tflops
                              : multiplier == Multiplier::bytes ? machine.byte_tops
                                                                : machine.tensor_tflops);
}

bool is_cached(const Machine& machine, double bytes) {
  return bytes < machine.times.rates.cached_share * static_cast<double>(machine.device.l2_bytes);
}

void set_machine(Features& f, const Machine& m) {
  f.processors = m.device.multiprocessors;
  f.most_threads = m.device.threads;
  f.most_shared_bytes = static_cast<double>(m.device.shared_bytes);
  f.peak_tflops = m.tensor_tflops, f.clock_ghz = m.device.clock_ghz;
  f.memory_gbps = m.memory_gbps, f.cache_gbps = m.l2_gbps;
}

DeviceInfo typical_device(int capability) {
  constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
  // T4, A100, RTX 3090, L4, H200, B200, RTX 5090.
  static const DeviceInfo kTable[] = {
      {0, "T4", 75, 40, 65536, 1024, 16 * kGiB, 4 * kMiB, 64 * kKiB, 64 * kKiB, 1.59, 320},
      {0, "A100", 80, 108, 65536, 2048, 80 * kGiB, 40 * kMiB, 164 * kKiB, 163 * kKiB, 1.41, 2039},
      {0, "RTX 3090", 86, 82, 65536, 1536, 24 * kGiB, 6 * kMiB, 100 * kKiB, 99 * kKiB, 1.70, 936},
      {0, "L4", 89, 58, 65536, 1536, 24 * kGiB, 48 * kMiB, 100 * kKiB, 99 * kKiB, 2.04, 300},
      {0, "H200", 90, 132, 65536, 2048, 141 * kGiB, 60 * kMiB, 228 * kKiB, 227 * kKiB, 1.98, 4800},
      {0, "B200", 100, 148, 65536, 2048, 180 * kGiB, 126 * kMiB, 228 * kKiB, 227 * kKiB, 1.85,
       8000},
      {0, "RTX 5090", 120, 170, 65536, 1536, 32 * kGiB, 96 * kMiB, 100 * kKiB, 99 * kKiB, 2.41,
       1792},
  };
  for (const DeviceInfo& info : kTable)
    if (info.capability == capability) return info;
  internal_error("typical_device", "there is no row for capability ", capability);
}

}  // namespace tensor::cuda
