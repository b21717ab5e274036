// compile: from a function on tensors to an executable. The function is traced once, on tensors
// without values. The graph is simplified and partitioned into fused groups by dynamic programming
// (GTCO, section IV-B); every group is lowered to a kernel. Intermediate values share one arena.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/device.h"
#include "tensor/handle.h"
#include "tensor/tree.h"

namespace tensor {

using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Among CompileOptions::tune_logs, the logs that are part of the library.
inline constexpr const char* kShippedLogs = "(shipped)";

struct CompileOptions {
  /// The type in which operands of products, and on CUDA images between convolutions, are stored:
  /// f32, bf16, or on CUDA f16. Sums are float32. A CPU without bf16 instructions computes in f32
  /// instead of bf16.
  DType dtype = f32;
  /// With dtype f32 on CUDA: Tensor Cores multiply float32 rounded to tf32, which has a mantissa of
  /// ten bits (from sm_80 on; older GPUs compute in float32). Sums and all stored values stay
  /// float32.
  bool tf32 = false;
  /// With dtype bf16 or f16: also stores the residual stream, to which a transformer's blocks add
  /// their results, in dtype, as PyTorch's half() does. Additions stay float32. Faster with many
  /// tokens, but less accurate: one more rounding per block, and in f16 sums above 65504 become
  /// infinite.
  bool narrow_residuals = false;
  Device device = {};  ///< "cuda" or "cuda:1" for a GPU
  int threads = 0;     ///< 0: one per core
  bool fuse = true;    ///< false: one kernel per operator, for comparison
  /// Measurements to plan from (tune.h); nothing is measured here. Only measurements taken on the
  /// same device model are used (on GPUs from sm_80 on, f16 and bf16 stand in for each other).
  /// Unset: the shipped logs and the user's own. Empty: none. With kShippedLogs among
  /// them the shipped ones count, too.
  std::optional<std::vector<std::string>> tune_logs = std::nullopt;
  /// Parameters by name, so that reports use the names of the model; see nn::state_dict.
  std::vector<std::pair<std::string, Tensor>> names = {};
};

namespace detail {
struct Program;
}

/// Bytes of GPU memory that an executable holds, without the code of its kernels, which the driver
/// keeps: a few kilobytes each.
struct DeviceMemory {
  std::int64_t weights = 0;  ///< constants, in the layout that the kernels need
  std::int64_t arena = 0;    ///< intermediate values, for the largest number of concurrent calls
  std::int64_t other = 0;    ///< scratch, and copies of inputs and outputs that are on the host
  std::int64_t total() const { return weights + arena + other; }
};

/// A compiled function. Immutable and cheap to copy. Any number of threads may run it at a time;
/// each call uses an arena of its own, which is then reused.
class TENSOR_API Executable {
 public:
  explicit Executable(std::shared_ptr<const detail::Program> program)
      : program_(std::move(program)) {}

  /// Inputs of the types it was compiled for (UserError otherwise), on the host or on the device it
  /// was compiled for. Inputs may have any strides. Outputs are newly allocated, on the device if
  /// any input is.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// Writes into the given outputs, each on the host or on the device, wherever the inputs are. On
  /// the device, only what is not aligned or not contiguous is copied. Outputs must be
  /// contiguous and share no memory with the inputs or each other (UserError otherwise, before
  /// anything is written). After warm-up (once this many concurrent calls have been made) nothing
  /// is allocated, except by operators that have only a reference kernel and inside oneDNN.
  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const;

  const std::vector<TensorType>& input_types() const;
  const std::vector<TensorType>& output_types() const;
  std::int64_t arena_bytes() const;  ///< memory for intermediate values, for each concurrent call
  std::int64_t arena_lower_bound() const;  ///< the most that is alive at any step
  std::size_t group_count() const;
  DeviceMemory device_memory() const;  ///< all 0 on the CPU

  // report, time and profile begin with one warm-up run. Inputs are as for a call.

  /// Runs `repeats` times (at least once) and prints a table, with one row for groups of equal
  /// structure: operators, place in the model, time (median), roofline time as a share of it,
  /// kernel, and the estimated times of the group and of its operators as separate kernels.
  void report(std::ostream& out, const std::vector<Tensor>& inputs, int repeats = 10) const;
  /// The microseconds of each of `repeats` runs; on a GPU without copying inputs and outputs.
  std::vector<double> time(const std::vector<Tensor>& inputs, int repeats) const;
  /// Runs once and writes the time of every group as a Chrome trace (open it in
  /// https://ui.perfetto.dev). UserError if the file cannot be written.
  void profile(const std::string& path, const std::vector<Tensor>& inputs) const;

  /// Writes graph, partition and weights as one file (safetensors with a "plan" in its metadata).
  /// `about` is added to the metadata: what the plan was made from, for example. UserError if it
  /// has an entry "plan" of its own, or if the file cannot be written.
  void save(const std::string& path, const std::map<std::string, std::string>& about = {}) const;

  const detail::Program& program() const { return *program_; }

 private:
  std::shared_ptr<const detail::Program> program_;
};

/// Reads what `save` wrote and builds its kernels for this machine, without tracing or planning.
/// UserError on a file that is truncated, has a damaged structure, is of a newer version or is no
/// plan, and if there is no such device. Changed weights are not detected: safetensors files have
/// no checksum. `threads` and `device` as in CompileOptions.
TENSOR_API Executable load_executable(const std::string& path, int threads = 0,
                                      const Device& device = {});

/// How one group's kernel compares with the reference operators on the same inputs.
struct GroupCheck {
  std::string operators;  ///< "matmul, add, gelu"
  std::string where;      ///< by the names of the model's parameters
  std::string kernel;
  double error = 0;  ///< the largest difference, relative to the largest magnitude of the reference
  double bound =
      0;  ///< what rounding explains: a few eps of the storage type, times sqrt of the longest sum
  bool ok() const { return error <= bound; }
};

/// Runs every group on inputs computed by the reference operators and compares its outputs with
/// theirs, in the order of execution. A NaN that only one of the two has is an infinite error (on
/// the CPU, relu behind a product may make 0 of it: see ops.h). Values are freed after their last
/// use. UserError on inputs of types other than those that it was compiled for.
TENSOR_API std::vector<GroupCheck> verify(const Executable& executable,
                                          const std::vector<Tensor>& inputs);

/// Compiles `function` for inputs of these types, or of the types of the examples, whose values are
/// not used. UserError if the function reads the values of its inputs, on options that the device
/// does not support (dtype, tf32), and if there is no such device.
///
/// Tensors that the function captures, such as a model's parameters, become constants of the
/// executable. They are shared; only those that are stored in another form are copied. Do not write
/// into them while the executable exists, or it computes with some old and some new values. To
/// change them, compile again.
TENSOR_API Executable compile(const TensorFunction& function, const std::vector<TensorType>& inputs,
                              const CompileOptions& options = {});
TENSOR_API Executable compile(const TensorFunction& function, const std::vector<Tensor>& examples,
                              const CompileOptions& options = {});

/// A function that is compiled at the first call with each new list of input types. Keeps the
/// `capacity` executables (at least 1) that were used last. Any number of threads may call it; they
/// wait while one compiles. Errors are those of compile() and of the executable.
class TENSOR_API Compiled {
 public:
  explicit Compiled(TensorFunction function, CompileOptions options = {}, std::size_t capacity = 8);

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    return executable(inputs)(inputs);
  }
  /// The executable for inputs of these types, compiled now if necessary.
  Executable executable(const std::vector<Tensor>& inputs) const;

 private:
  struct Cache;
  std::shared_ptr<Cache> cache_;
};

/// A compiled function of structs of tensors (tree.h): `Result` from `Inputs`. As Compiled, it is
/// compiled at the first call with each new list of types.
template <TensorTree Result, TensorTree... Inputs>
class CompiledFunction {
 public:
  explicit CompiledFunction(std::function<Result(const Inputs&...)> function,
                            CompileOptions options = {}, std::size_t capacity = 8)
      : compiled_(
            [function = std::move(function)](const std::vector<Tensor>& in) {
              return std::apply(
                  [&](const Inputs&... inputs) { return tensors_of(function(inputs...)); },
                  tree_of<std::tuple<Inputs...>>(in));
            },
            std::move(options), capacity) {}

  Result operator()(const Inputs&... inputs) const {
    return tree_of<Result>(compiled_(tensors_of(inputs...)));
  }
  /// The executable for inputs of these types, compiled now if necessary. It takes all tensors of
  /// the inputs, and returns all of the result, in the order of the members.
  Executable executable(const Inputs&... inputs) const {
    return compiled_.executable(tensors_of(inputs...));
  }

 private:
  Compiled compiled_;
};

namespace detail {

/// The compiled function of a function's type, if it is one of trees.
template <class F>
struct CompiledAs {};
template <class F>
requires requires { &F::operator(); }
struct CompiledAs<F> : CompiledAs<decltype(&F::operator())> {};
template <class Result, class... Inputs>
requires(TensorTree<std::remove_cvref_t<Result>> &&
         (TensorTree<std::remove_cvref_t<Inputs>> &&
          ...)) struct CompiledAs<Result (*)(Inputs...)> {
  using Type = CompiledFunction<std::remove_cvref_t<Result>, std::remove_cvref_t<Inputs>...>;
};
template <class F, class Result, class... Inputs>
struct CompiledAs<Result (F::*)(Inputs...) const> : CompiledAs<Result (*)(Inputs...)> {};

}  // namespace detail

/// compile(attention), where attention is a function, a lambda or an object with one operator()
/// (const, no template), such as a model: from tensors or structs of tensors to one of these. The
/// object is copied; its tensors are shared. The result has the type CompiledFunction.
template <class F>
requires requires { typename detail::CompiledAs<F>::Type; }
auto compile(F function, const CompileOptions& options = {}) {
  return typename detail::CompiledAs<F>::Type(std::move(function), options);
}

}  // namespace tensor
