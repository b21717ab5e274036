// The fitted constants of the time models: what kernels were measured to take beyond what a GPU's
// data says. One file of numbers for each GPU model (times/*.txt), a typical one for others.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensor::cuda {

struct TimeModel {
  /// What well-made kernels reach of what the GPU's data promises, and what surrounds a kernel.
  struct Rates {
    double clock_share = 0;   // of the highest clock, which busy multiprocessors keep
    double tensor_share = 0;  // of the Tensor Cores' products at the highest clock
    // of those, with mma.sync, where there is nothing newer for such operands
    double mma_share = 0;
    // the same on 9.0, whose Tensor Cores give their full rate to wgmma alone
    double mma_share_beside_wgmma = 0;
    double mma_share_beside_tcgen05 = 0;  // and on 10.x, to tcgen05 alone
    double f32_share = 0;                 // of the multiply-adds of the other cores
    double memory_share = 0;              // of the memory's bandwidth
    double l2_share = 0;      // of 64 bytes a clock and multiprocessor from the second-level cache
    double cached_share = 0;  // of the second-level cache: what is smaller comes from there
    double launch_us = 0;     // from one kernel's end to the next one's work, in a graph
    // the same where a kernel may start while its predecessor ends
    double overlapped_launch_us = 0;
    double arrival = 0;  // bytes a clock that cp.async, or loads, bring to a multiprocessor
    double overlapped_arrival = 0;  // the same from 9.0 on
    double host_gbps = 0;           // to and from the host
    double synchronize_us = 0;      // of a step on the host, for which the GPU stands still
  } rates;

  /// Products with wgmma. Clocks are those of one multiprocessor, rates bytes a clock.
  struct GemmSm90 {
    double arrival = 0;            // that copies bring to one multiprocessor
    double shared_arrival = 0;     // and to each where all ask for them
    double stage_clocks = 0;       // from asking for a stage to giving it back
    double box_rate = 0;           // of what is stored as boxes, as is everything of small tiles
    double turn_addend_rate = 0;   // of boxes of addends, which come and go: for one warpgroup
    double addend_rate = 0;        // for several
    double small_addend_rate = 0;  // and where tiles are small beside the products
    double pair_rate = 0;          // of pairs of elements, of each warpgroup that finishes a tile
    double most_pair_rate = 0;     // and at most
    double operations = 0;         // of every element anyway
    double operation_rate = 0;     // operations a clock
    double norm_clocks = 0;        // sums are corrected by a norm
    double row_sum_clocks = 0;     // rows are summed
    double turn_norm = 0;  // times as long a finish: one warpgroup corrects two blocks of rows
    double exchange_clocks = 0;  // sums go to the other blocks of the cluster, which are waited for
    double exchange_rate = 0;    // of those sums
    double fill_us = 0;          // the first tiles' way from memory, and the last sums' back
    double beside = 0;           // of the clocks, where what Tensor Cores sustain is the bound
  } gemm_sm90;

  /// Products with mma.sync; what follows the sums also on the other cores.
  struct GemmTiles {
    double latency_clocks = 0;   // from asking for a stage to having it
    double start_clocks = 0;     // a block begins and ends
    double operands_beside = 0;  // of the operands' clocks, which nothing hides
    double operations = 0;       // of every element anyway
    double operation_rate = 0;   // operations a clock
    double store_rate = 0;       // bytes a clock that an epilogue reads and writes
    double second_us = 0;        // the second kernel's own way there and back, which adds parts up
  } gemm_tiles;

  /// Products on the other cores.
  struct GemmPlain {
    double instructions = 0;  // a warp takes by itself for each multiply-add
    double shared_rate = 0;   // bytes a clock that lanes read from shared memory
    double step_clocks = 0;   // that a warp waits in each step
    double crowd = 0;         // of the instructions of each further warp of a scheduler
    double start_clocks = 0;  // a block begins and ends
  } gemm_plain;

  /// Attention with wgmma, in clocks of one multiprocessor for a tile and a block of keys.
  struct AttentionSm90 {
    double operations = 0;       // of a score, beside the products
    double operation_rate = 0;   // operations a clock
    double chain_clocks = 0;     // what passes between products and operations, one after the other
    double group_clocks = 0;     // the same of groups side by side
    double group_multiply = 0;   // of the products, what groups side by side do not hide
    double arrival = 0;          // bytes a clock
    double exposed = 0;          // of the next keys' arrival, where a single stage waits for them
    double query_clocks = 0;     // each turn after a block's first waits for its queries
    double alone_clocks = 0;     // a block by itself begins and ends beside nothing else
    double arrival_beside = 0;   // of the arrival, even where something else takes longer
    double exchange_clocks = 0;  // two barriers around the sum of a cluster's parts
    double exchange_rate = 0;    // bytes a clock of those sums
    double cluster_clocks = 0;   // for each block of a cluster beyond four, which begins later
    double only_block_clocks = 0;  // for each key of a part's only block, beside which nothing runs
    double crowd_us = 0;  // begin and end where the first free multiprocessors get two blocks each
    double pair_us = 0;   // where two blocks fit
    double fill_us = 0;   // where one does
  } attention_sm90;

  /// Attention with mma.sync, also that which stores its weights, in clocks likewise.
  struct AttentionMma {
    double operations = 0;         // of a score, beside an exponential
    double weight_operations = 0;  // of a score whose weight is stored
    double stored_operations = 0;  // of storing it
    double between_clocks = 0;     // one warp waits between the steps
    double start_clocks = 0;       // a block begins and ends
    double exposed_clocks = 0;     // where a single stage waits for the next keys
    double slab_clocks = 0;        // what lanes of a row tell each other, for a slab of 16 queries
    double store_rate = 0;         // bytes a clock that an epilogue reads and writes
  } attention_mma;

  /// Attention in float32, whose products take what gemm_plain says, in clocks likewise.
  struct AttentionPlain {
    double operations = 0;    // of a score, beside the products
    double step_clocks = 0;   // that a warp waits for each block of keys
    double start_clocks = 0;  // a block begins, and joins its slices in the end
  } attention_plain;

  /// Convolutions but those with wgmma.
  struct ConvTiles {
    double latency_us = 0;      // what comes from the second-level cache is under way
    double cache_share = 0;     // of its rate
    double fill_us = 0;         // a block begins and ends
    double later_fill = 0;      // of that, where other blocks run beside
    double add_us = 0;          // parts are added up
    double add_gbps = 0;        // at that rate
    double overlap = 0;         // of the shorter of computing and memory, hidden behind the longer
    double overlap_of_one = 0;  // the same where a multiprocessor holds one block
    double packing_us = 0;      // an image or weights are packed, beside a launch
    double share_128x128 = 0;   // of mma.sync's rate, that a tile of so many sums reaches
    double share_128x64 = 0;    // likewise
    double share_64x64 = 0;     // likewise
    double share_128x32 = 0;    // likewise
    double share_32x64 = 0;     // likewise
    double share_at_least = 0;  // of other tiles
    double share_of_none = 0;   // of other tiles, whatever they multiply
    double share_of_intensity = 0;  // and more for each product of an element that they read
    double plain_share_64 = 0;      // of the other cores' multiply-adds, with 64 outputs
    double plain_share_128 = 0;     // and with 128
    double direct_share = 0;        // of them, a loop's, whose every product reads two numbers
    double direct_share_f64 = 0;    // the same in f64
    double direct_us = 0;           // a loop begins and ends
    double direct_tap_us = 0;       // for every tap of the window
    double direct_step_us = 0;      // for every product of a sum
    // of the other cores' instructions, with a filter for every channel
    double depthwise_share = 0;
    double depthwise_us = 0;      // a block of these begins and ends
    double depthwise_row_us = 0;  // and a row of the window that nothing hides
  } conv_tiles;

  /// Convolutions with wgmma.
  struct ConvSm90 {
    double sums = 0;  // in work, at which products reach 1 - 1/e of their rate
    // of the second-level cache's rate, which the tiles of neighbours share
    double cache_share = 0;
    double ahead_us = 0;       // a step waits where few are ahead
    double round_us = 0;       // blocks follow each other
    double cluster_us = 0;     // a cluster exchanges sums
    double cluster_gbps = 0;   // of a multiprocessor, at that rate
    double write_share = 0;    // of the cache's rate, for results
    double together = 0;       // of the time of writing, for each block beside
    double memory_share = 0;   // of the memory's rate
    double small_share = 0;    // of the cache's, for what is small
    double overlap = 0;        // of the shorter of computing and memory, hidden behind the longer
    double packing_us = 0;     // an image of three channels is packed, beside a launch
    double packing_gbps = 0;   // at that rate
    double cluster_reach = 0;  // of the multiprocessors that clusters of more than two blocks fit
  } conv_sm90;

  /// Kernels that are generated from an expression.
  struct Generated {
    double latency_us = 0;  // to memory and back, twice through an empty pipeline
    // a row is folded through shuffles and shared memory, where nothing hides it
    double fold_us = 0;
    double scattered = 0;   // times the time of moving, where lanes of a row read far apart
    double merging_us = 0;  // the blocks of a result are merged
    double scan_us = 0;     // 32 elements: a sum over the lanes, each waiting for the last
  } generated;
};

/// A constant by the name that it has in the files, "gemm_sm90.arrival".
struct TimeParameter {
  std::string_view name;
  double& (*of)(TimeModel&);
};
std::span<const TimeParameter> time_parameters();

/// The constants of a GPU of this name: those of the file whose name is one of its words in lower
/// case ("NVIDIA H200": h200.txt), or typical.txt.
const TimeModel& time_model_of(std::string_view gpu);

/// Reads a file: lines of a name, a number above 0 and, behind #, whatever explains it. UserError
/// with the line where one is no constant's or comes twice, and when one is missing. The writer
/// keeps the comments of `like`.
TimeModel parse_time_model(std::string_view text, std::string_view file);
std::string time_model_text(TimeModel model, std::string_view like);

/// Made by CMake from src/kernels/cuda/times: file names and their texts.
const std::vector<std::pair<std::string_view, std::string_view>>& time_model_files();

}  // namespace tensor::cuda
