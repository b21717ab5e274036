// CUDA kernel families: how a fused group becomes kernels. A family looks at types, layouts and
// constants only: what it makes is a description, which needs no GPU, so that the same kernels are
// launched on a device, compiled for every architecture, and run on an emulator in tests.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "src/kernels/cuda/lowered.h"
#include "src/kernels/cuda/machine.h"
#include "src/kernels/features.h"
#include "src/kernels/schedule.h"
#include "src/kernels/work.h"
#include "src/trace/fuse.h"
#include "src/trace/layout.h"

namespace tensor::cuda {

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
