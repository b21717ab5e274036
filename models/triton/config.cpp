#include "models/triton/config.h"

#include <algorithm>
#include <thread>

#include "models/common/text.h"
#include "tensor/json.h"
#include "tensor/text.h"

namespace models::triton {

using service::Array;

namespace {

std::vector<std::string> names_in(const tensor::Json& config, const char* key) {
  std::vector<std::string> names;
  if (!config.has(key)) return names;
  for (std::size_t i = 0; i < config[key].size(); ++i)
    names.push_back(config[key][i]["name"].text());
  return names;
}

void read_instances(const tensor::Json& groups, Config& config) {
  std::int64_t on_cpu = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string kind = groups[i].text("kind", "KIND_AUTO");
    if (kind == "KIND_CPU") on_cpu += std::max<std::int64_t>(groups[i].integer("count", 1), 1);
    if (kind != "KIND_GPU" || i > 0) continue;
    const bool names_one = groups[i].has("gpus") && groups[i]["gpus"].size() > 0;
    const std::int64_t gpu = names_one ? groups[i]["gpus"][std::size_t{0}].integer() : 0;
    config.device = tensor::Device("cuda:" + std::to_string(gpu));
  }
  config.cpu_instances = std::max<std::int64_t>(on_cpu, 1);
}

Array array_of(const service::Port& port, bool are_batched) {
  if (!port.shape)
    tensor::fail(port.name,
                 "is of any rank, which a server's configuration cannot say: give its "
                 "shape in the ONNX file");
  Array array{port.name, std::string(service::datatype_of(port.dtype)), *port.shape};
  if (are_batched) array.shape.erase(0);
  return array;
}

void print(tensor::TextWriter& out, const char* key, const std::vector<Array>& arrays,
           const std::vector<std::string>& optional) {
  out << ", \"" << key << "\": [";
  for (const Array& array : arrays) {
    const std::string type = array.datatype == "BYTES" ? "STRING" : array.datatype;
    out << (&array == &arrays.front() ? "" : ", ") << "{\"name\": " << json_text(array.name)
        << ", \"data_type\": \"TYPE_" << type << "\", \"dims\": [";
    // A shape without axes is written as one of one element that is reshaped.
    if (array.shape.empty()) out << "1], \"reshape\": {\"shape\": []";
    for (int axis = 0; axis < array.shape.rank(); ++axis)
      out << (axis > 0 ? ", " : "") << array.shape[axis];
    out << (array.shape.empty() ? "}" : "]");
    if (std::ranges::find(optional, array.name) != optional.end()) out << ", \"optional\": true";
    out << "}";
  }
  out << "]";
}

void check_names(const std::vector<std::string>& given, const std::vector<Array>& known,
                 const char* kind, const std::string& model) {
  for (const std::string& name : given) {
    if (std::ranges::find(known, name, &Array::name) != known.end()) continue;
    std::vector<std::string> names;
    for (const Array& array : known) names.push_back(array.name);
    tensor::fail(model, "config.pbtxt names the ", kind, " \"", name, "\", need one of ",
                 joined(names, ", "));
  }
}

}  // namespace

Config read_config(std::string_view json) {
  const tensor::Json root = tensor::Json::parse(json, "the model's configuration");
  Config config;
  config.name = root.text("name", "");
  config.max_batch = root.integer("max_batch_size", 0);
  config.inputs = names_in(root, "input");
  config.outputs = names_in(root, "output");
  for (const char* scheduler : {"dynamic_batching", "sequence_batching", "ensemble_scheduling"})
    if (root.has(scheduler)) config.scheduler = scheduler;
  if (root.has("instance_group")) read_instances(root["instance_group"], config);
  if (!root.has("parameters")) return config;
  const tensor::Json parameters = root["parameters"];
  for (const std::string& name : parameters.keys())
    config.parameters.emplace(name, parameters[name].text("string_value", ""));
  return config;
}

service::OpenOptions open_options(const Config& config, const tensor::Device& device,
                                  std::int64_t max_batch) {
  service::OpenOptions options;
  options.device = device;
  options.max_batch = std::max<std::int64_t>(max_batch, 1);
  for (const auto& [name, value] : config.parameters)
    if (name != "device" && name != "max_batch") options.set(name, value);
  if (!config.parameters.contains("threads") && config.cpu_instances > 1)
    options.threads = static_cast<int>(std::max<std::int64_t>(
        1, std::int64_t{std::thread::hardware_concurrency()} / config.cpu_instances));
  return options;
}

Face face_of(service::Model& model, bool takes_pictures) {
  Face face;
  if (takes_pictures) {
    face.inputs = {{service::kPicture, "BYTES", {1}}};
    face.outputs = service::face_of(*model.program());
    face.max_batch = model.batches().sizes.back();
    return face;
  }
  const service::Ports& ports = model.ports();
  if (ports.are_batched) face.max_batch = model.batches().sizes.back();
  for (const service::Port& port : ports.inputs) {
    face.inputs.push_back(array_of(port, ports.are_batched));
    if (port.is_optional) face.optional_inputs.push_back(port.name);
  }
  for (const service::Port& port : ports.outputs)
    face.outputs.push_back(array_of(port, ports.are_batched));
  return face;
}

std::string completed(const Config& config, const Face& face) {
  check_config(config, face);
  tensor::TextWriter out;
  const std::int64_t batch = config.max_batch > 0 ? config.max_batch : face.max_batch;
  out << "{\"name\": " << json_text(config.name)
      << ", \"backend\": \"tensor\", \"max_batch_size\": " << batch;
  print(out, "input", face.inputs, face.optional_inputs);
  print(out, "output", face.outputs, {});
  // A scheduler that is given stays as it is, but must be named again.
  if (!config.scheduler.empty())
    out << ", \"" << config.scheduler << "\": {}";
  else if (batch > 1)
    out << ", \"dynamic_batching\": {}";
  out << "}";
  return out.str();
}

void check_config(const Config& config, const Face& face) {
  check_names(config.inputs, face.inputs, "input", config.name);
  check_names(config.outputs, face.outputs, "output", config.name);
  if (config.max_batch > 0 && face.max_batch == 0)
    tensor::fail(config.name, "got max_batch_size ", config.max_batch,
                 ", need 0: the model's inputs and outputs do not share a first axis for batches");
}

}  // namespace models::triton
