// compile: from a function on tensors to an executable. The function is traced once on stand-ins,
// the graph is simplified, partitioned into fused groups by dynamic programming (GTCO, section
// IV-B), and every group is lowered to a kernel; intermediate values share one arena.
#pragma once

#include <concepts>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/device.h"
#include "tensor/handle.h"

namespace tensor {

using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

struct CompileOptions {
  /// What products' operands and images are stored in: f32, bf16, or on CUDA f16. Sums are float32.
  /// A processor without instructions for bf16 calculates in f32 where bf16 is asked for.
  DType dtype = f32;
  /// With dtype f32 on CUDA: Tensor Cores multiply float32 rounded to tf32, ten bits after the
  /// point (from sm_80 on; older GPUs have none of it and calculate in float32). Sums and
  /// everything that is stored stay float32.
  bool tf32 = false;
  /// With dtype bf16 or f16: the residual stream, to which a transformer's blocks add what they
  /// compute, is stored in dtype, too, as it is where all of a model is converted (PyTorch's
  /// half()). Adding stays float32. Faster with many tokens, and less exact: by a rounding a block,
  /// and in f16 sums beyond 65504 are infinite.
  bool narrow_residuals = false;
  Device device = {};  ///< "cuda" or "cuda:1" for a GPU
  int threads = 0;     ///< 0: one a core
  bool fuse = true;    ///< false: one kernel an operator, for comparison
  /// Measurements to plan from (tune.h): only those of the same device count (on GPUs from sm_80 on
  /// of f16 and bf16 for each other), and nothing is measured. Not set: the logs that ship with the
  /// library, and the user's own; empty: none.
  std::optional<std::vector<std::string>> tune_logs = std::nullopt;
  /// Parameters by name, so that reports speak the model's own words; see nn::state_dict.
  std::vector<std::pair<std::string, Tensor>> names = {};
};

namespace detail {
struct Program;
}

/// Bytes of a GPU's memory that an executable holds. Its kernels' code comes on top: the driver
/// keeps it, a few kilobytes a kernel.
struct DeviceMemory {
  std::int64_t weights = 0;  ///< constants, in the form that kernels want
  std::int64_t arena = 0;    ///< intermediate values, of as many calls as were under way at a time
  std::int64_t other = 0;    ///< scratch, and inputs and outputs that callers have on the host
  std::int64_t total() const { return weights + arena + other; }
};

/// A compiled function. Immutable and cheap to copy; any number of threads may run it at a time,
/// each call in an arena of its own that is kept for the next call.
class TENSOR_API Executable {
 public:
  explicit Executable(std::shared_ptr<const detail::Program> program)
      : program_(std::move(program)) {}

  /// Inputs of the types it was compiled for (UserError otherwise), on the host or on the device it
  /// was compiled for; fresh outputs, which are on the device if an input is, with any strides.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// Writes into the given outputs, each on the host or on the device, whatever the inputs are on;
  /// on the device nothing is copied but what is not aligned or not contiguous. Outputs must be
  /// contiguous and share no memory with the inputs or each other (UserError otherwise, before
  /// anything is written). Allocates nothing once as many calls at a time were made before, but for
  /// operators that only have a reference kernel, and for what oneDNN does inside.
  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const;

  const std::vector<TensorType>& input_types() const;
  const std::vector<TensorType>& output_types() const;
  std::int64_t arena_bytes() const;  ///< memory for intermediate values, for each concurrent call
  std::int64_t arena_lower_bound() const;  ///< the most that is alive at one step
  std::size_t group_count() const;
  DeviceMemory device_memory() const;  ///< all 0 on the CPU

  // report, time and profile first make one run that is not counted; inputs as for a call.

  /// Runs `repeats` times (at least once) and prints a table: groups of equal structure in one row,
  /// with their operators, place in the model, time (median), share of the machine's roofline, what
  /// runs them, and what the same operators were estimated to take apart.
  void report(std::ostream& out, const std::vector<Tensor>& inputs, int repeats = 10) const;
  /// Microseconds of every one of `repeats` runs. On a GPU without the copies of inputs and
  /// outputs.
  std::vector<double> time(const std::vector<Tensor>& inputs, int repeats) const;
  /// Runs once and writes the time of every group as a Chrome trace (open it in
  /// https://ui.perfetto.dev). UserError where the file cannot be written.
  void profile(const std::string& path, const std::vector<Tensor>& inputs) const;

  /// Writes graph, partition and weights as one file (safetensors with a "plan" in its metadata).
  /// `about` is added to the metadata: what the plan is of, for whoever loads it.
  /// UserError where it has an entry "plan" of its own or the file cannot be written.
  void save(const std::string& path, const std::map<std::string, std::string>& about = {}) const;

  const detail::Program& program() const { return *program_; }

 private:
  std::shared_ptr<const detail::Program> program_;
};

/// Reads what `save` wrote and builds its kernels for this machine, without tracing or planning.
/// Throws UserError on a file that is damaged, of another version, or something else, and where
/// there is no such device. `threads` and `device` as in CompileOptions.
TENSOR_API Executable load_executable(const std::string& path, int threads = 0,
                                      const Device& device = {});

/// How one group's kernel compares with the reference on the reference's own inputs.
struct GroupCheck {
  std::string operators;  ///< "matmul, add, gelu"
  std::string where;      ///< in the model's words
  std::string kernel;
  double error = 0;  ///< the largest difference, relative to the largest magnitude of the reference
  double bound =
      0;  ///< what rounding explains: a few eps of the storage type, times sqrt of the longest sum
  bool ok() const { return error <= bound; }
};

/// Replays every group from the reference's inputs and compares its outputs, in the order of
/// execution. A NaN where the reference has none is an infinite error. Values are dropped after
/// their last use. UserError on inputs of other types than it was compiled for.
TENSOR_API std::vector<GroupCheck> verify(const Executable& executable,
                                          const std::vector<Tensor>& inputs);

/// Compiles `function` for inputs of these types, or those of the examples, whose values are not
/// used. Throws UserError when it asks for the values of its inputs, on options that the device
/// does not have (dtype, tf32), and where there is no such device.
TENSOR_API Executable compile(const TensorFunction& function, const std::vector<TensorType>& inputs,
                              const CompileOptions& options = {});
TENSOR_API Executable compile(const TensorFunction& function, const std::vector<Tensor>& examples,
                              const CompileOptions& options = {});

/// A function that compiles itself for the types of the inputs it is called with and keeps the
/// `capacity` executables (at least 1) that were used last. Any number of threads may call it; they
/// wait for each other while one compiles. Errors are those of compile() and of the executable.
class TENSOR_API Compiled {
 public:
  explicit Compiled(TensorFunction function, CompileOptions options = {}, std::size_t capacity = 8);

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    return executable(inputs)(inputs);
  }
  /// For functions of one result: fast(q, k, v).
  template <class... T>
  requires(std::convertible_to<const T&, Tensor>&&...) Tensor operator()(const Tensor& first,
                                                                         const T&... rest) const {
    return (*this)(std::vector<Tensor>{first, rest...}).front();
  }
  /// The executable for inputs like these, compiled now if need be.
  Executable executable(const std::vector<Tensor>& inputs) const;

 private:
  struct Cache;
  std::shared_ptr<Cache> cache_;
};

/// compile(attention), where attention takes tensors and returns one: compiled at the first call
/// with each new list of input types. UserError at a call with another number of tensors.
template <class... T>
requires(std::same_as<std::remove_cvref_t<T>, Tensor>&&...) Compiled
    compile(Tensor (*function)(T...), const CompileOptions& options = {}) {
  return Compiled(
      [function](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        if (in.size() != sizeof...(T))
          fail("compile", "got ", in.size(), " inputs, the function takes ", sizeof...(T));
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
          return std::vector<Tensor>{function(in[I]...)};
        }
        (std::index_sequence_for<T...>());
      },
      options);
}

}  // namespace tensor
