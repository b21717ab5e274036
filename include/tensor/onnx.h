// ONNX files as functions of tensors. docs/onnx.md lists the operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/function.h"
#include "tensor/handle.h"

namespace tensor {

struct CompileOptions;
struct OnnxSplit;
namespace onnx {
struct Model;
}

/// One axis of an input or output.
struct OnnxExtent {
  std::int64_t extent = -1;  ///< -1: any
  std::string name;          ///< what the file calls an extent that may be any: "batch", or nothing
};

/// What a model says about an input or output.
struct OnnxValue {
  std::string name;
  DType dtype = f32;
  std::optional<std::vector<OnnxExtent>> shape;  ///< unset: of any rank
};
/// Prints "pixels f32(batch, 3, ?, 224)", or "pixels f32(...)" of any rank.
TENSOR_API std::ostream& operator<<(std::ostream& out, const OnnxValue& value);

/// A model of an ONNX file: a function of its inputs, in the file's order, that gives its outputs.
/// It runs eagerly when it is called, on tensors of any device; compile(model) compiles it like any
/// other function, anew for every list of input shapes, and tune() tunes it. Copying it copies a
/// handle; any number of threads may call it.
///
/// What depends on shapes and constants alone is computed on the host, at once: shapes are numbers
/// whenever the model runs or is traced, and never a part of what is compiled. What depends on
/// constants alone is computed once a model, at the first call.
class TENSOR_API OnnxModel {
 public:
  explicit OnnxModel(std::shared_ptr<const onnx::Model> model) : model_(std::move(model)) {}

  const std::vector<OnnxValue>& inputs() const;
  const std::vector<OnnxValue>& outputs() const;
  /// UserError on inputs of another number, type, rank or (where it is fixed) extent; on indices
  /// out of bounds and whatever else the operators refuse, with the node's name; and, of a traced
  /// call, where a shape or a condition depends on the elements of an input.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// The same by name. UserError unless these are the names of the inputs.
  std::map<std::string, Tensor> run(const std::map<std::string, Tensor>& inputs) const;

  /// Two models for inputs of these types. The head has all that compile() takes. The rest has the
  /// nodes that ask for elements which a traced call does not have (shapes, conditions, lists of
  /// positions), and what depends on them. UserError as for a call with such inputs.
  OnnxSplit split(const std::vector<TensorType>& inputs) const;
  /// The same for inputs of the types of these, by name.
  OnnxSplit split(const std::map<std::string, Tensor>& inputs) const;
  /// The model as a function that is compiled as far as that goes (compile.h has the options): what
  /// a compiled part cannot compute runs eagerly on the host, as far as to the next product,
  /// convolution or sampling of an image. From there on, what does not ask for elements is again a
  /// compiled part. Parts are compiled for the types that come; the last eight lists of a part are
  /// kept. Any number of threads may call it. options.exclude and options.scales are for the first
  /// part, which is the head of split().
  TensorFunction in_parts(const CompileOptions& options) const;

  std::int64_t opset() const;           ///< of the standard's operators
  const std::string& producer() const;  ///< which program wrote the file, "pytorch 2.4.0"
  /// How many nodes of each operator there are, with those of branches and loops.
  std::map<std::string, std::int64_t> operators() const;
  /// The constants that the file stores, by name: CompileOptions::names, so that reports use the
  /// model's names.
  std::vector<std::pair<std::string, Tensor>> parameters() const;
  /// The files that it was read from: first the model's own, then those of external elements.
  const std::vector<std::string>& files() const;

 private:
  std::shared_ptr<const onnx::Model> model_;
};

/// rest(head(inputs)) are the outputs of the model that was split. The head's outputs, which are
/// the rest's inputs, have the names that the file has for them.
struct OnnxSplit {
  OnnxModel head;
  OnnxModel rest;
  /// The first node that asked for elements, "node "/nms" (NonMaxSuppression of opset 17)". Empty
  /// where there is none: then the head is the model itself, and the rest returns what it is given.
  std::string node;
};

/// Reads a file and checks that every operator of it can run. Elements stay in the mapped file,
/// where they are aligned, as in load_safetensors; those of external files must lie in the model's
/// folder. UserError on a file that is damaged, and, all of them at once, on operators, opsets,
/// types and attributes that this library does not run.
TENSOR_API OnnxModel load_onnx(const std::string& path);
/// The same from memory, of which it keeps nothing; `name` is how messages call it. UserError also
/// where elements lie in external files.
TENSOR_API OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::string& name);

}  // namespace tensor
