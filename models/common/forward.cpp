// Compiling functions of named tensors.
#include "models/common/forward.h"

#include <algorithm>
#include <cmath>

#include "tensor/log.h"
#include "tensor/ops.h"
#include "tensor/text.h"

namespace models {

using tensor::Tensor;
using tensor::nn::StateDict;

bool NamedExecutable::fits(const StateDict& given) const {
  if (given.size() != inputs.size()) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto found = given.find(inputs[i]);
    if (found == given.end() || !(found->second.type() == executable.input_types()[i]))
      return false;
  }
  return true;
}

std::vector<Tensor> NamedExecutable::arguments(const StateDict& given) const {
  std::vector<Tensor> result;
  for (const std::string& name : inputs) result.push_back(given.at(name));
  return result;
}

StateDict NamedExecutable::operator()(const StateDict& given) const {
  return finished(executable(arguments(given)));
}

StateDict NamedExecutable::finished(const std::vector<Tensor>& values) const {
  StateDict result;
  for (std::size_t i = 0; i < outputs.size(); ++i) result.emplace(outputs[i], values[i]);
  return rest ? rest(result) : result;
}

Forward rest_of(const tensor::OnnxSplit& parts, tensor::CompileOptions how) {
  // Names of products and several devices are for the head alone.
  how.exclude.clear(), how.scales.clear(), how.whole_inputs.clear();
  if (!how.devices.empty()) how.device = how.devices.front(), how.devices.clear();
  return [rest = parts.rest, run = parts.rest.in_parts(how)](const StateDict& given) {
    std::vector<Tensor> values;
    for (const tensor::OnnxValue& input : rest.inputs()) values.push_back(given.at(input.name));
    values = run(values);
    StateDict outputs;
    for (std::size_t i = 0; i < values.size(); ++i)
      outputs.emplace(rest.outputs()[i].name, values[i]);
    return outputs;
  };
}

std::string note_of(const tensor::OnnxSplit& parts) {
  return parts.node +
         " asks for elements of what is computed: what depends on it runs on the host, in parts";
}

namespace {

/// A function of named tensors as one of lists; `outputs` takes the names of its results.
tensor::TensorFunction unnamed(const Forward& function, std::vector<std::string> inputs,
                               std::vector<std::string>& outputs) {
  return [&function, &outputs, inputs = std::move(inputs)](const std::vector<Tensor>& values) {
    StateDict given;
    for (std::size_t i = 0; i < inputs.size(); ++i) given.emplace(inputs[i], values[i]);
    std::vector<Tensor> results;
    outputs.clear();  // for several devices it is traced more than once
    for (const auto& [name, value] : function(given))
      outputs.push_back(name), results.push_back(value);
    return results;
  };
}

}  // namespace

NamedExecutable compile_named(const Forward& function, const StateDict& inputs,
                              const tensor::CompileOptions& options) {
  std::vector<std::string> names, output_names;
  std::vector<Tensor> examples;
  for (const auto& [name, value] : inputs) names.push_back(name), examples.push_back(value);
  tensor::Executable executable =
      tensor::compile(unnamed(function, names, output_names), examples, options);
  return {std::move(names), std::move(output_names), std::move(executable)};
}

tensor::TuneSummary tune_named(const Forward& function, const StateDict& inputs,
                               const tensor::CompileOptions& options,
                               const tensor::TuneOptions& tuning) {
  std::vector<std::string> names, output_names;
  std::vector<tensor::TensorType> types;
  for (const auto& [name, value] : inputs) names.push_back(name), types.push_back(value.type());
  return tensor::tune(unnamed(function, names, output_names), types, options, tuning);
}

std::map<std::string, float> calibrate_named(const Forward& function, const StateDict& inputs,
                                             const tensor::CompileOptions& options) {
  std::vector<std::string> names, output_names;
  std::vector<Tensor> examples;
  for (const auto& [name, value] : inputs) names.push_back(name), examples.push_back(value);
  return tensor::calibrate(unnamed(function, names, output_names), examples, options);
}

namespace {

void log_let_go(const std::map<std::string, tensor::TensorType>& types, std::size_t kept) {
  std::vector<std::string> names;
  std::vector<tensor::TensorType> values;
  for (const auto& [name, type] : types) names.push_back(name), values.push_back(type);
  tensor::log(tensor::LogLevel::warning, "model: let go of the inputs ",
              describe_inputs(names, values), ", since it keeps ", kept,
              " sizes: resize pictures to fewer sizes");
}

}  // namespace

NamedExecutable CompiledForward::executable(const StateDict& inputs, bool* made) {
  Types types;
  for (const auto& [name, x] : inputs) types.emplace(name, x.type());
  std::promise<NamedExecutable> promise;
  std::shared_ptr<const Entry> entry, gone;
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::ranges::find_if(recent_, [&](const auto& e) { return e->types == types; });
    is_new = known == recent_.end();
    if (is_new)
      recent_.push_front(std::make_shared<Entry>(Entry{types, promise.get_future().share()}));
    else
      recent_.splice(recent_.begin(), recent_, known);
    entry = recent_.front();
    if (recent_.size() > kKept) {
      gone = recent_.back();
      recent_.pop_back();
    }
  }
  if (gone) log_let_go(gone->types, kKept);
  if (!is_new) return entry->executable.get();
  try {
    promise.set_value(compile_(inputs, sharing_));
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    recent_.remove(entry);
  }
  if (made) *made = true;
  return entry->executable.get();
}

const Tensor& output(const StateDict& outputs, const std::string& name,
                     const tensor::Shape& shape) {
  const auto found = outputs.find(name);
  if (found == outputs.end()) tensor::fail("model", "it has no output \"", name, '"');
  if (found->second.shape() != shape)
    tensor::fail("model", "its output ", name, " has the shape ", found->second.shape(), ", need ",
                 shape);
  return found->second;
}

bool has_nan(const StateDict& outputs) {
  return std::ranges::any_of(outputs, [](const auto& entry) {
    const Tensor& x = entry.second;  // max passes NaN on
    return is_floating(x.dtype()) && x.size() > 0 && std::isnan(tensor::max(x).item());
  });
}

std::string describe_inputs(const std::vector<std::string>& names,
                            const std::vector<tensor::TensorType>& types) {
  tensor::TextWriter text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text << (i == 0 ? "" : ", ") << names[i] << ' ' << types[i];
  return text.str();
}

std::string describe_inputs(const StateDict& inputs) {
  std::vector<std::string> names;
  std::vector<tensor::TensorType> types;
  for (const auto& [name, value] : inputs) names.push_back(name), types.push_back(value.type());
  return describe_inputs(names, types);
}

}  // namespace models
