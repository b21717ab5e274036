// Server: one page and its API over HTTP.
//   GET  /                               the page, with its style, script and icon
//   GET  /samples/NAME.png               the images that ship
//   GET  /api/about                      models, samples and limits, as JSON
//   POST /api/run?model=vit&mode=eager   an image as the body; see Answer::json
//   /v2/..., GET /metrics                the Open Inference Protocol: see inference.h
// What cannot be answered elsewhere gets a status from 400 and {"error": {"what", "got", "need"}}.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/server/engine.h"

namespace models::server {

/// A file of the page, part of the program.
struct PageFile {
  std::string_view path, type, content;  // "/", "text/html; charset=utf-8"
};
const std::vector<PageFile>& page_files();

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;             // 0: any that is free
  std::string samples;         // a folder with the folders "digits" and "scenes"
  double idle_seconds = 5;     // how long a client may send nothing
  double upload_seconds = 60;  // how long an upload may take
};

class Server {
 public:
  /// Binds and serves in threads of its own until `stop`. UserError if the port is taken or the
  /// samples are no images. `engine` must outlive it.
  Server(Engine& engine, const ServerOptions& options);
  ~Server();  // stops

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8080/"
  /// Takes no more requests and returns when those under way are answered.
  void stop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace models::server
