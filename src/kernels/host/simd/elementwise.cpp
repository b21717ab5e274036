// Elementwise instructions: a vector function over lines of operands that are vectors or one number
// for the whole line.
#include "functions.h"
#include "parts.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

struct Line {
  const float* data;
  bool is_number;
};

Floats read(Line line, std::int64_t at) {
  return line.is_number ? splat(*line.data) : load(line.data + at);
}
Floats read_part(Line line, std::int64_t at, std::int64_t count) {
  return line.is_number ? splat(*line.data) : load_part(line.data + at, count);
}

// The lines of a block that an instruction goes through, all of one length.
struct Lines {
  const Slot* slots;
  const Instruction& instruction;
  std::int64_t count, length;

  Lines(const Instruction& i, const Slot* s, std::int64_t rows, std::int64_t columns, int operands)
      : slots(s), instruction(i), count(1), length(rows) {
    if (s[i.to].extent == Extent::row) return;
    length = rows * columns;
    const std::int16_t all[] = {i.a, i.b, i.c};
    for (int k = 0; k < operands; ++k)
      if (s[all[k]].extent == Extent::row || s[all[k]].extent == Extent::column)
        count = rows, length = columns;
  }
  float* to(std::int64_t line) const { return slots[instruction.to].data + line * length; }
  Line operator()(std::int16_t slot, std::int64_t line) const {
    const Slot& s = slots[slot];
    if (s.extent == Extent::number) return {s.data, true};
    if (s.extent == Extent::column) return {s.data, false};
    if (s.extent == slots[instruction.to].extent) return {s.data + line * length, false};
    return {s.data + line, true};  // a number a row
  }
  // From where a line is read to where the next one is.
  std::int64_t step(std::int16_t slot) const {
    const Extent extent = slots[slot].extent;
    if (extent == Extent::number || extent == Extent::column) return 0;
    return extent == slots[instruction.to].extent ? length : 1;
  }
};

template <class F>
void for_each_vector(float* to, std::int64_t count, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, f(i, std::int64_t{kLanes}));
  if (i < count) store_part(to + i, f(i, count - i), count - i);
}

template <Floats (*f)(Floats)>
void unary(const Instruction& instruction, const Slot* slots, std::int64_t rows,
           std::int64_t columns) {
  const Lines lines(instruction, slots, rows, columns, 1);
  for (std::int64_t line = 0; line < lines.count; ++line) {
    const Line a = lines(instruction.a, line);
    float* to = lines.to(line);
    if (a.is_number) {
      const Floats value = f(splat(*a.data));
      for_each_vector(to, lines.length, [&](std::int64_t, std::int64_t) { return value; });
    } else {
      for_each_vector(to, lines.length, [&](std::int64_t i, std::int64_t n) {
        return f(n == kLanes ? load(a.data + i) : load_part(a.data + i, n));
      });
    }
  }
}

template <Floats (*f)(Floats, Floats), bool a_is_number, bool b_is_number>
void binary_lines(const Lines& lines) {
  const Line a = lines(lines.instruction.a, 0), b = lines(lines.instruction.b, 0);
  const std::int64_t a_step = lines.step(lines.instruction.a),
                     b_step = lines.step(lines.instruction.b), length = lines.length;
  const float *from = a.data, *by = b.data;
  float* to = lines.to(0);
  for (std::int64_t line = lines.count; line > 0; --line, from += a_step, by += b_step) {
    const Floats first = splat(*from), second = splat(*by);
    for_each_vector(to, length, [&](std::int64_t i, std::int64_t n) {
      const Floats x = a_is_number ? first : n == kLanes ? load(from + i) : load_part(from + i, n);
      const Floats y = b_is_number ? second : n == kLanes ? load(by + i) : load_part(by + i, n);
      return f(x, y);
    });
    to += length;
  }
}

template <Floats (*f)(Floats, Floats)>
void binary(const Instruction& instruction, const Slot* slots, std::int64_t rows,
            std::int64_t columns) {
  const Lines lines(instruction, slots, rows, columns, 2);
  if (lines.length == 0 || lines.count == 0) return;
  constexpr void (*kLines[])(const Lines&) = {
      binary_lines<f, false, false>, binary_lines<f, false, true>, binary_lines<f, true, false>,
      binary_lines<f, true, true>};
  const bool a_is_number = lines(instruction.a, 0).is_number,
             b_is_number = lines(instruction.b, 0).is_number;
  kLines[2 * a_is_number + b_is_number](lines);
}

void choose(const Instruction& instruction, const Slot* slots, std::int64_t rows,
            std::int64_t columns) {
  const Lines lines(instruction, slots, rows, columns, 3);
  for (std::int64_t line = 0; line < lines.count; ++line) {
    const Line condition = lines(instruction.a, line), a = lines(instruction.b, line),
               b = lines(instruction.c, line);
    for_each_vector(lines.to(line), lines.length, [&](std::int64_t i, std::int64_t n) {
      const bool whole = n == kLanes;
      const Floats chosen = whole ? read(condition, i) : read_part(condition, i, n);
      const Floats x = whole ? read(a, i) : read_part(a, i, n);
      const Floats y = whole ? read(b, i) : read_part(b, i, n);
      return chosen != Floats{} ? x : y;
    });
  }
}

// Operators that are rare enough for one lane at a time.
void by_reference(const Instruction& instruction, const Slot* slots, std::int64_t rows,
                  std::int64_t columns) {
  const int operands = instruction.b < 0 ? 1 : 2;
  const Lines lines(instruction, slots, rows, columns, operands);
  for (std::int64_t line = 0; line < lines.count; ++line) {
    const Line a = lines(instruction.a, line), b = operands == 1 ? a : lines(instruction.b, line);
    const float* const from[] = {a.data, b.data};
    const std::int64_t strides[] = {!a.is_number, !b.is_number};
    instruction.reference(lines.to(line), from, strides, lines.length);
  }
}

// ---- Functions of one vector.
Floats same(Floats x) { return x; }
Floats negative(Floats x) { return -x; }
Floats sign(Floats x) { return x == x ? truth(x > Floats{}) - truth(x < Floats{}) : x; }
Floats square(Floats x) { return x * x; }
Floats reciprocal_root(Floats x) { return 1.0f / square_root(x); }
Floats reciprocal(Floats x) { return 1.0f / x; }
Floats relu(Floats x) { return at_least(x, Floats{}); }
Floats isnan(Floats x) { return truth(x != x); }
Floats isinf(Floats x) { return truth(magnitude(x) == splat(__builtin_inff())); }
Floats isfinite(Floats x) { return truth(magnitude(x) < splat(__builtin_inff())); }
Floats logical_not(Floats x) { return truth(x == Floats{}); }
Floats to_boolean(Floats x) { return truth(x != Floats{}); }

// ---- Functions of two vectors.
Floats add(Floats a, Floats b) { return a + b; }
Floats subtract(Floats a, Floats b) { return a - b; }
Floats multiply(Floats a, Floats b) { return a * b; }
Floats divide(Floats a, Floats b) { return a / b; }
Floats equal(Floats a, Floats b) { return truth(a == b); }
Floats not_equal(Floats a, Floats b) { return truth(a != b); }
Floats less(Floats a, Floats b) { return truth(a < b); }
Floats less_equal(Floats a, Floats b) { return truth(a <= b); }
Floats greater(Floats a, Floats b) { return truth(a > b); }
Floats greater_equal(Floats a, Floats b) { return truth(a >= b); }
Floats logical_and(Floats a, Floats b) { return truth((a != Floats{}) & (b != Floats{})); }
Floats logical_or(Floats a, Floats b) { return truth((a != Floats{}) | (b != Floats{})); }
Floats logical_xor(Floats a, Floats b) { return truth((a != Floats{}) ^ (b != Floats{})); }

void convert(const Instruction& instruction, const Slot* slots, std::int64_t rows,
             std::int64_t columns) {
  const Run run = instruction.type == Storage::boolean ? unary<to_boolean>
                  : instruction.type == Storage::f16   ? unary<round_f16>
                  : instruction.type == Storage::bf16  ? unary<round_bf16>
                                                       : unary<same>;
  run(instruction, slots, rows, columns);
}

struct Row {
  Op op;
  Run run;
};
constexpr Row kRows[] = {
    {Op::astype, convert},
    {Op::copy, unary<same>},
    {Op::negative, unary<negative>},
    {Op::abs, unary<magnitude>},
    {Op::sign, unary<sign>},
    {Op::square, unary<square>},
    {Op::sqrt, unary<square_root>},
    {Op::rsqrt, unary<reciprocal_root>},
    {Op::reciprocal, unary<reciprocal>},
    {Op::exp, unary<exp>},
    {Op::log, unary<log>},
    {Op::sin, unary<sin>},
    {Op::cos, unary<cos>},
    {Op::tanh, unary<tanh>},
    {Op::erf, unary<erf>},
    {Op::sigmoid, unary<sigmoid>},
    {Op::relu, unary<relu>},
    {Op::gelu, unary<gelu>},
    {Op::gelu_tanh, unary<gelu_tanh>},
    {Op::silu, unary<silu>},
    {Op::hardswish, unary<hardswish>},
    {Op::floor, unary<floor>},
    {Op::ceil, unary<ceil>},
    {Op::round, unary<nearest>},
    {Op::isnan, unary<isnan>},
    {Op::isinf, unary<isinf>},
    {Op::isfinite, unary<isfinite>},
    {Op::logical_not, unary<logical_not>},
    {Op::add, binary<add>},
    {Op::subtract, binary<subtract>},
    {Op::multiply, binary<multiply>},
    {Op::divide, binary<divide>},
    {Op::maximum, binary<larger>},
    {Op::minimum, binary<smaller>},
    {Op::equal, binary<equal>},
    {Op::not_equal, binary<not_equal>},
    {Op::less, binary<less>},
    {Op::less_equal, binary<less_equal>},
    {Op::greater, binary<greater>},
    {Op::greater_equal, binary<greater_equal>},
    {Op::logical_and, binary<logical_and>},
    {Op::logical_or, binary<logical_or>},
    {Op::logical_xor, binary<logical_xor>},
    {Op::where, choose},
};

}  // namespace

Run elementwise(Op op) {
  for (const Row& row : kRows)
    if (row.op == op) return row.run;
  return by_reference;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
