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

Machine machine_of(const DeviceInfo& device) {
  Machine m;
  m.device = device;
  const double clocks = device.multiprocessors * device.clock_ghz * 1e9;
  // What well-made kernels reach, fitted on an H200: 0.77 of its Tensor Cores at the highest clock,
  // which they do not keep, and 0.9 of its memory.
  m.tensor_tflops = 0.77 * 2 * tensor_operations(device.capability) * clocks / 1e12;
  m.tf32_tflops = device.capability >= 80 ? m.tensor_tflops / 2 : 0;
  m.f32_tflops = 0.8 * 2 * f32_operations(device.capability) * clocks / 1e12;
  m.memory_gbps = 0.9 * device.memory_gbps;
  m.l2_gbps = std::max(m.memory_gbps, 0.6 * 64 * clocks / 1e9);  // 64 bytes a clock, shared
  m.special_tops = 16 * clocks / 1e12;
  m.launch_us = device.capability >= 90 ? 0.6 : 1.2;
  m.host_gbps = 12;
  m.copies_async = device.capability >= 80;
  m.overlaps_launches = device.capability >= 90;
  return m;
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
  const bool is_newer = machine.device.capability >= 80;
  if (dtype == f16 || (dtype == bf16 && is_newer)) return Multiplier::mma;
  return dtype == f32 && is_tf32 && is_newer ? Multiplier::tf32 : Multiplier::plain;
}

double mma_tflops(Multiplier multiplier, const Machine& machine) {
  const int capability = machine.device.capability;
  const double share = capability == 90 ? 0.6 : capability == 100 ? 0.3 : 0.9;
  return share * (multiplier == Multiplier::tf32 ? machine.tf32_tflops : machine.tensor_tflops);
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
