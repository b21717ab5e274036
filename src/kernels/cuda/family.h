// CUDA kernel families: how a fused group becomes kernels. A family looks at types, layouts and
// constants only: what it makes is a description, which needs no GPU, so that the same kernels are
// launched on a device, compiled for every architecture, and run on an emulator in tests.
#pragma once

#include <span>
#include <string>

#include "src/kernels/cuda/lowered.h"
#include "src/kernels/cuda/machine.h"
#include "src/kernels/family.h"
#include "src/kernels/features.h"
#include "src/kernels/work.h"

namespace tensor::cuda {

/// What a family answers about a group that it takes: its kernels' time, their descriptions, and
/// what may be tried.
using Implementation = ::tensor::Implementation<Lowered>;
using Family = ::tensor::Family<Machine, Lowered>;
using Families = ::tensor::Families<Machine, Lowered>;

/// The table in families.cpp; the last family, host, runs any single operator.
std::span<const Family> cuda_families();

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
