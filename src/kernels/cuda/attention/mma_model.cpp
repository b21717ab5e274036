#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/mma.h"
#include "src/kernels/cuda/cheapest.h"

namespace tensor::cuda {

bool keeps_queries(const AttentionProblem& p, const AttentionMmaSchedule& s) {
  return p.keys > s.block && s.slabs * filled(p.depth) <= 128;
}

std::string AttentionMmaSchedule::name() const {
  return std::to_string(queries()) + "x" + std::to_string(block) + "_s" + std::to_string(stages) +
         (slabs > 1 ? "_w" + std::to_string(warps) : "");
}

std::int64_t attention_tile_bytes(std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kPad = 8;  // elements, as in the kernel
  return round_up(rows * (filled(width) + kPad) * 2, 128);
}

std::int64_t AttentionProblem::shared_bytes(const AttentionMmaSchedule& s) const {
  return attention_tile_bytes(s.queries(), depth) +
         s.stages *
             (attention_tile_bytes(s.block, depth) + attention_tile_bytes(s.block, features));
}

std::string AttentionMmaSchedule::fault(std::int64_t keys, const Machine& machine) const {
  if (warps < 1 || warps > 8) return "warps from 1 to 8";
  if (slabs < 1 || slabs > 2) return "one slab of 16 queries a warp, or two";
  if (block % 16 != 0 || block < 16 || block > 272) return "blocks of 16 to 272 keys";
  if (!machine.copies_async || keys <= block) {
    if (stages != 1) return "one stage where all keys are there at once, or copies wait";
  } else if (stages < 2 || stages > 4) {
    return "two to four stages of keys that come by themselves";
  }
  return {};
}

std::string AttentionProblem::fault(const AttentionMmaSchedule& s, const Machine& machine) const {
  if (std::string fault = s.fault(keys, machine); !fault.empty()) return fault;
  // Sums of the scores, whose registers their exponentials take over, and of the results, which one
  // block alone does not have yet; queries that stay. What compiles without spills for every GPU.
  const bool is_whole = keys <= s.block, is_wide = std::max(depth, features) > 64;
  if (s.slabs > 1 && (is_wide || s.block > (is_whole ? 128 : 64)))
    return "too few registers for two slabs";
  std::int64_t registers = s.slabs * s.block / 2;
  if (!is_whole) registers += s.slabs * features / 2;
  if (keeps_queries(*this, s)) registers += s.slabs * filled(depth) / 4;
  if (registers > (s.slabs > 1 ? 160 : machine.copies_async ? 144 : 136))
    return "too few registers";
  if (!is_whole && s.block > 128) return "blocks of at most 128 keys where there are several";
  const std::int64_t needed = shared_bytes(s), most = machine.device.shared_block_bytes;
  if (needed > most)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(most);
  return {};
}

double resident_blocks(const AttentionMmaSchedule& s, double registers, std::int64_t shared_bytes,
                       const DeviceInfo& device) {
  const double fit = std::min(
      {device.registers / (std::min(registers, 255.0) * s.threads()),
       device.threads / static_cast<double>(s.threads()),
       static_cast<double>(device.shared_bytes) / (static_cast<double>(shared_bytes) + 1024),
       16.0});
  return std::max(1.0, std::floor(fit));
}

double resident_blocks(const AttentionProblem& p, const AttentionMmaSchedule& s,
                       const Machine& machine) {
  const double registers =
      s.slabs * (s.block + static_cast<double>(p.features + filled(p.depth) / 2)) / 2 + 80;
  return resident_blocks(s, registers, p.shared_bytes(s), machine.device);
}

TimeParts model_attention_mma(const AttentionProblem& p, const AttentionMmaSchedule& s,
                              const Machine& machine) {
  const auto& times = machine.times.attention_mma;
  const double clock_mhz = machine.clock_mhz, processors = machine.device.multiprocessors;
  const auto a_clock = [&](double tera) { return tera * 1e6 / clock_mhz / processors; };
  const double blocks = static_cast<double>(ceil_div(p.keys, s.block));
  const double work = static_cast<double>(ceil_div(p.queries, s.queries()) * p.batches);
  const double resident =
      std::clamp(std::ceil(work / processors), 1.0, resident_blocks(p, s, machine));
  const double rounds = std::ceil(work / (processors * resident));
  // Clocks of a multiprocessor for a block of keys: the products, their operands from shared memory
  // at 128 bytes a clock (each warp reads all), and operations on a score with an exponential.
  const double width = static_cast<double>(filled(p.depth) + p.features);
  const double scores = static_cast<double>(s.queries()) * s.block;
  const double multiply = 2 * scores * width / a_clock(mma_tflops(Multiplier::mma, machine));
  const double operands = s.warps * s.block * width * 2 / 128;
  const double others =
      scores * ((times.operations + p.operations) / (a_clock(machine.f32_tflops) / 2) +
                1 / a_clock(machine.special_tops));
  const double arrival = s.block * width * 2 / machine.arrival;
  // One warp alone has a quarter of the multiprocessor, and waits between the steps.
  const double alone = std::max(1.0, 4.0 / s.warps);
  const double chain = times.between_clocks + alone * (std::max(multiply, operands) + others) +
                       (s.stages == 1 && blocks > 1 ? times.exposed_clocks + arrival : 0);
  const double bound =
      resident * std::max({multiply + others / 2, operands + others / 2, others, arrival});
  const double step = std::max(chain, bound);
  const double written =
      static_cast<double>(s.queries() * p.features) * 4 / times.store_rate * resident;
  const double clocks =
      rounds * (times.start_clocks + arrival * resident + blocks * step + written);
  const double bytes =
      2.0 * static_cast<double>(p.batches) *
      static_cast<double>(p.queries * (p.depth + p.features) + p.keys * (p.depth + p.features));
  const double memory = bytes / machine.memory_gbps / 1e3;
  const double all = rounds * blocks * resident / clock_mhz;  // microseconds a clock of a block
  return {std::max(clocks / clock_mhz, memory), all * multiply, all * others, memory,
          all * arrival};
}

std::vector<AttentionMmaSchedule> attention_mma_schedules(const AttentionProblem& p,
                                                          const Machine& machine) {
  std::vector<AttentionMmaSchedule> candidates;
  const auto add = [&](const AttentionMmaSchedule& s) {
    if (p.fault(s, machine).empty()) candidates.push_back(s);
  };
  for (const int limit : {272, 128, 96, 64, 48, 32, 16}) {
    const std::int64_t blocks = ceil_div(p.keys, limit);
    const auto block = static_cast<int>(filled(ceil_div(p.keys, blocks)));
    for (const int stages : {1, 2, 3})
      for (const int warps : {1, 2, 4, 8})
        for (const int slabs : {1, 2})
          // One warp alone takes long to copy its keys.
          if (warps == 1 ? p.queries <= 16 : 8 * warps * slabs < p.queries + 16)
            add({warps, slabs, block, stages});
  }
  return cheapest_first(candidates, [&](const AttentionMmaSchedule& s) {
    return model_attention_mma(p, s, machine).total;
  });
}

}  // namespace tensor::cuda
