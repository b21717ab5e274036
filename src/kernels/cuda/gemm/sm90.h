// The family of products on Hopper: schedules, the model that chooses one, and the kernel's text.
#pragma once

#include <string>
#include <vector>

#include "src/kernels/cuda/gemm/problem.h"

namespace tensor::cuda {

/// See templates/gemm_sm90.h.
struct GemmSchedule {
  int tile_m = 128, tile_n = 128;  // of a tile
  int stages = 4;
  int groups = 1;  // of 128 threads that multiply
  int blocks = 1;  // of 64 rows, a group
  bool swapped = false;
  bool takes_turns = false;  // every group has tiles of its own
  int splits = 1;            // blocks of a cluster that share a tile's k
  int shares = 1;            // blocks of a cluster that share the weights of neighbouring tiles
  int band = 8;              // tiles of tokens before the next features
  // Where all blocks run at a time, the next kernel's may come from the start, not only once the
  // products are done.
  bool launches_first = true;

  /// Why the kernel cannot be built so, empty if it can: `shared_bytes` is what a block may have.
  std::string fault(std::int64_t shared_bytes, const GemmProblem& problem) const;
  /// Whether an addend comes as boxes, which it does to rows of tokens, and its sum leaves so.
  bool boxes_addend(const GemmProblem& p) const { return p.addend_bytes > 0 && !swapped; }
  /// Whether results leave as boxes: such sums, of 16-bit results most, and bytes of whole boxes.
  bool stages_outputs(const GemmProblem& problem) const;
  /// The bytes of an element of those.
  int staged_bytes(const GemmProblem& p) const {
    return boxes_addend(p) ? p.addend_bytes : p.staged_bytes;
  }
  std::int64_t needed_shared_bytes(const GemmProblem& problem) const;  // of dynamic shared memory
  int threads(const GemmProblem& problem) const;
  /// Whether sums take so many registers that the producer's are needed.
  bool hands_over() const { return groups > 1 && blocks * columns() > 80; }
  /// Whether two blocks fit on a multiprocessor as far as registers go: this kernel's and the
  /// next one's, whose weights then come early.
  bool leaves_room(const GemmProblem& problem) const;
  int columns() const { return swapped ? tile_m : tile_n; }  // of wgmma
  /// The columns that a block finishes: all, or its share of a split tile's.
  int my_columns() const { return (columns() / 8 + splits - 1) / splits * 8; }
  int box_rows() const { return swapped ? my_columns() : 64; }  // of the outputs
  std::int64_t tiles(const GemmProblem& problem) const;
  std::string name(std::int64_t tile_k = 64) const;  // "128x256x64_s4"
};

/// Microseconds from the kernel's start to its end with the schedule, operands in L2, constant
/// weights in memory.
TimeParts model_gemm_sm90(const GemmProblem& problem, const GemmSchedule& schedule,
                          const Machine& machine);
/// All schedules that fit, the one with the least time by the model first.
std::vector<GemmSchedule> gemm_sm90_schedules(const GemmProblem& problem, const Machine& machine);

/// All that may be tried (gemm_sm90_space.cpp), and what one of its schedules stands for. `level0`
/// is the first of gemm_sm90_schedules.
Space gemm_sm90_space(const GemmProblem& problem, const Machine& machine,
                      const GemmSchedule& level0);
GemmSchedule gemm_schedule_of(const Schedule& schedule);
/// Lowers a group that the family accepts with a schedule.
Lowered lower_gemm_sm90(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                        const GemmSchedule& schedule);

}  // namespace tensor::cuda
