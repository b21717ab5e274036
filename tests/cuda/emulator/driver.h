// The emulated driver: libcuda, NVRTC and NCCL of a machine with pretended GPUs, behind the
// functions that the library looks up in them. Everything above, from Device to eager operators, is
// the real thing.
//
// Memory of a pretended GPU is poisoned when it is taken and cannot be touched by host code: it is
// protected but while a kernel or a copy runs. What goes into a stream happens as late as it may,
// when somebody waits. Kernels run on the emulated GPU (engine.h), which knows the blocks of memory
// that are in use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tensor::emulator {

/// A GPU as typical_device(capability) describes it, but for its memory.
struct PretendedGpu {
  int capability = 90;
  std::int64_t memory_bytes = 0;
};
/// Makes the process see these GPUs. To be called before the first use of any.
void install_driver(const std::vector<PretendedGpu>& gpus);

/// What the driver was asked for so far.
struct DriverCounts {
  std::int64_t allocated_bytes = 0;  // now, of all devices
  std::int64_t pinned_bytes = 0;     // now, of the host
  std::int64_t allocations = 0, launches = 0, graphs = 0;
  std::int64_t uploaded_bytes = 0, downloaded_bytes = 0;
  std::int64_t bodies_run = 0, bodies_skipped = 0;  // of conditional nodes
  std::int64_t sums = 0;                            // that NCCL made
};
DriverCounts driver_counts();

/// After `others` more kernels the next one fails with this error of the driver (700: an illegal
/// address), which ends the use of its GPU: all that is asked of that one from then on fails so.
void fail_kernel(int others, int error = 700);

/// Whether communicators can be made from now on: NCCL gives reasons of its own not to.
void let_nccl_connect(bool is_let);

/// As long as it lives, launches are counted and nothing runs: for what a whole model takes, which
/// would run for hours.
class SkippedKernels {
 public:
  SkippedKernels();
  ~SkippedKernels();
  SkippedKernels(const SkippedKernels&) = delete;
  SkippedKernels& operator=(const SkippedKernels&) = delete;
};

/// What callers did that a driver lets pass or does not promise, a line each: freed memory that
/// queued work may use, copied asynchronously from memory that is not page-locked, let go without a
/// current context. Empties the list.
std::string driver_complaints();

/// Ranges of NVTX that were opened: ">name" and "<" in their order. Empties the list.
std::vector<std::string> driver_ranges();

}  // namespace tensor::emulator
