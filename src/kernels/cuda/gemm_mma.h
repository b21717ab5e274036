// The families of products on registers: mma.sync on Tensor Cores, and plain float32. Schedules,
// the model that chooses one, and the kernels' text.
#pragma once

#include <string>
#include <vector>

#include "src/kernels/cuda/gemm_sm90.h"

namespace tensor::cuda {

/// See device/gemm_mma.h and device/gemm_plain.h.
struct TileSchedule {
  int rows = 64, columns = 64;  // of a tile
  int down = 2, across = 2;     // warps of a block, or, of plain products, threads
  int parts = 1;                // of the depth: more than 1 takes a second kernel that adds them
  int stages = 2;               // of the ring

  std::string name() const;  // "64x64x32_s3_p2"
};

/// Microseconds from the start to the end, by what bounds it. `is_plain`: without Tensor Cores.
double model_gemm_tiles(const GemmProblem& problem, const TileSchedule& schedule, bool is_plain,
                        const Machine& machine);
/// All schedules worth asking for, the one with the least time by the model first.
std::vector<TileSchedule> gemm_tile_schedules(const GemmProblem& problem, bool is_plain,
                                              const Machine& machine);

/// Lower a group that is a product (match_product) of 16-bit factors, or of any factors but f64.
Lowered lower_gemm_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                       const TileSchedule& schedule);
Lowered lower_gemm_plain(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                         const TileSchedule& schedule);

}  // namespace tensor::cuda
