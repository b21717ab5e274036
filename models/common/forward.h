// How a program runs its model: a function from named tensors to named tensors, eager or compiled.
#pragma once

#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/compile.h"
#include "tensor/nn.h"
#include "tensor/onnx.h"
#include "tensor/tune.h"

namespace models {

/// Named inputs ("pixel_values") to named outputs ("logits").
using Forward = std::function<tensor::nn::StateDict(const tensor::nn::StateDict&)>;

/// An executable that knows its inputs and outputs by name.
struct NamedExecutable {
  std::vector<std::string> inputs, outputs;  // in the executable's order
  tensor::Executable executable;
  Forward rest = {};  // of an ONNX model that is compiled in parts: what makes outputs of these

  /// Whether these are its inputs, by name and type.
  bool fits(const tensor::nn::StateDict& given) const;
  /// What the executable takes, from inputs that fit.
  std::vector<tensor::Tensor> arguments(const tensor::nn::StateDict& given) const;
  tensor::nn::StateDict operator()(const tensor::nn::StateDict& given) const;
  /// What the executable gave, by name, and then the rest.
  tensor::nn::StateDict finished(const std::vector<tensor::Tensor>& values) const;
};

/// Compiles a traceable function for inputs of these names and types.
NamedExecutable compile_named(const Forward& function, const tensor::nn::StateDict& inputs,
                              const tensor::CompileOptions& options = {});

/// NamedExecutable::rest where the executable is the head's. `how` is how that was compiled.
Forward rest_of(const tensor::OnnxSplit& parts, tensor::CompileOptions how);
/// For people: "node ... asks for elements: what depends on it runs on the host, in parts".
std::string note_of(const tensor::OnnxSplit& parts);

/// Tunes it for such inputs.
tensor::TuneSummary tune_named(const Forward& function, const tensor::nn::StateDict& inputs,
                               const tensor::CompileOptions& options,
                               const tensor::TuneOptions& tuning);

/// What tensor::calibrate finds for these inputs.
std::map<std::string, float> calibrate_named(const Forward& function,
                                             const tensor::nn::StateDict& inputs,
                                             const tensor::CompileOptions& options);

/// The executables for the last few lists of input names and types. Any number of threads may use
/// it: those that need the same new executable wait for the first of them, others for nobody.
class CompiledForward {
 public:
  /// Compiles with that sharing.
  using Compile = std::function<NamedExecutable(const tensor::nn::StateDict& inputs,
                                                const tensor::Sharing& sharing)>;

  explicit CompiledForward(Compile compile) : compile_(std::move(compile)) {}
  /// The executable for inputs like these, made now if need be: then `*made` becomes true.
  NamedExecutable executable(const tensor::nn::StateDict& inputs, bool* made = nullptr);

 private:
  using Types = std::map<std::string, tensor::TensorType>;
  struct Entry {
    Types types;
    std::shared_future<NamedExecutable> executable;
  };
  static constexpr std::size_t kKept = 16;  // they share their weights
  Compile compile_;
  tensor::Sharing sharing_;
  std::mutex mutex_;
  std::list<std::shared_ptr<const Entry>> recent_;  // the latest first
};

/// The output of this name; UserError unless it is there with this shape, because an executable may
/// come from a file.
const tensor::Tensor& output(const tensor::nn::StateDict& outputs, const std::string& name,
                             const tensor::Shape& shape);

/// Whether a number among them is NaN: then they mean nothing.
bool has_nan(const tensor::nn::StateDict& outputs);

/// "pixel_mask i64(1, 8, 8), pixel_values f32(1, 3, 8, 8)"
std::string describe_inputs(const std::vector<std::string>& names,
                            const std::vector<tensor::TensorType>& types);
std::string describe_inputs(const tensor::nn::StateDict& inputs);

}  // namespace models
