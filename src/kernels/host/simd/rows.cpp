// Instructions on whole rows: sums and extremes, softmax, layer_norm. Sums run in 64 or more float
// lanes (16 for vectors of 4) over short stretches, which are added in double.
#include "functions.h"
#include "parts.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

constexpr int kStreams = 4;                                // independent accumulators
constexpr std::int64_t kStretch = 16 * kStreams * kLanes;  // elements summed in float

// Calls f(vector, stream) for every vector of a row; lanes beyond its end hold `beyond`.
template <class F>
void scan(const float* row, std::int64_t count, Floats beyond, F&& f) {
  std::int64_t i = 0;
  for (; i + kStreams * kLanes <= count; i += kStreams * kLanes)
    for (int s = 0; s < kStreams; ++s) f(load(row + i + s * kLanes), s);
  for (; i + kLanes <= count; i += kLanes) f(load(row + i), 0);
  if (i < count) {
    const Floats part = load_part(row + i, count - i);
    Floats index;
    for (int lane = 0; lane < kLanes; ++lane) index[lane] = static_cast<float>(lane);
    f(index < splat(static_cast<float>(count - i)) ? part : beyond, 1);
  }
}

// Applies f to every vector of a row.
template <class F>
void transform(float* to, const float* row, std::int64_t count, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, f(load(row + i), i));
  if (i < count) store_part(to + i, f(load_part(row + i, count - i), i), count - i);
}

Floats total(const Floats (&streams)[kStreams]) {
  return (streams[0] + streams[1]) + (streams[2] + streams[3]);
}

// The sum of f(x) over a row; f(beyond) must be 0.
template <class F>
double sum(const float* row, std::int64_t count, Floats beyond, F&& f) {
  double result = 0;
  for (std::int64_t begin = 0; begin < count; begin += kStretch) {
    Floats streams[kStreams] = {};
    const std::int64_t length = count - begin < kStretch ? count - begin : kStretch;
    scan(row + begin, length, beyond, [&](Floats x, int s) { streams[s] += f(x); });
    result += sum_of(total(streams));
  }
  return result;
}

double plain_sum(const float* row, std::int64_t count) {
  return sum(row, count, Floats{}, [](Floats x) { return x; });
}

// The largest element, NaN if there is one and `nan_wins`.
template <bool nan_wins>
float largest(const float* row, std::int64_t count) {
  const Floats lowest = splat(-__builtin_inff());
  Floats streams[kStreams] = {lowest, lowest, lowest, lowest};
  scan(row, count, lowest, [&](Floats x, int s) {
    streams[s] = nan_wins ? (((x > streams[s]) | (x != x)) ? x : streams[s])
                          : (x > streams[s] ? x : streams[s]);
  });
  float result = -__builtin_inff();
  for (int s = 0; s < kStreams; ++s)
    for (int i = 0; i < kLanes; ++i) {
      const float x = streams[s][i];
      if (x > result || (nan_wins && x != x)) result = x;
      if (nan_wins && x != x) return x;
    }
  return result;
}

float smallest(const float* row, std::int64_t count) {
  const Floats highest = splat(__builtin_inff());
  Floats streams[kStreams] = {highest, highest, highest, highest};
  scan(row, count, highest,
       [&](Floats x, int s) { streams[s] = ((x < streams[s]) | (x != x)) ? x : streams[s]; });
  float result = __builtin_inff();
  for (int s = 0; s < kStreams; ++s)
    for (int i = 0; i < kLanes; ++i) {
      if (streams[s][i] != streams[s][i]) return streams[s][i];
      if (streams[s][i] < result) result = streams[s][i];
    }
  return result;
}

// Mean and sum of squared deviations, in two passes: the second one from a first mean, corrected by
// what it missed, so that a small variance far from zero is not lost.
struct Moments {
  float first_mean;  // deviations are taken from it exactly
  double correction, squares;
};
Moments moments(const float* row, std::int64_t count) {
  const double n = static_cast<double>(count);
  Moments m{static_cast<float>(plain_sum(row, count) / n), 0, 0};
  const Floats mean = splat(m.first_mean);
  for (std::int64_t begin = 0; begin < count; begin += kStretch) {
    Floats streams[kStreams] = {}, squares[kStreams] = {};
    const std::int64_t length = count - begin < kStretch ? count - begin : kStretch;
    scan(row + begin, length, mean, [&](Floats x, int s) {
      const Floats d = x - mean;
      streams[s] += d;
      squares[s] += d * d;
    });
    m.correction += sum_of(total(streams));
    m.squares += sum_of(total(squares));
  }
  m.correction /= n;
  m.squares -= n * m.correction * m.correction;
  if (m.squares < 0) m.squares = 0;
  return m;
}

template <class F>
void reduce(const Instruction& instruction, const Slot* slots, std::int64_t rows,
            std::int64_t columns, F&& f) {
  const float* from = slots[instruction.a].data;
  for (std::int64_t r = 0; r < rows; ++r)
    slots[instruction.to].data[r] = static_cast<float>(f(from + r * columns, columns));
}

void row_sum(const Instruction& i, const Slot* slots, std::int64_t rows, std::int64_t columns) {
  if (sum_short(i, slots, rows, columns, 1)) return;
  reduce(i, slots, rows, columns, plain_sum);
}
void row_mean(const Instruction& i, const Slot* slots, std::int64_t rows, std::int64_t columns) {
  if (sum_short(i, slots, rows, columns, static_cast<float>(columns))) return;
  const auto mean = [](const float* row, std::int64_t count) {
    return plain_sum(row, count) / static_cast<double>(count);
  };
  reduce(i, slots, rows, columns, mean);
}
void row_max(const Instruction& i, const Slot* slots, std::int64_t rows, std::int64_t columns) {
  reduce(i, slots, rows, columns, largest<true>);
}
void row_min(const Instruction& i, const Slot* slots, std::int64_t rows, std::int64_t columns) {
  reduce(i, slots, rows, columns, smallest);
}
void row_var(const Instruction& i, const Slot* slots, std::int64_t rows, std::int64_t columns) {
  const double divisor = static_cast<double>(columns) - static_cast<double>(i.number);
  reduce(i, slots, rows, columns, [&](const float* row, std::int64_t count) {
    return moments(row, count).squares / divisor;
  });
}

// A row of -inf alone, and one with NaN or +inf, becomes NaN.
void softmax(const Instruction& instruction, const Slot* slots, std::int64_t rows,
             std::int64_t columns) {
  if (softmax_short(instruction, slots, rows, columns)) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = slots[instruction.a].data + r * columns;
    float* to = slots[instruction.to].data + r * columns;
    const Floats top = splat(largest<false>(from, columns));
    transform(to, from, columns, [&](Floats x, std::int64_t) { return exp_negative(x - top); });
    const Floats scale = splat(static_cast<float>(1 / plain_sum(to, columns)));
    transform(to, to, columns, [&](Floats x, std::int64_t) { return x * scale; });
  }
}

void log_softmax(const Instruction& instruction, const Slot* slots, std::int64_t rows,
                 std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = slots[instruction.a].data + r * columns;
    float* to = slots[instruction.to].data + r * columns;
    const Floats top = splat(largest<false>(from, columns));
    const double total = sum(from, columns, splat(-__builtin_inff()),
                             [&](Floats x) { return exp_negative(x - top); });
    const Floats log_total = splat(static_cast<float>(__builtin_log(total)));
    transform(to, from, columns, [&](Floats x, std::int64_t) { return x - top - log_total; });
  }
}

// A weight or bias of layer_norm: a column, one number, or absent.
struct Column {
  const float* data;
  bool is_number;
  Column(const Slot* slots, std::int16_t slot, const float* absent)
      : data(slot < 0 ? absent : slots[slot].data),
        is_number(slot < 0 || slots[slot].extent == Extent::number) {}
  Floats at(std::int64_t i, std::int64_t count) const {
    if (is_number) return splat(*data);
    return i + kLanes <= count ? load(data + i) : load_part(data + i, count - i);
  }
};

void layer_norm(const Instruction& instruction, const Slot* slots, std::int64_t rows,
                std::int64_t columns) {
  if (layer_norm_short(instruction, slots, rows, columns)) return;
  constexpr float kOne = 1, kZero = 0;
  const Column weight(slots, instruction.b, &kOne), bias(slots, instruction.c, &kZero);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = slots[instruction.a].data + r * columns;
    float* to = slots[instruction.to].data + r * columns;
    const Moments m = moments(from, columns);
    const double variance = m.squares / static_cast<double>(columns);
    const Floats scale = splat(
        static_cast<float>(1 / __builtin_sqrt(variance + static_cast<double>(instruction.number))));
    const Floats mean = splat(m.first_mean), rest = splat(static_cast<float>(m.correction));
    transform(to, from, columns, [&](Floats x, std::int64_t i) {
      return ((x - mean) - rest) * scale * weight.at(i, columns) + bias.at(i, columns);
    });
  }
}

struct Row {
  Op op;
  Run run;
};
constexpr Row kRows[] = {
    {Op::sum, row_sum},
    {Op::mean, row_mean},
    {Op::max, row_max},
    {Op::min, row_min},
    {Op::var, row_var},
    {Op::softmax, softmax},
    {Op::log_softmax, log_softmax},
    {Op::layer_norm, layer_norm},
};

}  // namespace

Run rowwise(Op op) {
  for (const Row& row : kRows)
    if (row.op == op) return row.run;
  return nullptr;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
