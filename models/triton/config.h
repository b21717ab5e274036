// A model's configuration: what the server says of it, and what the backend adds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/service/face.h"
#include "models/service/model.h"

namespace models::triton {

struct Config {
  std::string name;
  std::int64_t max_batch = 0;                     // 0: not said, or no batches
  std::string scheduler;                          // what it gives: "dynamic_batching"
  std::vector<std::string> inputs, outputs;       // by name
  std::map<std::string, std::string> parameters;  // OpenOptions::set takes them
  std::int64_t cpu_instances = 1;
  /// Where the first instances are to run: what the model is looked at on before there are any.
  tensor::Device device = {};
};

/// From the server's JSON. UserError where it is not as it should be.
Config read_config(std::string_view json);

/// How the model is opened for an instance there.
service::OpenOptions open_options(const Config& config, const tensor::Device& device,
                                  std::int64_t max_batch);

/// What goes in and out, without a batch's axis.
struct Face {
  std::vector<service::Array> inputs, outputs;
  std::vector<std::string> optional_inputs = {};
  std::int64_t max_batch = 0;  // 0: calls are not joined, and arrays have no axis for it
};
/// Of pictures, or the model's own tensors.
Face face_of(service::Model& model, bool takes_pictures);

/// The whole configuration as JSON. UserError where the given one names other inputs or outputs.
std::string completed(const Config& config, const Face& face);
/// UserError unless inputs, outputs and the largest batch of a configuration are those of the face.
void check_config(const Config& config, const Face& face);

}  // namespace models::triton
