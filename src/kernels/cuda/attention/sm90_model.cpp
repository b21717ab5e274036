#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/sm90.h"
#include "src/kernels/cuda/cheapest.h"

namespace tensor::cuda {

std::string AttentionSchedule::name() const {
  return std::to_string(64 * tiles) + "x" + std::to_string(block) + "_s" + std::to_string(stages) +
         (groups > 1 ? "_g" + std::to_string(groups) : "") +
         (parts > 1 ? "_k" + std::to_string(parts) : "");
}

std::int64_t AttentionProblem::shared_bytes(const AttentionSchedule& s) const {
  const std::int64_t depth_panels = ceil_div(depth, 64), feature_panels = ceil_div(features, 64);
  const std::int64_t result_panels = staged && s.parts == 1 ? feature_panels : 0;
  return 128 * (64 * s.groups * (depth_panels + result_panels) +
                std::int64_t{s.stages} * s.block * (depth_panels + feature_panels)) +
         (s.parts > 1 ? round_up(64 * s.groups, s.parts) * (features + 4) * 4 : 0);
}

std::string AttentionProblem::fault(const AttentionSchedule& s, std::int64_t most) const {
  if (s.groups < 1 || s.groups > 3 || s.tiles < s.groups) return "groups from 1 to 3, each a tile";
  if (s.block % 16 != 0 || s.block < 16 || s.block > 272) return "blocks of 16 to 272 keys";
  if (keys > s.block && s.tiles != s.groups) return "keys in several blocks are seen by each once";
  if (s.parts < 1 || s.parts > 8) return "one to eight blocks of a cluster";
  if (s.parts > 1 && s.parts > ceil_div(keys, s.block)) return "parts without keys";
  // Sums of the scores, whose registers their exponentials take over, and of the results, which one
  // block alone does not have yet.
  const std::int64_t registers = s.block / 2 + (keys > s.block ? features / 2 : 0);
  if (registers > (s.groups == 3 ? 80 : 180)) return "too few registers";
  if (s.stages < 1) return "at least one stage";
  const std::int64_t needed = shared_bytes(s) + 1024;
  if (needed > most)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(most);
  return {};
}

int AttentionProblem::resident(const AttentionSchedule& s, const DeviceInfo& device) const {
  // Two blocks of five warps put three of them on a quarter of a multiprocessor, whose 16,384
  // registers are 168 for each thread. So many suffice without spilling (compiled by NVRTC 13).
  constexpr std::int64_t kMost = 168;
  const bool is_whole = keys <= s.block, is_exact = queries % 64 == 0;
  std::int64_t registers = s.block / 2 + std::max<std::int64_t>(features / 2, is_whole ? 0 : 20);
  registers += operations > 0 ? (is_whole ? 48 : 84) : is_exact && !is_whole ? 64 : 32;
  if (is_exact && s.tiles > 2) registers += 8;
  const bool has_room = 2 * (shared_bytes(s) + 2048) <= device.shared_bytes;
  return s.groups == 1 && has_room && registers <= kMost ? 2 : 1;
}

TimeParts model_attention_sm90(const AttentionProblem& p, const AttentionSchedule& s,
                               const Machine& machine) {
  const auto& times = machine.times.attention_sm90;
  const double clock_mhz = machine.clock_mhz;
  const auto blocks = static_cast<double>(ceil_div(ceil_div(p.keys, s.block), s.parts));
  const double scores = 64.0 * s.block;  // of a tile and a block
  // Clocks of one multiprocessor for a block: wgmma multiplies 2,048 pairs of numbers a clock,
  // beside which operations on the scores run.
  const double multiply = scores *
                          (static_cast<double>(round_up(p.depth, 16)) +
                           std::max(32.0, static_cast<double>(p.features))) /
                          2048;
  const double others = scores * (times.operations + p.operations) / times.operation_rate;
  // One after the other, with what passes between them; of several groups in part side by side.
  const double chain = blocks * (times.chain_clocks + multiply + others);
  const double bound = blocks * (times.group_clocks + others + times.group_multiply * multiply);
  const std::int64_t work = ceil_div(ceil_div(p.queries, 64), s.tiles) * p.batches * s.parts;
  const std::int64_t processors = machine.device.multiprocessors;
  const bool two_fit = p.resident(s, machine.device) == 2;
  const double resident = two_fit && work > processors ? 2 : 1;
  const double rounds = static_cast<double>(ceil_div(work, two_fit ? 2 * processors : processors));
  const double key_bytes = 2.0 * static_cast<double>(p.depth) * s.block;
  const double block_bytes = key_bytes + 2.0 * static_cast<double>(p.features) * s.block;
  const double arrival = resident * blocks * block_bytes / times.arrival;
  const double turns = static_cast<double>(ceil_div(s.tiles, s.groups));
  // With a single stage the next keys come when the last ones are used.
  const double exposed =
      s.stages == 1 && blocks > 1 ? times.exposed * blocks * block_bytes / times.arrival : 0;
  // Queries have one place, so that each turn after a block's first waits for them; and a block by
  // itself begins and ends beside nothing else.
  const double waits = times.query_clocks * resident * (turns - 1) * s.groups +
                       (rounds > 1 && resident == 1 ? times.alone_clocks : 0);
  // What is copied costs a little even where something else takes longer.
  const double clocks = std::max({turns * chain + exposed, resident * s.tiles * bound, arrival}) +
                        waits + times.arrival_beside * arrival;
  // Where a multiprocessor has room for two blocks, those that start while another kernel still
  // runs elsewhere crowd on the first that are free (in SETR-Naive-Base on an H200 12 attentions
  // took 10 us less with stages that leave no room).
  const bool crowds = blocks > 1 && work <= processors && two_fit;
  // A cluster's parts are exchanged, and summed when all have come; clusters of more than four
  // blocks begin later, and nothing runs beside a part's only block.
  const double exchange =
      s.parts > 1 ? times.exchange_clocks +
                        64.0 * static_cast<double>(p.features + 4) * 4 / times.exchange_rate +
                        times.cluster_clocks * std::max(0.0, std::ceil(s.parts / 2.0) * 2 - 4) +
                        (blocks > 1 ? 0 : times.only_block_clocks * s.block)
                  : 0;
  const double fill = crowds ? times.crowd_us : two_fit ? times.pair_us : times.fill_us;
  const double steps = rounds * turns * blocks / clock_mhz;
  const double factors =
      static_cast<double>(p.queries * (p.depth + p.features) + p.keys * (p.depth + p.features));
  return {fill + (rounds * (clocks + exchange) + key_bytes / times.arrival) / clock_mhz,
          steps * multiply, steps * others,
          2 * static_cast<double>(p.batches) * factors / machine.memory_gbps / 1e3,
          rounds * arrival / clock_mhz};
}

std::vector<AttentionSchedule> attention_sm90_schedules(const AttentionProblem& p,
                                                        const Machine& machine) {
  std::vector<AttentionSchedule> candidates;
  const std::int64_t most = machine.device.shared_block_bytes;
  const auto tiles = static_cast<int>(ceil_div(p.queries, 64));
  const auto add = [&](AttentionSchedule s) {
    if (p.fault(s, most).empty()) candidates.push_back(s);
  };
  for (const int limit : {272, 192, 176, 128, 96, 64, 16}) {
    const std::int64_t blocks = ceil_div(p.keys, limit);
    const auto block = static_cast<int>(round_up(ceil_div(p.keys, blocks), 16));
    for (const int groups : {1, 2, 3}) {
      if (blocks > 1) {
        for (const int stages : {2, 3, 1}) add({groups, groups, block, stages});
        continue;
      }
      for (const int stages : {1, 2, 3}) {
        for (int more = groups; more < std::max(tiles, groups + 1); more += groups)
          add({groups, more, block, stages});
        if (tiles > groups) add({groups, tiles, block, stages});
      }
    }
  }
  // Clusters that all run at once.
  const std::int64_t clusters = tiles * p.batches, processors = machine.device.multiprocessors;
  for (int parts = 2; clusters > 0 && parts <= 8 && parts * clusters <= processors; ++parts)
    for (const int blocks : {1, 2, 3}) {
      const std::int64_t share = ceil_div(p.keys, std::int64_t{parts} * blocks);
      const auto block = static_cast<int>(round_up(share, 16));
      for (int stages = 1; stages <= std::min(blocks, 2); ++stages)
        add({.groups = 1, .tiles = 1, .block = block, .stages = stages, .parts = parts});
    }
  return cheapest_first(candidates, [&](const AttentionSchedule& s) {
    return model_attention_sm90(p, s, machine).total;
  });
}

}  // namespace tensor::cuda
