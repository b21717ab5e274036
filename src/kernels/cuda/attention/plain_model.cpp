// Which schedule attention in float32 gets without measuring: a model of what bounds it.
#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/plain.h"
#include "src/kernels/cuda/cheapest.h"

namespace tensor::cuda {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

// A tile of shared memory in floats, and a warp's weights, as in the kernel.
std::int64_t plain_tile_bytes(std::int64_t lines, std::int64_t width) {
  return round_up(lines * (width + 4) * kFloat, 128);
}
std::int64_t weight_bytes(const AttentionPlainSchedule& s) {
  const std::int64_t pitch = (s.rows + 7) / 16 * 16 + 8;
  return s.warps * s.slices * s.keys * pitch * kFloat;
}

// What some blocks take that a multiprocessor has at a time, in its clocks. Products take what they
// take in gemm_plain.
class PlainBlocks {
 public:
  PlainBlocks(const AttentionProblem& p, const AttentionPlainSchedule& s, const Machine& machine)
      : p_(p), s_(s), machine_(machine), times_(machine.times.attention_plain) {
    const auto processors = static_cast<double>(machine.device.multiprocessors);
    cores_ = machine.f32_tflops * 1e6 / machine.clock_mhz / processors / 2;
  }

  double width() const { return static_cast<double>(p_.depth + p_.features); }
  // The two products of a block of keys, and what a warp does with their scores.
  double multiply(double blocks) const {
    return blocks * s_.queries() * s_.block() * width() / cores_;
  }
  double soften(double blocks) const {
    return blocks * s_.queries() * s_.block() * (times_.operations + p_.operations) / cores_;
  }
  double arrival(double blocks, double lines) const {
    return blocks * lines * static_cast<double>(kFloat) / machine_.arrival;
  }

  double step(double blocks) const {
    const auto& plain = machine_.times.gemm_plain;
    const double warps = s_.warps * s_.slices;
    const double issued = plain.instructions * multiply(1) + soften(1);
    // A scheduler has a quarter of the warps, or one more than others have; each further one hides
    // some of what one waits for.
    const double of_scheduler = std::ceil(blocks * warps / 4), of_warp = 4 * issued / warps;
    const double crowded = times_.step_clocks + of_warp * (1 + plain.crowd * (of_scheduler - 1));
    // A lane reads its own rows and columns, whatever its neighbours read; weights come and go.
    const double down = s_.rows / 4.0, across = s_.keys / 8.0;
    const double floats = static_cast<double>(p_.depth) * (down + across) +
                          s_.keys * (down + static_cast<double>(p_.features) / 8) +
                          2 * down * across;
    const double lines = warps * 32 * floats * static_cast<double>(kFloat);
    const double copied = s_.block() * width();
    return std::max({crowded,
                     blocks * (lines + copied * static_cast<double>(kFloat)) / plain.shared_rate,
                     arrival(blocks, copied)});
  }

  // From the start to the first block of keys, and what follows the last.
  double begin(double blocks) const {
    const double lines = static_cast<double>((s_.queries() + s_.block()) * p_.depth);
    return times_.start_clocks + arrival(blocks, lines);
  }
  double finish(double blocks) const {
    const double results = blocks * static_cast<double>(s_.queries() * p_.features);
    const double bytes = results * static_cast<double>(kFloat);
    return bytes * 2 * s_.slices / machine_.times.gemm_plain.shared_rate +
           bytes / machine_.times.gemm_tiles.store_rate;
  }

 private:
  const AttentionProblem& p_;
  const AttentionPlainSchedule& s_;
  const Machine& machine_;
  const TimeModel::AttentionPlain& times_;
  double cores_ = 0;  // multiply-adds a clock
};

// Whose threads have so many registers, of which each of four schedulers has a quarter.
std::int64_t warps_of(int registers, const Machine& machine) {
  return 4 * (machine.device.registers / (4 * 32) / registers);
}

std::string shape_fault(const AttentionPlainSchedule& s, std::int64_t keys,
                        const Machine& machine) {
  if (s.rows % 4 != 0 || s.rows < 4 || s.rows > 32) return "rows in fours, at most 32";
  if (s.keys % 8 != 0 || s.keys < 8 || s.keys > 64) return "keys in eights, at most 64";
  if (s.warps < 1 || s.slices < 1 || s.threads() > 256) return "256 threads at most";
  if (!machine.copies_async || keys <= s.block()) {
    if (s.stages != 1) return "one stage where all keys are there at once, or copies wait";
  } else if (s.stages < 2 || s.stages > 3) {
    return "two or three stages of keys that come by themselves";
  }
  return {};
}

}  // namespace

std::string AttentionPlainSchedule::name() const {
  return std::to_string(queries()) + "x" + std::to_string(block()) + "_s" + std::to_string(stages) +
         (slices > 1 ? "_w" + std::to_string(slices) : "");
}

std::int64_t AttentionProblem::shared_bytes(const AttentionPlainSchedule& s) const {
  const std::int64_t wide = round_up(depth, std::int64_t{8});
  const std::int64_t loop =
      plain_tile_bytes(s.queries(), wide) + weight_bytes(s) +
      s.stages * (plain_tile_bytes(s.block(), wide) + plain_tile_bytes(s.block(), features));
  return std::max(loop, s.slices * s.queries() * (features + 4 + 2) * kFloat);
}

// Results, beside them scores and what the first product reads or what the second does; maximum,
// sum and factor of each query; addresses.
int attention_plain_registers(const AttentionProblem& p, const AttentionPlainSchedule& s) {
  const int down = s.rows / 4, across = s.keys / 8, wide = static_cast<int>(p.features / 8);
  const int first = down * across + 4 * across + 8, second = down + wide + 8;
  return round_up(down * wide + std::max({first, second, 24}) + 3 * down + 60, 8);
}

std::string AttentionProblem::fault(const AttentionPlainSchedule& s, const Machine& machine) const {
  if (std::string fault = shape_fault(s, keys, machine); !fault.empty()) return fault;
  const int registers = attention_plain_registers(*this, s);
  // There are 255, which is 256 in eights. Without cp.async keys go through some of them.
  if (registers > (machine.copies_async ? 256 : 240) ||
      warps_of(registers, machine) * 32 < s.threads())
    return "too few registers";
  const std::int64_t needed = shared_bytes(s), most = machine.device.shared_block_bytes;
  if (needed > most)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(most);
  return {};
}

std::int64_t resident_blocks(const AttentionProblem& p, const AttentionPlainSchedule& s,
                             const Machine& machine) {
  const DeviceInfo& device = machine.device;
  const std::int64_t threads = s.threads();
  const std::int64_t warps = warps_of(attention_plain_registers(p, s), machine);
  return std::max<std::int64_t>(
      1, std::min({32 * warps / threads, device.threads / threads,
                   device.shared_bytes / (p.shared_bytes(s) + 1024), std::int64_t{16}}));
}

TimeParts model_attention_plain(const AttentionProblem& p, const AttentionPlainSchedule& s,
                                const Machine& machine) {
  const PlainBlocks one(p, s, machine);
  const std::int64_t blocks = ceil_div(ceil_div(p.queries, s.queries()) * p.batches,
                                       std::int64_t{machine.device.multiprocessors});
  const std::int64_t resident = std::min(resident_blocks(p, s, machine), blocks);
  const auto steps = static_cast<double>(ceil_div(p.keys, s.block()));
  // A single stage waits for each block.
  const double waits = s.stages == 1 && steps > 1 ? steps - 1 : 0;
  // The last ones have the multiprocessor to themselves.
  double clocks = 0, finish = 0;
  const auto add = [&](std::int64_t rounds, std::int64_t of_round) {
    if (rounds == 0 || of_round == 0) return;
    const auto n = static_cast<double>(of_round), times = static_cast<double>(rounds);
    const double after = one.finish(n) + steps * one.soften(n);
    clocks += times * (one.begin(n) * (1 + waits) + steps * one.step(n) + one.finish(n));
    finish += times * after;
  };
  add(blocks / resident, resident);
  add(1, blocks % resident);
  const double batches = static_cast<double>(p.batches), queries = static_cast<double>(p.queries),
               keys = static_cast<double>(p.keys);
  const double bytes = batches * (queries + keys) * one.width() * static_cast<double>(kFloat);
  const double tiles = static_cast<double>(ceil_div(p.queries, s.queries()));
  const double read =
      batches * (queries + tiles * keys) * one.width() * static_cast<double>(kFloat);
  const double memory = bytes / machine.memory_gbps / 1e3, cache = read / machine.l2_gbps / 1e3;
  const auto all = static_cast<double>(blocks);
  return {std::max({clocks / machine.clock_mhz, memory, cache}),
          steps * one.multiply(all) / machine.clock_mhz, finish / machine.clock_mhz, memory, cache};
}

std::vector<AttentionPlainSchedule> attention_plain_schedules(const AttentionProblem& p,
                                                              const Machine& machine) {
  std::vector<AttentionPlainSchedule> candidates;
  for (const int rows : {4, 8, 16, 20, 24, 32})
    for (const int warps : {1, 2, 4})
      for (const int slices : {1, 2, 3, 4, 5, 6, 7, 8})
        for (const int keys : {16, 32, 40, 56, 64})
          for (const int stages : {1, 2}) {
            const AttentionPlainSchedule s{rows, warps, slices, keys, stages};
            if (p.fault(s, machine).empty()) candidates.push_back(s);
          }
  return cheapest_first(candidates, [&](const AttentionPlainSchedule& s) {
    return model_attention_plain(p, s, machine).total;
  });
}

}  // namespace tensor::cuda
