// compile: from a function on tensors to an executable. The function is traced once, on tensors
// without values. The graph is simplified and partitioned into fused groups by dynamic programming
// (GTCO, section IV-B); every group is lowered to a kernel. Intermediate values share one arena.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/device.h"
#include "tensor/executable.h"
#include "tensor/function.h"
#include "tensor/handle.h"
#include "tensor/plan.h"
#include "tensor/tree.h"

namespace tensor {

/// Among CompileOptions::tune_logs, the logs that are part of the library.
inline constexpr const char* kShippedLogs = "(shipped)";

/// When something is compiled: at once, or in a thread of its own while the caller goes on.
enum class When : std::uint8_t { now, in_background };

/// What several devices divide among them: the items of a batch, or the columns and rows of
/// products whose weights are constants.
enum class Divide : std::uint8_t { batch, products };

struct CompileOptions {
  Device device = {};  ///< "cuda" or "cuda:1" for a GPU
  /// In place of `device` several GPUs, {"cuda:0", "cuda:1"}: they divide the batch among them,
  /// axis 0 of all inputs, as evenly as they can (the first ones if it is smaller), and run their
  /// parts at the same time. Each has the weights. Outputs are gathered along their axis 0. Inputs
  /// and outputs are on the host. UserError on functions that do not compute every item of the
  /// batch by itself. docs/several_gpus.md tells more.
  std::vector<Device> devices = {};
  /// With `devices`: products in place of the batch, so that one picture runs on all GPUs, each of
  /// which has its share of these weights. Of two products of which the second multiplies what
  /// becomes of the first one's columns, in a perceptron or by heads of attention, each GPU
  /// computes some of the columns, and NCCL (libnccl.so.2, opened at run time) adds up their
  /// results; all else is computed on every GPU. Results differ from those of one GPU by rounding.
  /// Calls of executables that have a GPU in common run one after the other. No plan holds them.
  /// UserError where no products can be divided, and where there is no NCCL.
  Divide divide = Divide::batch;
  /// With `devices`: the numbers of inputs that are no batches, which all get whole. Those without
  /// axes are.
  std::vector<std::size_t> whole_inputs = {};
  /// The type in which operands of products, and on CUDA images between convolutions, are stored:
  /// f32, bf16, on CUDA f16, or i8. Sums are float32. A CPU without bf16 instructions computes in
  /// f32 instead of bf16. i8: products by constant weights are computed in eight bits, all else as
  /// for bf16, on CUDA as for f16 (docs/eight_bits.md).
  DType dtype = f32;
  /// With dtype i8: products that stay wider, by their names as reports have them, where * stands
  /// for any text ("layers.0.*"). UserError for a name that there is not.
  std::vector<std::string> exclude = {};
  /// With dtype i8: one scale for all activations of a product, by the name that reports have, as
  /// calibrate() finds them. The kernel that makes activations rounds them by it, once, and what
  /// exceeds 127 times the scale becomes that. Activations of other products have a scale for every
  /// row, found as they are made. UserError for a name that there is not.
  std::map<std::string, float> scales = {};
  int threads = 0;  ///< no more than tensor::threads() (threads.h); 0: these
  /// How long threads that have nothing to do look for work before they sleep (set_spin in
  /// threads.h); -1: as everywhere.
  int spin_us = -1;
  /// With dtype f32 on CUDA: Tensor Cores multiply float32 rounded to tf32, which has a mantissa of
  /// ten bits (from sm_80 on; older GPUs compute in float32). Sums and all stored values stay
  /// float32.
  bool tf32 = false;
  /// With dtype bf16 or f16: also stores the residual stream, to which a transformer's blocks add
  /// their results, in dtype, as PyTorch's half() does. Additions stay float32. Faster with many
  /// tokens, but less accurate: one more rounding per block, and in f16 sums above 65504 become
  /// infinite.
  bool narrow_residuals = false;
  /// false: UserError if an operator would run on the host in a program for a GPU, which then
  /// stands still meanwhile: what has no kernel there, and lookups by indices that must be
  /// checked in functions with choices.
  bool host_steps = true;
  bool fuse = true;  ///< false: one kernel per operator, for comparison
  /// Measurements to plan from (tune.h); nothing is measured here. Only measurements taken on the
  /// same device model are used (on GPUs from sm_80 on, f16 and bf16 stand in for each other).
  /// Unset: the shipped logs and the user's own. Empty: none. With kShippedLogs among
  /// them the shipped ones count, too.
  std::optional<std::vector<std::string>> tune_logs = std::nullopt;
  /// On CUDA, of Compiled: when kernels are compiled that another size would gain by. A size that
  /// loses little runs by the kernels of sizes before it in any case. In the background: one runs
  /// at once by these, if they take less than twice the time by estimates, until the better ones
  /// are there; its results then differ by rounding from those before. docs/gpu.md tells more.
  When better_kernels = When::now;
  /// Parameters by name, so that reports use the names of the model; see nn::state_dict.
  std::vector<std::pair<std::string, Tensor>> names = {};
  /// The most bytes of its device's memory that this executable and those that share with it may
  /// hold together (device_memory()), with the arena of one call, or of each device's; 0: any.
  /// Compiled first lets go of the sizes that were used least recently; what is still too much is a
  /// UserError. Calls at the same time wait for each other rather than take more. While something
  /// is compiled, more may be held.
  std::int64_t memory_limit = 0;
  /// Unset: shares nothing. Compiled: its own.
  std::optional<Sharing> sharing = std::nullopt;
};

namespace detail {

/// A TensorFunction that is compiled for types or examples. Being a type of its own, for which even
/// a TensorFunction is converted, it leaves compile(function, {.threads = 1}) to the overload of
/// functions alone: g++ 12 takes those braces for a vector, too.
struct TracedFunction {
  template <std::convertible_to<TensorFunction> F>
  TracedFunction(F&& traced) : function(std::forward<F>(traced)) {}
  TensorFunction function;
};

}  // namespace detail

/// Compiles `function` for inputs of these types, or of the types of the examples, whose values are
/// not used. UserError if the function reads the values of its inputs, on options that the device
/// does not support (dtype, tf32), and if there is no such device.
///
/// Tensors that the function captures, such as a model's parameters, become constants of the
/// executable. A function that writes into them while it is traced computes what it would compute
/// if it were called: each use has the values of its moment. Those that the function does not write
/// are shared, and copied only where they are stored in another form. Do not write into them while
/// the executable exists: it would compute with some old and some new values. After an assignment
/// its calls throw UserError; what is written through a pointer (mutable_data(), at()) is not. To
/// change them, compile again. UserError if what the function has used changes while it is traced
/// in a way that cannot be seen: through a pointer from before the use, or in the memory that
/// from_memory was given.
TENSOR_API Executable compile(const detail::TracedFunction& function,
                              const std::vector<TensorType>& inputs,
                              const CompileOptions& options = {});
TENSOR_API Executable compile(const detail::TracedFunction& function,
                              const std::vector<Tensor>& examples,
                              const CompileOptions& options = {});

/// What to exclude, beside options.exclude, for the outputs of the function in eight bits to differ
/// from those in f32 by no more than `most_error` (root mean squares; 0.01 is one per cent of an
/// output) for these examples: the products, by name, to whose results eight bits add most, as few
/// as that takes. UserError where one of them has no name (CompileOptions::names).
TENSOR_API std::vector<std::string> to_exclude(const detail::TracedFunction& function,
                                               const std::vector<Tensor>& examples,
                                               double most_error, CompileOptions options = {});

/// Scales for CompileOptions::scales: of every product that eight bits take, the largest magnitude
/// that its activations have for these examples, divided by 127. What is in options.scales stays
/// where it is larger, so that calls with one example after the other find scales for all of them.
/// Computed in eight bits on the host, whatever the device. UserError where a product has no name
/// (CompileOptions::names) or activations that are not finite. docs/eight_bits.md tells more.
TENSOR_API std::map<std::string, float> calibrate(const detail::TracedFunction& function,
                                                  const std::vector<Tensor>& examples,
                                                  CompileOptions options = {});

/// A function that is compiled at the first call with each new list of input types ("size"). Keeps
/// the `capacity` executables (at least 1) that were used last, which share weights and the memory
/// of calls (Sharing), so that a further size takes little. Any number of threads may call it, and
/// no size waits for another: those that call a size that is being compiled wait for that, and get
/// its error if it fails; the next call then tries again. The function itself is traced by one
/// thread at a time. Errors are those of compile() and of the executable.
class TENSOR_API Compiled {
 public:
  explicit Compiled(TensorFunction function, CompileOptions options = {}, std::size_t capacity = 8);
  /// A plan of this function gives its sizes, which are built, not compiled, at their first call,
  /// with the plan's weights, whatever the function's are now. UserError if the plan is for another
  /// dtype than the options.
  Compiled(Plan plan, TensorFunction function, CompileOptions options = {},
           std::size_t capacity = 8);
  /// With those alone: a call of any other size throws UserError, which lists them.
  explicit Compiled(Plan plan, const LoadOptions& options = {}, std::size_t capacity = 8);

  /// Inside a function that is traced itself, with inputs that are, the function is traced along:
  /// it becomes a part of the outer one, compiled with that one's options.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// The executable for inputs of these types, compiled now if necessary.
  Executable executable(const std::vector<Tensor>& inputs) const;
  /// Compiles for these lists of input types what is not compiled yet, one after the other; in the
  /// background: in a thread of its own, which ends with the object, after the size that it is at.
  /// A call takes over a size that waits there; the error of one that failed there comes at its
  /// first call. UserError for more sizes than the capacity.
  void prepare(const std::vector<std::vector<TensorType>>& sizes, When when = When::now) const;
  /// The plan that it was made with (or Plan()), and in it the executables that it keeps: to be
  /// saved.
  Plan plan() const;

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
      : CompiledFunction(Plan(), std::move(function), std::move(options), capacity) {}
  CompiledFunction(Plan plan, std::function<Result(const Inputs&...)> function,
                   CompileOptions options = {}, std::size_t capacity = 8)
      : compiled_(
            std::move(plan),
            [function = std::move(function)](const std::vector<Tensor>& in) {
              return std::apply(
                  [&](const Inputs&... inputs) { return tensors_of(function(inputs...)); },
                  tree_of<std::tuple<Inputs...>>(in));
            },
            std::move(options), capacity) {}
  explicit CompiledFunction(Plan plan, const LoadOptions& options = {}, std::size_t capacity = 8)
      : compiled_(std::move(plan), options, capacity) {}

  Result operator()(const Inputs&... inputs) const {
    return tree_of<Result>(compiled_(tensors_of(inputs...)));
  }
  /// The executable for inputs of these types, compiled now if necessary. It takes all tensors of
  /// the inputs, and returns all of the result, in the order of the members.
  Executable executable(const Inputs&... inputs) const {
    return compiled_.executable(tensors_of(inputs...));
  }
  /// As Compiled::prepare; every size has the types of all tensors of the inputs.
  void prepare(const std::vector<std::vector<TensorType>>& sizes, When when = When::now) const {
    compiled_.prepare(sizes, when);
  }
  Plan plan() const { return compiled_.plan(); }

 private:
  Compiled compiled_;
};

namespace detail {

/// A type without references and const; the result of x(...) counts as the tensor that it is.
template <class T>
using Plain = std::conditional_t<std::derived_from<std::remove_cvref_t<T>, Tensor>, Tensor,
                                 std::remove_cvref_t<T>>;

/// The compiled function of a function's type, if it is one of trees or of vectors.
template <class F>
struct CompiledAs {};
template <class F>
requires requires { &F::operator(); }
struct CompiledAs<F> : CompiledAs<decltype(&F::operator())> {};
template <class Result, class... Inputs>
requires(TensorTree<Plain<Result>> &&
         (TensorTree<Plain<Inputs>> && ...)) struct CompiledAs<Result (*)(Inputs...)> {
  using Type = CompiledFunction<Plain<Result>, Plain<Inputs>...>;
};
template <class Result, class Input>
requires(std::same_as<Plain<Result>, std::vector<Tensor>>&&
             std::same_as<Plain<Input>, std::vector<Tensor>>) struct CompiledAs<Result (*)(Input)> {
  using Type = Compiled;
};
template <class F, class Result, class... Inputs>
struct CompiledAs<Result (F::*)(Inputs...) const> : CompiledAs<Result (*)(Inputs...)> {};

template <class F>
concept Compilable = requires {
  typename CompiledAs<F>::Type;
};

}  // namespace detail

/// compile(attention), where attention is a function, a lambda or an object with one operator()
/// (const, no template), such as a model: from tensors or structs of tensors to one of these. The
/// object is copied; its tensors are shared. The result has the type CompiledFunction; that of a
/// function from std::vector<Tensor> to std::vector<Tensor> has the type Compiled.
template <detail::Compilable F>
auto compile(F function, const CompileOptions& options = {}) {
  return typename detail::CompiledAs<F>::Type(std::move(function), options);
}
/// Anything else does not compile, and says why.
template <class F>
void compile(F, const CompileOptions& = {}) {
  static_assert(detail::Compilable<F>,
                "tensor::compile needs a function whose types it can see, from tensors or structs "
                "of tensors (TensorTree in tensor/tree.h) to one of these. In place of a lambda of "
                "auto write [](const tensor::Tensor& x) { ... }; an operator() must be const, no "
                "template, and the only one");
}

}  // namespace tensor
