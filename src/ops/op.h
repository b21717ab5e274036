// What an operator is: one OpInfo row in the table of its family's file. This is the only list of
// operators; public functions (include/tensor/ops.h) are thin wrappers around `apply_op`, or
// compositions of such wrappers.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "src/core/view.h"
#include "src/ops/opcode.h"
#include "tensor/attrs.h"
#include "tensor/handle.h"
#include "tensor/index.h"  // of Tensor::begin: overloads below ask whether a tensor is a range

namespace tensor {

/// The elements of a row that row_sums adds up at a time.
inline constexpr std::int64_t kSummed = 64;

/// The attribute of a where() whose operands are computed only where they are chosen (cond). It has
/// a condition of one element, and is fused with nothing.
inline constexpr const char* kLazy = "lazy";

/// How an operator may be fused (GTCO, section IV-B, table of operator patterns); View only renames
/// elements.
enum class Pattern : std::uint8_t {
  elementwise,
  injective,
  reduction,
  complex_out_fusable,
  opaque,
  view
};

/// How the public function of an elementwise operator brings its inputs to one type before
/// `apply_op` (NumPy's rules).
enum class Promotion : std::uint8_t {
  none,        // not an elementwise operator, or its function does more
  same,        // any type, kept
  numbers,     // any type but bool
  small,       // bool counts as i8
  whole,       // floating types; others are copied
  floating,    // integers become floating_type()
  common,      // the inputs' common type
  comparison,  // the common type, or i64 where a number does not fit it
  arithmetic,  // the common type, but not bool
  counting,    // the common type, bool counts as i8
  quotient,    // the common type, integers become f64
  logical,     // bool
  bits,        // the common type, but no floating one
  shifts,      // likewise, bool counts as i8
};

/// Where a view operator's result lies inside its input.
struct Layout {
  Shape shape;
  Strides strides;
  std::int64_t offset = 0;  // in elements, from the input's first element
};

/// What the compiled kernels know of an elementwise operator.
struct Elementwise {
  /// The function that computes it on a GPU, of CUDA's library or of templates/numbers.h.
  std::string_view device = {};
  int instructions = 2;      // that an element takes there, roughly
  int series = 0;            // that an element takes on a CPU; one lane at a time counts as ten
  bool is_exact = false;     // operands that a 16-bit float holds give a result that it holds
  bool on_integers = false;  // floats compute it right for integers of 8 and 16 bits and bool, too
  /// The reference in f32, for vector programs where there is no vector code of the operator.
  FloatLoop floats = nullptr;
  /// The operators that it is composed of, in place of all the above: kernels compute these, and
  /// round only the result.
  Tensor (*formula)(std::span<const Tensor>) = nullptr;
};

/// The max_inputs of operators that take as many as there are.
inline constexpr int kAnyNumber = 1 << 20;

struct OpInfo {
  Op op;
  std::string_view name;
  int min_inputs;
  int max_inputs;
  Pattern pattern;
  /// The type of the result, for `tensor::infer` alone, which has looked at what all operators
  /// share. Checks everything else about shapes, types and attributes; throws UserError.
  TensorType (*infer)(std::span<const TensorType>, const Attrs&);
  /// The CPU reference. Inputs and output are what `tensor::infer` accepted and returned, with any
  /// strides.
  void (*eval)(std::span<const ConstView>, const Attrs&, const View&);
  /// View operators only: nullopt when the strides force a copy (then `eval` copies).
  std::optional<Layout> (*view)(const TensorType&, const Strides&, const Attrs&) = nullptr;
  Promotion promotion = Promotion::none;
  Elementwise elementwise = {};
};

/// The row of an operator.
const OpInfo& info(Op op);
/// Every row, in the order of the enumeration.
std::span<const OpInfo> op_table();

/// The type of an operator's result. Checks everything, so that no kernel has to: the number of
/// inputs, shapes, types, attributes, and that the result's bytes can be counted. Throws UserError.
TensorType infer(Op op, std::span<const TensorType> inputs, const Attrs& attrs);

/// Throws UserError naming `where` unless the type is a floating one.
void check_floating(DType dtype, std::string_view where);

/// The attribute `axis`, for infer functions of operators whose kernels take it as it stands.
/// Throws UserError naming `where` unless it counts from the first axis and exists.
int stored_axis(const Attrs& attrs, int rank, std::string_view where);

// One table a family, in that family's file.
std::span<const OpInfo> pointwise_ops();
std::span<const OpInfo> reduce_ops();
std::span<const OpInfo> scan_ops();
std::span<const OpInfo> matmul_ops();
std::span<const OpInfo> quantized_ops();
std::span<const OpInfo> softmax_ops();
std::span<const OpInfo> layer_norm_ops();
std::span<const OpInfo> conv2d_ops();
std::span<const OpInfo> pool_ops();
std::span<const OpInfo> resize_ops();
std::span<const OpInfo> roi_ops();
std::span<const OpInfo> view_ops();
std::span<const OpInfo> gather_ops();

/// Runs an operator: infers the type, then makes a view or evaluates the reference kernel into
/// fresh memory.
Tensor apply_op(Op op, std::span<const Tensor> inputs, const Attrs& attrs = {});
inline Tensor apply_op(Op op, std::initializer_list<Tensor> inputs, const Attrs& attrs = {}) {
  return apply_op(op, std::span(inputs.begin(), inputs.size()), attrs);
}

/// The public function of an elementwise operator: promotes the inputs as its row says, then
/// applies it.
Tensor elementwise(Op op, std::span<const Tensor> inputs);
inline Tensor elementwise(Op op, std::initializer_list<Tensor> inputs) {
  return elementwise(op, std::span(inputs.begin(), inputs.size()));
}

}  // namespace tensor
