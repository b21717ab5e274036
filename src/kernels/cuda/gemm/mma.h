// The families of products on registers: mma.sync on Tensor Cores (16-bit floats, tf32 and i8), and
// plain float32 or ints. Schedules, the model that chooses one, and the kernels' text.
#pragma once

#include <string>
#include <vector>

#include "src/kernels/cuda/gemm/problem.h"

namespace tensor::cuda {

/// See templates/gemm_mma.h and templates/gemm_plain.h.
struct TileSchedule {
  int tile_m = 64, tile_n = 64;  // of a tile
  int down = 2, across = 2;      // warps of a tile
  int parts = 1;                 // of k: more than 1 takes a second kernel that adds them
  int stages = 2;                // of the ring
  int slices = 1;                // of plain products: as many times the warps share a step's k

  std::string name() const;  // "64x64_s3_p2_w4"
  int threads() const { return 32 * down * across * slices; }
  int sums() const;  // of a thread
  /// How much of k one step multiplies.
  int tile_k(Multiplier multiplier) const;
};

/// Bytes of shared memory: a stage's, of a factor's rows as they are padded, and of the sums of
/// plain products, which take its place in the end.
std::int64_t stage_bytes(const TileSchedule& schedule, Multiplier multiplier, bool is_turned,
                         std::int64_t rows);
std::int64_t sum_bytes(const TileSchedule& schedule, Multiplier multiplier);
/// The most that both take, however the factors lie.
std::int64_t shared_bytes(const TileSchedule& schedule, Multiplier multiplier);
/// How many blocks a multiprocessor holds: by registers, threads and shared memory.
std::int64_t resident_blocks(const TileSchedule& schedule, Multiplier multiplier,
                             const Machine& machine);
/// What ptxas is held to in plain products, for a thread.
int plain_registers(const TileSchedule& schedule, const Machine& machine);
std::int64_t resident_plain_blocks(const TileSchedule& schedule, const Machine& machine);
/// Microseconds from the start to the end, by what bounds it.
TimeParts model_gemm_tiles(const GemmProblem& problem, const TileSchedule& schedule,
                           Multiplier multiplier, const Machine& machine);
/// The same of plain products.
TimeParts model_gemm_plain(const GemmProblem& problem, const TileSchedule& schedule,
                           const Machine& machine);
/// Why there is no such kernel, as far as is known: what spills was found by compiling.
std::string impossible(const TileSchedule& schedule, Multiplier multiplier, const Machine& machine);
/// All schedules worth asking for, the one with the least time by the model first.
std::vector<TileSchedule> gemm_tile_schedules(const GemmProblem& problem, Multiplier multiplier,
                                              const Machine& machine);

/// All that may be tried (gemm_mma_space.cpp), and what one of its schedules stands for.
Space gemm_tile_space(const GemmProblem& problem, Multiplier multiplier, const Machine& machine);
TileSchedule tile_schedule_of(const Schedule& schedule);

/// Lower a group that is a product (match_product): of factors that Tensor Cores multiply, or of
/// any but f64.
Lowered lower_gemm_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                       const TileSchedule& schedule);
Lowered lower_gemm_plain(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                         const TileSchedule& schedule);

}  // namespace tensor::cuda
