// The public functions of tensor/onnx.h.
#include "tensor/onnx.h"

#include <algorithm>
#include <ostream>

#include "src/core/types_of.h"
#include "src/io/source.h"
#include "src/onnx/elements.h"
#include "src/onnx/graph.h"
#include "src/onnx/split.h"

namespace tensor {
namespace {

// What is wrong with x as this input, or nothing.
std::string mismatch(const OnnxValue& value, const TensorType& x) {
  TextWriter got;
  got << "got " << x << " as the input " << in_quotes(value.name) << ", need " << value;
  if (x.dtype != value.dtype) return got.str();
  if (!value.shape) return {};
  bool fits = x.shape.rank() == static_cast<int>(value.shape->size());
  for (int axis = 0; fits && axis < x.shape.rank(); ++axis) {
    const std::int64_t need = (*value.shape)[static_cast<std::size_t>(axis)].extent;
    fits = need < 0 || need == x.shape[axis];
  }
  return fits ? std::string() : got.str();
}

std::string names_of(const std::vector<OnnxValue>& values) {
  std::string names;
  for (const OnnxValue& value : values)
    names += (names.empty() ? "" : ", ") + in_quotes(value.name);
  return names;
}

OnnxModel linked(Bytes bytes, const std::string& name, onnx::ElementReader elements) {
  return OnnxModel(onnx::link(onnx::read_model(bytes, name), name, elements));
}

}  // namespace

void onnx::check_inputs(const Model& model, const std::vector<TensorType>& inputs) {
  const std::vector<OnnxValue>& need = model.inputs;
  if (inputs.size() != need.size())
    fail(model.name, "got ", inputs.size(), " inputs, need ", need.size(), ": ", names_of(need));
  for (std::size_t i = 0; i < need.size(); ++i)
    if (const std::string why = mismatch(need[i], inputs[i]); !why.empty()) fail(model.name, why);
}

std::vector<Tensor> onnx::in_order(const Model& model,
                                   const std::map<std::string, Tensor>& inputs) {
  std::vector<Tensor> ordered;
  for (const OnnxValue& value : model.inputs) {
    const auto found = inputs.find(value.name);
    if (found == inputs.end())
      fail(model.name, "the input ", in_quotes(value.name), " is missing, need ",
           names_of(model.inputs));
    ordered.push_back(found->second);
  }
  for (const auto& [name, x] : inputs)
    if (std::ranges::count(model.inputs, name, &OnnxValue::name) == 0)
      fail(model.name, "there is no input ", in_quotes(name), ", need ", names_of(model.inputs));
  return ordered;
}

std::ostream& operator<<(std::ostream& out, const OnnxValue& value) {
  out << value.name << ' ' << value.dtype << '(';
  if (!value.shape) return out << "...)";
  const char* comma = "";
  for (const OnnxExtent& axis : *value.shape) {
    out << comma;
    if (axis.extent >= 0)
      out << axis.extent;
    else
      out << (axis.name.empty() ? "?" : axis.name);
    comma = ", ";
  }
  return out << ')';
}

const std::vector<OnnxValue>& OnnxModel::inputs() const { return model_->inputs; }
const std::vector<OnnxValue>& OnnxModel::outputs() const { return model_->outputs; }
std::int64_t OnnxModel::opset() const { return model_->opset; }
const std::string& OnnxModel::producer() const { return model_->producer; }
std::map<std::string, std::int64_t> OnnxModel::operators() const { return model_->operators; }
std::vector<std::pair<std::string, Tensor>> OnnxModel::parameters() const {
  return model_->parameters;
}
const std::vector<std::string>& OnnxModel::files() const { return model_->files; }

std::vector<Tensor> OnnxModel::operator()(const std::vector<Tensor>& inputs) const {
  onnx::check_inputs(*model_, detail::types_of(inputs));
  return onnx::run(*model_, inputs);
}

std::map<std::string, Tensor> OnnxModel::run(const std::map<std::string, Tensor>& inputs) const {
  const std::vector<Tensor> results = (*this)(onnx::in_order(*model_, inputs));
  std::map<std::string, Tensor> outputs;
  for (std::size_t i = 0; i < results.size(); ++i)
    outputs.emplace(model_->outputs[i].name, results[i]);
  return outputs;
}

OnnxModel load_onnx(const std::string& path) {
  const Source source = Source::open(path);
  if (source.size() == 0) fail(path, "is no ONNX model: it is empty");
  const std::shared_ptr<const std::byte> file = source.map();
  return linked({file.get(), static_cast<std::size_t>(source.size())}, path,
                onnx::ElementReader(path, file));
}

OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::string& name) {
  return linked(bytes, name, onnx::ElementReader(name));
}

}  // namespace tensor
