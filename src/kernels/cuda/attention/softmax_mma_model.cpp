#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/softmax_mma.h"
#include "src/kernels/cuda/cheapest.h"
#include "src/kernels/cuda/generated/pack_kernel.h"

namespace tensor::cuda {

bool keeps_queries(const SoftmaxProblem& p, const SoftmaxSchedule& s) {
  return p.keys > s.block && s.slabs * filled(p.depth) <= 128;
}

std::int64_t SoftmaxProblem::shared_bytes(const SoftmaxSchedule& s) const {
  constexpr std::int64_t kStaged = 16 * 40 * 4;  // of a warp, as in the kernel
  return attention_tile_bytes(s.queries(), depth) +
         s.stages * attention_tile_bytes(s.block, depth) + s.warps * kStaged;
}

std::string SoftmaxProblem::fault(const SoftmaxSchedule& s, const Machine& machine) const {
  if (std::string fault = s.fault(keys, machine); !fault.empty()) return fault;
  // Scores, and queries that stay. What compiles without spills for every GPU.
  std::int64_t registers = s.slabs * s.block / 2;
  if (keeps_queries(*this, s)) registers += s.slabs * filled(depth) / 4;
  if (registers > (passes(s) == 1 ? 144 : s.slabs > 1 ? 112 : 136)) return "too few registers";
  const std::int64_t needed = shared_bytes(s), most = machine.device.shared_block_bytes;
  if (needed > most)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(most);
  return {};
}

double resident_blocks(const SoftmaxProblem& p, const SoftmaxSchedule& s, const Machine& machine) {
  const double queries = static_cast<double>(keeps_queries(p, s) ? filled(p.depth) / 4 : 4);
  const double registers = s.slabs * (s.block / 2. + queries) + 72;
  return resident_blocks(s, registers, p.shared_bytes(s), machine.device);
}

TimeParts model_softmax_mma(const SoftmaxProblem& p, const SoftmaxSchedule& s,
                            const Machine& machine) {
  const auto& times = machine.times.attention_mma;
  const double clock_mhz = machine.clock_mhz, processors = machine.device.multiprocessors;
  const auto a_clock = [&](double tera) { return tera * 1e6 / clock_mhz / processors; };
  const double blocks = static_cast<double>(ceil_div(p.keys, s.block));
  const double work = static_cast<double>(ceil_div(p.queries, s.queries()) * p.batches);
  const double resident =
      std::clamp(std::ceil(work / processors), 1.0, resident_blocks(p, s, machine));
  const double rounds = std::ceil(work / (processors * resident));
  // Clocks of a multiprocessor for a block of keys, as in model_attention_mma, but that no results
  // grow and nothing is packed.
  const double width = static_cast<double>(filled(p.depth));
  const double scores = static_cast<double>(s.queries()) * s.block;
  const double simple = a_clock(machine.f32_tflops) / 2;  // operations
  const double multiply = 2 * scores * width / a_clock(mma_tflops(Multiplier::mma, machine));
  const double operands = s.warps * s.block * width * 2 / 128;
  // Barriers, addresses and what lanes of a row tell each other, for each slab four at a time.
  const double others =
      s.warps * s.slabs * times.slab_clocks / 4 +
      scores * ((times.weight_operations + p.before.operations) / simple +
                1 / a_clock(machine.special_tops) + p.before.read_bytes / times.store_rate);
  const double arrival = s.block * width * 2 / machine.arrival;
  // One warp alone has a quarter of the multiprocessor, and waits between the steps.
  const double alone = std::max(1.0, 4.0 / s.warps);
  const double chain = times.between_clocks + alone * (std::max(multiply, operands) + others) +
                       (s.stages == 1 && blocks > 1 ? times.exposed_clocks + arrival : 0);
  const double bound =
      resident * std::max({multiply + others / 2, operands + others / 2, others, arrival});
  // Weights go through shared memory, 8 bytes each, and are stored as results of products are.
  const double finish = resident * scores *
                        ((times.stored_operations + p.after.operations) / simple + 8. / 128 +
                         (p.after.read_bytes + p.after.written_bytes) / times.store_rate);
  const double clocks = rounds * (times.start_clocks + arrival * resident +
                                  blocks * (p.passes(s) * std::max(chain, bound) + finish));
  const double batches = static_cast<double>(p.batches);
  const double factors = 2 * batches * static_cast<double>((p.queries + p.keys) * p.depth);
  const double results = batches * static_cast<double>(p.queries * p.keys) *
                         (p.before.read_bytes + p.after.read_bytes + p.after.written_bytes);
  const double memory = (factors + results) / machine.memory_gbps / 1e3;
  // Rows that are not made of chunks of 16 bytes are copied by two kernels before.
  const double copies =
      p.depth % kChunk == 0 ? 0 : 2 * machine.launch_us + 2 * moving_us(machine, factors);
  const double all = rounds * blocks * resident / clock_mhz;  // microseconds a clock of a block
  return {std::max(clocks / clock_mhz, memory) + copies, p.passes(s) * all * multiply,
          all * (p.passes(s) * others + finish / resident), memory, p.passes(s) * all * arrival};
}

std::vector<SoftmaxSchedule> softmax_mma_schedules(const SoftmaxProblem& p,
                                                   const Machine& machine) {
  std::vector<SoftmaxSchedule> candidates;
  for (const int limit : {272, 192, 128, 96, 64, 48, 32, 16}) {
    const std::int64_t blocks = ceil_div(p.keys, limit);
    const auto block = static_cast<int>(filled(ceil_div(p.keys, blocks)));
    for (const int stages : {1, 2, 3})
      for (const int warps : {1, 2, 4, 8})
        for (const int slabs : {1, 2}) {
          const SoftmaxSchedule s{warps, slabs, block, stages};
          const bool is_filled = warps * slabs == 1 || 8 * warps * slabs < p.queries + 16;
          if (is_filled && p.fault(s, machine).empty()) candidates.push_back(s);
        }
  }
  return cheapest_first(
      candidates, [&](const SoftmaxSchedule& s) { return model_softmax_mma(p, s, machine).total; });
}

}  // namespace tensor::cuda
