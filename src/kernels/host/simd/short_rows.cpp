// Instructions on short rows: as many rows as there are lanes at a time, turned, so that nothing
// has to be folded across lanes. The last ones have idle lanes, so that each row has the same bits
// wherever it is.
#include "functions.h"
#include "parts.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

// Turning costs as much as folding the lanes of so many columns, or of those that are only summed.
constexpr std::int64_t kMostColumns = 64, kMostSummed = 24;
constexpr int kStreams = 4;  // of sums, so that few terms go one into the other

struct Rows {
  Floats columns[kMostColumns];
  std::int64_t count, used;  // columns; lanes

  Rows(const float* from, std::int64_t n, std::int64_t rows) : count(n), used(rows) {
    for (std::int64_t k = 0; k < n && rows < kLanes; ++k) columns[k] = Floats{};
    turn(reinterpret_cast<float*>(columns), kLanes, from, n, rows, n);
  }
  void store_to(float* to) const {
    turn(to, count, reinterpret_cast<const float*>(columns), kLanes, count, used);
  }
  template <class F>
  void each(F&& f) {
    for (std::int64_t k = 0; k < count; ++k) columns[k] = f(columns[k], k);
  }
  template <class F>
  Floats sum(F&& f) const {
    Floats streams[kStreams] = {};
    std::int64_t k = 0;
    for (; k + kStreams <= count; k += kStreams)
      unroll<kStreams>([&](int s) TENSOR_INLINED { streams[s] += f(columns[k + s]); });
    for (; k < count; ++k) streams[0] += f(columns[k]);
    return (streams[0] + streams[1]) + (streams[2] + streams[3]);
  }
  Floats sum() const {
    return sum([](Floats x) TENSOR_INLINED { return x; });
  }
  // NaNs are passed over.
  Floats largest() const {
    Floats result = splat(-__builtin_inff());
    for (std::int64_t k = 0; k < count; ++k) result = columns[k] > result ? columns[k] : result;
    return result;
  }
};

template <class F>
bool in_lanes(const Slot* slots, std::int16_t slot, std::int64_t rows, std::int64_t columns,
              F&& f) {
  if (columns > kMostColumns) return false;
  for (std::int64_t row = 0; row < rows; row += kLanes) {
    const std::int64_t left = rows - row < kLanes ? rows - row : kLanes;
    Rows some(slots[slot].data + row * columns, columns, left);
    f(some, row);
  }
  return true;
}

Floats number_at(const Slot* slots, std::int16_t slot, std::int64_t column, float absent) {
  if (slot < 0) return splat(absent);
  return splat(slots[slot].data[slots[slot].extent == Extent::number ? 0 : column]);
}

}  // namespace

bool softmax_short(const Instruction& i, const Slot* slots, std::int64_t rows,
                   std::int64_t columns) {
  return in_lanes(slots, i.a, rows, columns, [&](Rows& some, std::int64_t row) {
    const Floats top = some.largest();
    some.each([&](Floats x, std::int64_t) { return exp_negative(x - top); });
    const Floats scale = 1.0f / some.sum();
    some.each([&](Floats x, std::int64_t) { return x * scale; });
    some.store_to(slots[i.to].data + row * columns);
  });
}

bool sum_short(const Instruction& i, const Slot* slots, std::int64_t rows, std::int64_t columns,
               float divisor) {
  if (columns > kMostSummed) return false;
  return in_lanes(slots, i.a, rows, columns, [&](Rows& some, std::int64_t row) {
    float* const to = slots[i.to].data + row;
    const Floats sum = some.sum() / divisor;
    some.used < kLanes ? store_part(to, sum, some.used) : store(to, sum);
  });
}

// As `moments` in rows.cpp: deviations from a first mean, corrected by what it missed.
bool layer_norm_short(const Instruction& i, const Slot* slots, std::int64_t rows,
                      std::int64_t columns) {
  const auto n = static_cast<float>(columns);
  return in_lanes(slots, i.a, rows, columns, [&](Rows& some, std::int64_t row) {
    const Floats mean = some.sum() / n;
    some.each([&](Floats x, std::int64_t) { return x - mean; });
    const Floats missed = some.sum() / n;
    const Floats squares = some.sum([](Floats x) TENSOR_INLINED { return x * x; });
    const Floats variance = at_least(squares / n - missed * missed, Floats{});
    const Floats scale = 1.0f / square_root(variance + i.number);
    some.each([&](Floats x, std::int64_t k) {
      return (x - missed) * scale * number_at(slots, i.b, k, 1) + number_at(slots, i.c, k, 0);
    });
    some.store_to(slots[i.to].data + row * columns);
  });
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
