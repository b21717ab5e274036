// The part of the CPU kernels that is compiled once for every instruction set: vector programs on
// blocks of floats, conversions, small matrix products. Chosen at run time through a table of
// plain functions.
//
// The sources in this folder may include C headers, each other and the list of operators only: an
// inline function of the standard library compiled here for a newer instruction set could be the
// copy that the linker keeps for everybody.
#pragma once

#include <cstdint>

#include "src/ops/opcode.h"

namespace tensor::simd {

/// Element types in memory, in the order of tensor::DType.
enum class Storage : std::uint8_t { boolean, u8, i8, i16, i32, i64, f16, bf16, f32, count_ };
inline constexpr int kStorages = static_cast<int>(Storage::count_);

/// How a slot of a program on rows x columns elements is laid out.
enum class Extent : std::uint8_t {
  element,  // rows * columns numbers, row after row
  row,      // one number a row
  column,   // one number a column, the same for all rows
  number,   // one
};

struct Slot {
  float* data;
  Extent extent;
};

/// An operator on slots, whose operands are positions in an array of them. All values are floats,
/// truth values 0 and 1. `to` is an element slot, or a row slot when no operand is an element or a
/// column; it may be the slot of an operand of the same extent.
///
/// An elementwise operator is to = op(a, b, c). Reductions give one number a row: to.row =
/// op(a.element). softmax, log_softmax and layer_norm give rows of rows; layer_norm has the weight
/// b and the bias c.
struct Instruction {
  Op op;
  std::int16_t to, a = -1, b = -1, c = -1;  // -1: absent
  float number = 0;                         // eps of layer_norm, ddof of var
  Storage type = Storage::f32;              // what astype converts to: boolean, f16 or bf16 round
  FloatLoop reference = nullptr;            // runs operators that have no vector code
};

/// What a result below zero is multiplied by, at most 1, and then the least and the most that it
/// becomes; a NaN stays one.
struct Bounds {
  float least = -__builtin_inff(), most = __builtin_inff(), slope = 1;
  bool have_limits() const { return least > -__builtin_inff() || most < __builtin_inff(); }
  bool have_slope() const { return slope < 1; }
  bool are_any() const { return have_limits() || have_slope(); }
};

/// A part of a large product: some rows by a number of strips, which are 16 columns of the right
/// factor each, as words [k, 16]. With `goes_on`, a further part of the k of sums that are
/// there already.
struct StripProduct {
  const void* a = nullptr;  // rows of `k` words
  std::int64_t a_row_bytes = 0, rows = 0;
  const float* strips = nullptr;
  std::int64_t strip_words = 0;  // from one strip to the next
  // multiply_few only: the strip is [columns, k] instead, with so many words a column.
  std::int64_t column_words = 0;
  std::int64_t strip_count = 0, k = 0;
  const float* first = nullptr;  // what sums begin with, a number a column; nullptr: zeros
  float* to = nullptr;           // [rows, strip_count * 16] sums
  std::int64_t to_row = 0;       // floats
  // By vector instructions only:
  std::int64_t parts = 1, next_part = 0;  // of the k of rows; words from a part to the next
  std::int64_t columns = 0;               // of `to`, which may be fewer
  const float* add = nullptr;  // what sums begin with beside `first`, of each row; nullptr: nothing
  std::int64_t add_row = 0;    // floats
  bool adds_last = false;      // it is added to what bounds and scales have left instead
  bool goes_on = false;
  Bounds bounds = {};  // of sums
  // What the bounds have left is multiplied by, and what is added to that, numbers a column;
  // nullptr: neither.
  const float *scales = nullptr, *shifts = nullptr;
  bool is_far = false;         // rows come from memory, one block after the other
  bool is_by_rows = false;     // all strips with some rows first, not all rows with some strips
  const void* next = nullptr;  // strips that are read soon, to be brought nearer
  // Tile instructions bring lines of 64 bytes nearer:
  std::int64_t next_lines = 0;  // in every 16 words along k of a pair of strips
};

/// Sums on their way to a result, row by row, in which the columns lie side by side.
struct Finish {
  const float* sums = nullptr;
  std::int64_t sums_row = 0;
  const float* add = nullptr;  // of each; nullptr: nothing
  std::int64_t add_row = 0;
  Bounds bounds = {};
  float inverse = 1;   // i8: by which results are multiplied, then rounded, at most 127
  void* to = nullptr;  // may be the sums
  std::int64_t to_row = 0;
  std::int64_t rows = 0, columns = 0;
};

/// Rows of runs of numbers that are side by side, of 4, 2 or 1 bytes. Up to a vector behind each
/// run is read, and behind each row written.
struct Runs {
  const void* from = nullptr;  // of the first row
  std::int64_t from_row = 0;
  const std::int64_t* offsets = nullptr;  // of the runs, from there
  std::int64_t count = 0, length = 0, rows = 0;
  void* to = nullptr;
  std::int64_t to_row = 0;
};

/// Neighbouring pixels of a depthwise convolution, in a row or in a column; all of them have as
/// many numbers under their filters. Distances are in floats.
struct DepthwiseRow {
  const float* from = nullptr;  // the first number under the first pixel's filter
  std::int64_t step = 0;        // to the next pixel's
  std::int64_t block = 16;      // to the next 16 channels'
  std::int64_t line_count = 0, line = 0, line_length = 0, number = 0;  // under a filter
  const float* weights = nullptr;  // [line_count, line_length, 16] of a block of 16 channels
  std::int64_t weights_line = 0, weights_block = 0;
  const float* first = nullptr;  // [columns], what sums begin with; nullptr: zeros
  const float* add = nullptr;    // and beside it; nullptr: nothing
  std::int64_t add_pixel = 0;
  bool adds_last = false;  // to what the bounds have left instead
  Bounds bounds = {};
  const float *scales = nullptr, *shifts = nullptr;  // as in StripProduct
  float* to = nullptr;                               // `count` pixels of `columns` sums
  std::int64_t to_pixel = 0, count = 0, columns = 0;
  bool is_far = false;  // images come from memory: what is read and written next is brought nearer
};

/// A part of a large product of rows in eight bits (src/ops/eight_bits.h): of rows by strips of
/// words [k, 16], a word being four neighbours along k of one column.
struct ByteProduct {
  const std::int8_t* a = nullptr;  // rows of `k` words
  std::int64_t a_row_bytes = 0, rows = 0;
  const std::int32_t* row_sums = nullptr;  // of each row's bytes
  const float* row_scales = nullptr;
  const std::int8_t* strips = nullptr;
  std::int64_t strip_bytes = 0;  // from one strip to the next
  std::int64_t strip_count = 0, k = 0;
  const float *scales = nullptr, *bias = nullptr;  // a number a column; bias nullptr: zeros
  float* to = nullptr;                             // [rows, strip_count * 16]
  std::int64_t to_row = 0;                         // floats
};

struct Table {
  const char* name;
  int lanes;  // floats in a vector

  /// `count` elements, `stride` apart, to floats in a row and back; float to integer truncates and
  /// saturates, NaN becomes 0.
  void (*load[kStorages])(float* to, const void* from, std::int64_t stride, std::int64_t count);
  void (*store[kStorages])(void* to, std::int64_t stride, const float* from, std::int64_t count);
  /// f32, f16, bf16 and i8 only; of other types nullptr.
  void (*finish[kStorages])(const Finish& finish);

  /// Runs a program on a block.
  void (*execute)(const Instruction* code, int count, const Slot* slots, std::int64_t rows,
                  std::int64_t columns);

  // ---- Images.

  /// One or more lines of `count` elements become one: to[i] is the sum of weights[k] *
  /// lines[k][i], or whatever their weights the largest of lines[k][i], a NaN if there is one.
  /// Floating types only.
  using Fold = void (*)(float* to, const void* const* lines, const float* weights,
                        std::int64_t line_count, std::int64_t count);
  Fold weighted_sum[kStorages], largest[kStorages];
  /// to[i] is the sum of the squares of lines[k][i] less their mean, of which sums[i] is the sum.
  /// Lines of f32.
  void (*squares)(float* to, const void* const* lines, const float* sums, std::int64_t line_count,
                  std::int64_t count);

  void (*depthwise)(const DepthwiseRow& row);
  /// Rows of `columns` floats to other places.
  void (*copy_rows)(float* to, std::int64_t to_row, const float* from, std::int64_t from_row,
                    std::int64_t rows, std::int64_t columns);

  // ---- Streaming attention. Matrices consist of words of 4 bytes: a number in float32 or, for the
  // members named after pairs, two neighbours along the depth in bf16, the first one in the lower
  // half. A panel is [depth, 2 * lanes] words; the last of a matrix is half as wide where that is
  // enough.

  /// to[rows, vectors * lanes] = scale[row] * to + times * a[rows, depth] * b[depth, vectors *
  /// lanes], b in panels of `panel_depth` rows of which `depth` are used; scale nullptr: `to` is
  /// not read. The result is float32, and so are the sums; depths count words.
  using Product = void (*)(const float* a, std::int64_t a_row, std::int64_t rows,
                           const float* panels, std::int64_t panel_depth, std::int64_t depth,
                           std::int64_t vectors, float times, float* to, std::int64_t to_row,
                           const float* scale);
  Product product;
  Product product_pairs;  // nullptr without an instruction for it
  Product product_tiles;  // the same by tile instructions; nullptr, or only where has_tiles()
  /// Large products, for the same words: of any number of rows, by tile instructions of at most 32
  /// and a depth of whole 16 words.
  using Multiply = void (*)(const StripProduct& product);
  Multiply multiply, multiply_pairs, multiply_tiles;
  /// The same of floats and one strip of at most `few_columns`, for depths of several vectors.
  Multiply multiply_few;
  std::int64_t few_columns;
  /// A row in eight bits and the sum of these; returns its scale.
  float (*quantize)(std::int8_t* to, const float* from, std::int64_t count, std::int32_t* sum);
  std::int32_t (*sum_bytes)(const std::int8_t* from, std::int64_t count);
  /// to = float(sum of bytes) * (scale of the row * scale of the column) + bias, each operation
  /// rounded. All give the same bits.
  using MultiplyBytes = void (*)(const ByteProduct& product);
  MultiplyBytes multiply_bytes;       // of rows from `quantize`
  MultiplyBytes multiply_all_bytes;   // of rows that may hold -128, as the others may
  MultiplyBytes multiply_byte_dots;   // nullptr, or only where has_byte_dots()
  MultiplyBytes multiply_byte_tiles;  // likewise has_byte_tiles(): at most 32 rows, with zeros
                                      // behind them up to whole 16 words
  using Gather = void (*)(const Runs& runs);
  Gather gather, gather_halves, gather_bytes;  // numbers of 4, 2 and 1 bytes
  /// Rows of `depth` words as the columns of a panel, the rest of which becomes 0.
  void (*pack_columns)(float* panel, std::int64_t width, const float* rows, std::int64_t row_stride,
                       std::int64_t count, std::int64_t depth);
  /// Rows become columns: to[k * to_row + i] = from[i * from_row + k].
  void (*turn)(float* to, std::int64_t to_row, const float* from, std::int64_t from_row,
               std::int64_t rows, std::int64_t columns);
  /// Rows side by side: to[r * columns + c] = from[r * row + c * column].
  void (*collect)(float* to, const float* from, std::int64_t rows, std::int64_t row,
                  std::int64_t columns, std::int64_t column);
  /// Two rows of bf16 as one of `count` words; `second` nullptr: zeros.
  void (*pair_rows)(float* to, const void* first, const void* second, std::int64_t count);
  /// Scores become exp(score - top of the row), where `top` goes on from earlier tiles; `factor` is
  /// what earlier sums must be multiplied by, `total` the sum of the row so far. Columns up to the
  /// next vector become 0. A row starts with top -inf and total 0. In pairs the results are rounded
  /// to bf16 and fill the first half of the row; `total` sums them as they were before.
  using Soften = void (*)(float* tile, std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                          float* top, float* total, float* factor);
  Soften soften, soften_pairs;
};

/// The tables of this build that the processor can run, best first; the last is the baseline.
/// TENSOR_MAX_ISA=avx512_bf16 (no tiles), =avx512, =avx2 or =baseline in the environment leaves the
/// better ones out; anything else there is a UserError.
const Table* const* tables(int* count);
/// The best one.
const Table& table();
/// Whether the processor has tile instructions for bf16 (AMX) and the system lets this process use
/// them: it is asked once. TENSOR_MAX_ISA=avx512_bf16, or less, leaves them out.
bool has_tiles();
/// The same of bytes, and of instructions that add four products of bytes (VNNI), which
/// TENSOR_MAX_ISA=avx512, or less, leaves out.
bool has_byte_tiles();
bool has_byte_dots();

}  // namespace tensor::simd
