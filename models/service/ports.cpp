#include "models/service/ports.h"

#include <algorithm>

#include "models/common/text.h"
#include "tensor/text.h"

namespace models::service {

using tensor::Shape;
using tensor::TensorType;
using tensor::nn::StateDict;

namespace {

std::string shape_text(const std::optional<Shape>& shape) {
  if (!shape) return "(...)";
  tensor::TextWriter text;
  text << '(';
  for (int axis = 0; axis < shape->rank(); ++axis) {
    if (axis > 0) text << ", ";
    if ((*shape)[axis] < 0)
      text << '?';
    else
      text << (*shape)[axis];
  }
  text << ')';
  return text.str();
}

bool takes(const Port& port, const TensorType& type) {
  if (port.dtype != type.dtype) return false;
  if (!port.shape) return true;
  if (port.shape->rank() != type.shape.rank()) return false;
  for (int axis = 0; axis < type.shape.rank(); ++axis)
    if ((*port.shape)[axis] >= 0 && (*port.shape)[axis] != type.shape[axis]) return false;
  return true;
}

std::vector<std::string> words(const std::string& text) {
  tensor::TextReader in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

/// The names that were said about a size, or "input_0" and so on.
std::vector<std::string> names_in(const tensor::Plan::About& about, const std::string& kind,
                                  std::size_t count, const std::string& plan) {
  std::vector<std::string> names;
  if (const auto found = about.find(kind + "s"); found != about.end()) {
    names = words(found->second);
    if (names.size() != count)
      tensor::fail(plan, "names ", names.size(), " ", kind, "s, but has ", count,
                   ": the file is damaged, name another");
    return names;
  }
  for (std::size_t i = 0; i < count; ++i) names.push_back(kind + "_" + std::to_string(i));
  return names;
}

void add_size(std::vector<Port>& ports, const std::vector<std::string>& names,
              const std::vector<TensorType>& types, const std::string& plan) {
  if (ports.empty()) {
    for (std::size_t i = 0; i < names.size(); ++i)
      ports.push_back({names[i], types[i].dtype, types[i].shape});
    return;
  }
  bool are_same = ports.size() == names.size();
  for (std::size_t i = 0; are_same && i < names.size(); ++i)
    are_same = ports[i].name == names[i] && ports[i].dtype == types[i].dtype;
  if (!are_same)
    tensor::fail(plan, "has sizes with other inputs or outputs than ", ports.front().name,
                 " and its like: put each kind into a plan of its own");
  for (std::size_t i = 0; i < names.size(); ++i) widen(ports[i], types[i].shape, plan);
}

/// Whether axis 0 has one extent in all of them: `rows`.
bool agree_on_rows(const std::vector<TensorType>& types, std::int64_t rows) {
  return std::ranges::all_of(types, [&](const TensorType& type) {
    return type.shape.rank() > 0 && type.shape[0] == rows;
  });
}

bool is_batch_axis(const tensor::OnnxValue& value) {
  if (!value.shape || value.shape->empty() || value.shape->front().extent >= 0) return false;
  const std::string name = lower(value.shape->front().name);
  return name.starts_with("batch") || name == "n" || name == "b" || name == "bs";
}

Port port_of(const tensor::OnnxValue& value) {
  Port port{value.name, value.dtype};
  if (!value.shape) return port;
  port.shape.emplace();
  for (const tensor::OnnxExtent& axis : *value.shape) port.shape->push_back(axis.extent);
  return port;
}

}  // namespace

void check_inputs(const Ports& ports, const StateDict& inputs) {
  for (const auto& [name, value] : inputs) {
    if (std::ranges::find(ports.inputs, name, &Port::name) != ports.inputs.end()) continue;
    std::vector<std::string> names;
    for (const Port& port : ports.inputs) names.push_back(port.name);
    tensor::fail("inputs", "got \"", name, "\", the model takes ", joined(names, ", "));
  }
  for (const Port& port : ports.inputs) {
    const auto found = inputs.find(port.name);
    if (found == inputs.end()) {
      if (!port.is_optional) tensor::fail("inputs", "need \"", port.name, "\", which is not there");
    } else if (const TensorType type = found->second.type(); !takes(port, type)) {
      tensor::fail(port.name, "got ", type, ", need ", port.dtype, shape_text(port.shape));
    }
  }
  if (!ports.are_batched) return;
  const auto& [name, first] = *inputs.begin();
  for (const auto& [other, value] : inputs) {
    if (value.size() == 0) tensor::fail(other, "got ", value.type(), ", which has no elements");
    if (value.shape(0) != first.shape(0))
      tensor::fail(other, "got ", value.type(), ", need as many rows as ", name, ", which is ",
                   first.type());
  }
}

void widen(Port& port, const Shape& other, const std::string& name) {
  Shape& shape = port.shape.value();
  if (shape.rank() != other.rank())
    tensor::fail(name, port.name, " has ", shape.rank(), " axes in one size and ", other.rank(),
                 " in another: put each kind into a file of its own");
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != other[axis]) shape[axis] = -1;
}

Ports ports_of(const std::vector<PlannedSize>& sizes, const std::string& name) {
  if (sizes.empty())
    tensor::fail(name, "has no sizes: add one with the program's --plan or Plan::add");
  Ports ports;
  ports.are_batched = true;
  for (const auto& [about, executable] : sizes) {
    const std::vector<TensorType>&inputs = executable.input_types(),
          &outputs = executable.output_types();
    add_size(ports.inputs, names_in(about, "input", inputs.size(), name), inputs, name);
    add_size(ports.outputs, names_in(about, "output", outputs.size(), name), outputs, name);
    const std::int64_t rows = inputs.empty() || inputs[0].shape.empty() ? -1 : inputs[0].shape[0];
    ports.are_batched =
        ports.are_batched && agree_on_rows(inputs, rows) && agree_on_rows(outputs, rows);
  }
  if (!ports.are_batched) return ports;
  for (std::vector<Port>* side : {&ports.inputs, &ports.outputs})
    for (Port& port : *side) (*port.shape)[0] = -1;
  return ports;
}

Ports ports_of(const tensor::OnnxModel& model) {
  Ports ports;
  ports.are_batched = !model.inputs().empty() &&
                      std::ranges::all_of(model.inputs(), is_batch_axis) &&
                      std::ranges::all_of(model.outputs(), is_batch_axis);
  for (const tensor::OnnxValue& value : model.inputs()) ports.inputs.push_back(port_of(value));
  for (const tensor::OnnxValue& value : model.outputs()) ports.outputs.push_back(port_of(value));
  return ports;
}

}  // namespace models::service
