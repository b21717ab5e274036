// ServedModel and Instance: what the server's models and instances are in the backend.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "models/triton/config.h"
#include "models/triton/request.h"

namespace models::triton {

/// A model in one version: what its instances on one device share.
class ServedModel {
 public:
  /// Completes the configuration where the server wants that. UserError, for one thing, where the
  /// version's folder holds no model, or the configuration is of another.
  explicit ServedModel(TRITONBACKEND_Model* model);

  /// The model there, opened by the first who asks: weights are there once a device.
  std::shared_ptr<service::Model> on(const tensor::Device& device);
  bool takes_pictures() const { return takes_pictures_; }
  const Face& face() const { return face_; }

 private:
  Config config_;
  std::string folder_;
  std::int64_t max_batch_ = 0;
  bool takes_pictures_ = false;
  Face face_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<service::Model>> models_;  // by device
};

/// Answers requests, one list of them at a time.
class Instance {
 public:
  Instance(TRITONBACKEND_ModelInstance* instance, ServedModel& served);
  /// Takes the requests over.
  void execute(std::span<TRITONBACKEND_Request* const> requests);

 private:
  /// What one request asks: its pictures, or the inputs of one call.
  struct Task {
    Request* request;
    std::vector<std::string_view> pictures = {};
    tensor::nn::StateDict inputs = {};
  };

  Task task_of(Request& request) const;
  void answer_pictures(std::deque<Task>& tasks) const;
  void answer_calls(std::deque<Task>& tasks) const;

  TRITONBACKEND_ModelInstance* instance_;
  ServedModel& served_;
  std::shared_ptr<service::Model> model_;
};

}  // namespace models::triton
