// The Open Inference Protocol (KServe's V2, with Triton's binary arrays) without its transport:
// what is under /v2, from paths and bodies to answers.
//   GET  /v2, /v2/health/live, /v2/health/ready
//   GET  /v2/models/NAME, /v2/models/NAME/ready
//   POST /v2/models/NAME/infer           pictures to findings: models/service/face.h
//   GET  /metrics                        counts and times, for Prometheus
// "/versions/1" may stand behind a name. What cannot be answered is {"error": "why"}.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "models/server/engine.h"

namespace models::server {

struct InferenceAnswer {
  int status = 200;
  std::string body, type = "application/json";
  /// With arrays behind the JSON text: the length of that.
  std::optional<std::size_t> header_length = {};
};

class Inference {
 public:
  /// Runs one picture: Engine::run, wherever that is to happen.
  using Look = std::function<Answer(const std::string& model, std::string_view picture)>;

  explicit Inference(const Engine& engine);

  /// What a path is for: "GET", "POST", or nothing.
  static std::string_view method_of(const std::string& path);
  InferenceAnswer get(const std::string& path) const;
  /// `header_length` is what the client says of its JSON text; none: the whole body.
  InferenceAnswer infer(const std::string& path, std::string_view body,
                        const std::string& header_length, const Look& look);
  /// A refusal in the protocol's form, counted where it is of a model.
  static InferenceAnswer refusal(int status, std::string_view why);

 private:
  struct Counts {
    std::atomic<std::uint64_t> answered = 0, refused = 0, pictures = 0, microseconds = 0;
  };

  std::string metrics() const;
  const Engine& engine_;
  std::map<std::string, Counts> counts_;  // by model; its entries stay as they are
};

}  // namespace models::server
