// Which schedule a product on the ordinary cores gets without measuring: a model of what bounds it.
#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/gemm/mma.h"

namespace tensor::cuda {
namespace {

// What some blocks take that a multiprocessor has at a time, in its clocks.
class Multiprocessor {
 public:
  Multiprocessor(const GemmProblem& p, const TileSchedule& s, const Machine& machine)
      : p_(p), s_(s), machine_(machine), times_(machine.times.gemm_plain) {
    const auto processors = static_cast<double>(machine.device.multiprocessors);
    cores_ = machine.f32_tflops * 1e6 / machine.clock_mhz / processors / 2;
  }

  double multiply(double blocks) const { return blocks * products() / cores_; }

  double step(double blocks) const {
    const double warps = s_.threads() / 32.0, tile_k = s_.tile_k(Multiplier::plain);
    const double down = s_.tile_m / s_.down / 4.0, across = s_.tile_n / s_.across / 8.0;
    // A lane reads its own rows and columns, whatever its neighbours read.
    const double lines = warps * 32 * (tile_k / s_.slices) * (down + across) * sizeof(float);
    const double copied = (s_.tile_m + s_.tile_n) * tile_k * sizeof(float);
    const double arrival = copied / machine_.arrival;
    const double issued = times_.instructions * multiply(1);
    // A scheduler has a quarter of the warps; each further one hides some of what one waits for.
    const double of_scheduler = std::max(blocks * warps / 4, 1.0), of_warp = 4 * issued / warps;
    const double crowded = times_.step_clocks + of_warp * (1 + times_.crowd * (of_scheduler - 1));
    return std::max({crowded, blocks * (lines + copied) / times_.shared_rate, blocks * arrival});
  }

  double finish(double blocks) const {
    const auto& times = machine_.times.gemm_tiles;
    const double elements = blocks * s_.tile_m * s_.tile_n;
    const double shared = elements * 2 * s_.slices * sizeof(float) / times_.shared_rate;
    if (s_.parts > 1) return shared + elements * sizeof(float) / times.store_rate;
    return shared + elements * (times.operations + p_.operations) / times.operation_rate +
           elements * (p_.read_bytes + p_.written_bytes) / times.store_rate;
  }

 private:
  double products() const {
    return static_cast<double>(s_.tile_m) * s_.tile_n * s_.tile_k(Multiplier::plain);
  }

  const GemmProblem& p_;
  const TileSchedule& s_;
  const Machine& machine_;
  const TimeModel::GemmPlain& times_;
  double cores_ = 0;  // multiply-adds a clock
};

}  // namespace

// It would take all there are: sums, operands, addresses, and what comes through registers, which
// is more of few threads, and everything before sm_80. With 128 sums 255 are all that there are.
int plain_registers(const TileSchedule& s, const Machine& machine) {
  if (s.sums() > 64) return 255;
  if (s.sums() == 64) return s.threads() < 256 || machine.is_short_of_registers ? 168 : 128;
  return machine.copies_async ? 96 : 128;
}

std::int64_t resident_plain_blocks(const TileSchedule& s, const Machine& machine) {
  const DeviceInfo& device = machine.device;
  const std::int64_t threads = s.threads();
  const std::int64_t shared = shared_bytes(s, Multiplier::plain) + 1024;
  return std::max<std::int64_t>(
      1, std::min({device.registers / (plain_registers(s, machine) * threads),
                   device.threads / threads, device.shared_bytes / shared, std::int64_t{16}}));
}

TimeParts model_gemm_plain(const GemmProblem& p, const TileSchedule& s, const Machine& machine) {
  const Multiprocessor one(p, s, machine);
  const std::int64_t tile_k = s.tile_k(Multiplier::plain);
  const std::int64_t tiles = ceil_div(p.m, s.tile_m) * ceil_div(p.n, s.tile_n) * p.batches;
  const std::int64_t blocks = ceil_div(tiles * s.parts, machine.device.multiprocessors);
  const std::int64_t resident = std::min(resident_plain_blocks(s, machine), blocks);
  const auto steps = static_cast<double>(ceil_div(ceil_div(p.k, tile_k), s.parts));
  // The last ones have the multiprocessor to themselves.
  double clocks = 0, finish = 0;
  const auto add = [&](std::int64_t rounds, std::int64_t of_round) {
    if (rounds == 0 || of_round == 0) return;
    const auto n = static_cast<double>(of_round), times = static_cast<double>(rounds);
    clocks += times * (steps * one.step(n) + machine.times.gemm_plain.start_clocks + one.finish(n));
    finish += times * one.finish(n);
  };
  add(blocks / resident, resident);
  add(1, blocks % resident);
  const double batches = static_cast<double>(p.batches), m = static_cast<double>(p.m),
               n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double results = batches * m * n, own = results * (p.read_bytes + p.written_bytes);
  const double factors = batches * sizeof(float) * (m * k + n * k);
  // Every tile reads its own rows and columns.
  const double read = static_cast<double>(tiles * (s.tile_m + s.tile_n)) * k * sizeof(float);
  const double between = s.parts > 1 ? results * sizeof(float) * s.parts : 0;
  const double memory = (factors + (s.parts > 1 ? 0 : own)) / machine.memory_gbps / 1e3;
  const double cache = (read + between) / machine.l2_gbps / 1e3;
  const double second = s.parts > 1 ? machine.launch_us + machine.times.gemm_tiles.second_us +
                                          (between + own) / machine.l2_gbps / 1e3
                                    : 0;
  return {std::max({clocks / machine.clock_mhz, memory, cache}) + second,
          steps * one.multiply(static_cast<double>(blocks)) / machine.clock_mhz,
          finish / machine.clock_mhz + second, memory, cache};
}

}  // namespace tensor::cuda
