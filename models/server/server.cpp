// Routes and answers. Every connection serves one request: what is left of a body that was not
// read can then never be taken for the next request.
#include "models/server/server.h"

#include <httplib.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <thread>

#include "models/common/list_images.h"
#include "models/common/preprocess.h"
#include "models/common/text.h"
#include "models/server/inference.h"
#include "models/server/uploads.h"
#include "tensor/text.h"

namespace models::server {

using httplib::Request;
using httplib::Response;

struct Sample {
  std::string name, path, kind, bytes;  // "digit-8", "/samples/digit-8.png", "digits"
};

namespace {

constexpr const char* kJson = "application/json";
constexpr std::size_t kConnections = 32;  // served at a time, most of them waiting
constexpr std::size_t kRuns = 2;          // models run at a time: one computes, one decodes

const httplib::Headers kHeaders = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
     "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-cache"}};

void refuse(Response& response, const Refusal& refusal) {
  response.status = refusal.status;
  response.set_content("{\"error\": {\"what\": " + json_text(refusal.what) +
                           ", \"got\": " + json_text(refusal.got) +
                           ", \"need\": " + json_text(refusal.need) + "}}\n",
                       kJson);
}

void send(Response& response, const InferenceAnswer& answer) {
  response.status = answer.status;
  response.set_content(answer.body, answer.type);
  if (answer.header_length)
    response.set_header("Inference-Header-Content-Length", std::to_string(*answer.header_length));
}

/// What httplib refuses by itself, before any route is looked up.
Refusal refusal_of(int status) {
  if (status == 414)
    return {status, "the address is too long", "a request line of more than 8192 bytes",
            "/api/run?model=vit&mode=compiled"};
  if (status == 416)
    return {status, "the range is not understood", "a Range header", "no Range header"};
  if (status == 400)
    return {status, "this is not understood", "a malformed or unknown request",
            "an HTTP/1.1 request: GET, HEAD or POST"};
  return {status, "the server failed", "status " + std::to_string(status),
          "a report of how this came about"};
}

std::vector<Sample> read_samples(const std::string& folder) {
  std::vector<Sample> samples;
  for (const std::string kind : {"digits", "scenes"})
    for (const std::string& file :
         list_images({(std::filesystem::path(folder) / kind).string()}).files) {
      tensor::Classic<std::ifstream> in(file, std::ios::binary);
      const std::filesystem::path path(file);
      samples.push_back({path.stem().string(),
                         "/samples/" + path.filename().string(),
                         kind,
                         {std::istreambuf_iterator<char>(in), {}}});
      if (!in) tensor::fail(file, "cannot be read");
    }
  return samples;
}

std::string image_type(const std::string& path) {
  for (const std::string kind : {"png", "bmp", "webp"})
    if (path.ends_with("." + kind)) return "image/" + kind;
  return "image/jpeg";
}

std::string about(const std::vector<Sample>& samples) {
  std::string text = "{\"models\": [";
  for (const char* model : Engine::kModels)
    text += (text.ends_with('[') ? "" : ", ") + json_text(model);
  text += "], \"modes\": [\"compiled\", \"eager\"], \"most_bytes\": " + std::to_string(kMostBytes) +
          ", \"most_pixels\": " + std::to_string(kMostPixels) + ", \"samples\": [";
  for (const Sample& sample : samples)
    text += (text.ends_with('[') ? "" : ", ") + ("{\"name\": " + json_text(sample.name)) +
            ", \"url\": " + json_text(sample.path) + ", \"kind\": " + json_text(sample.kind) + "}";
  return text + "]}\n";
}

Mode parse_mode(const std::string& text) {
  if (text == "eager") return Mode::eager;
  if (text == "compiled") return Mode::compiled;
  throw Refusal{400, "the mode is not known", text.empty() ? "none" : text, "eager or compiled"};
}

std::string parse_model(const std::string& text) {
  std::string known;
  for (const char* model : Engine::kModels) {
    if (text == model) return text;
    known += (known.empty() ? "" : ", ") + std::string(model);
  }
  throw Refusal{400, "the model is not known", text.empty() ? "none" : text, "one of " + known};
}

/// Whether this machine has the address: then some port of it can be had.
bool is_own(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, address.ai_socktype, 0);
  if (socket < 0) return true;
  const bool is_bound = ::bind(socket, address.ai_addr, address.ai_addrlen) == 0;
  const int error = errno;
  ::close(socket);
  return is_bound || error != EADDRNOTAVAIL;
}

/// Why a name is taken for no address of this machine, or why a port is not to be had.
std::string bind_problem(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return "the host cannot be found (" + std::string(gai_strerror(error)) +
           "): name an address of this machine with --host";
  const bool is_here = is_own(*found);
  freeaddrinfo(found);
  if (!is_here) return "is no address of this machine: name one with --host";
  return "port " + std::to_string(port) +
         " cannot be had: another program may use it; name another with --port, or 0 for any";
}

}  // namespace

/// httplib's server with room for more connections that are not accepted yet than the five it asks
/// for: beyond those, connections of a burst are reset.
class HttpServer : public httplib::Server {
 public:
  bool bind(const std::string& host, int& port) {
    if (port == 0)
      port = bind_to_any_port(host);
    else if (!bind_to_port(host, port))
      return false;
    return port > 0 && ::listen(svr_sock_, kBacklog) == 0;
  }

 private:
  static constexpr int kBacklog = 128;
};

struct Server::Parts {
  struct File {
    std::string type;
    std::string_view content;
  };

  Engine& engine;
  ServerOptions options;
  std::vector<Sample> samples;
  std::string about_text;
  std::map<std::string, File> files;  // by path
  httplib::ThreadPool runs{kRuns};
  Inference inference;
  HttpServer http;
  int port = 0;
  std::thread listener;

  Parts(Engine& models, const ServerOptions& given)
      : engine(models), options(given), samples(read_samples(given.samples)), inference(models) {
    about_text = about(samples);
    for (const PageFile& file : page_files())
      files[std::string(file.path)] = {std::string(file.type), file.content};
    for (const Sample& sample : samples)
      files[sample.path] = {image_type(sample.path), sample.bytes};
    files["/api/about"] = {kJson, about_text};
  }
  ~Parts() { runs.shutdown(); }

  void set_up();
  /// Whether the path is served with this method; if not, the answer says so.
  bool check_route(const Request& request, Response& response) const;
  void run(const Request& request, Response& response, const httplib::ContentReader& reader);
  void infer(const Request& request, Response& response, const httplib::ContentReader& reader);
  Answer run_later(const std::string& model, Mode mode, std::string_view body);
};

bool Server::Parts::check_route(const Request& request, Response& response) const {
  if (const std::string_view method = Inference::method_of(request.path); !method.empty()) {
    if (request.method == method || (request.method == "HEAD" && method == "GET")) return true;
    response.set_header("Allow", std::string(method));
    send(response, Inference::refusal(
                       405, "the method does not fit the address: need " + std::string(method)));
    return false;
  }
  if (request.path.starts_with("/v2/")) {
    send(response, Inference::refusal(404, "there is nothing at this address"));
    return false;
  }
  const bool runs_model = request.path == "/api/run";
  if (!runs_model && !files.contains(request.path)) {
    refuse(response,
           {404, "there is nothing at this address", request.path, "/, /api/about or /api/run"});
    return false;
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (runs_model ? request.method == "POST" : reads) return true;
  const std::string allowed = runs_model ? "POST" : "GET, HEAD";
  response.set_header("Allow", allowed);
  refuse(response, {405, "the method does not fit the address", request.method + " " + request.path,
                    allowed});
  return false;
}

Answer Server::Parts::run_later(const std::string& model, Mode mode, std::string_view body) {
  // Shared, because the task may still be returning when its result is here.
  const auto task =
      std::make_shared<std::packaged_task<Answer()>>([&, asked = Engine::Clock::now()] {
        return engine.run(model, mode, std::as_bytes(std::span(body)), asked);
      });
  std::future<Answer> result = task->get_future();
  runs.enqueue([task] { (*task)(); });
  return result.get();
}

void Server::Parts::run(const Request& request, Response& response,
                        const httplib::ContentReader& reader) {
  const std::string body = read_upload(request, reader, kMostBytes, options.upload_seconds);
  const std::string model = parse_model(request.get_param_value("model"));
  const Mode mode = parse_mode(request.get_param_value("mode"));
  try {
    response.set_content(run_later(model, mode, body).json() + "\n", kJson);
  } catch (const tensor::UserError& error) {
    std::string why = one_line(error.what());
    const std::string start = std::string(kImage) + ": ";
    if (why.starts_with(start)) why.replace(0, start.size(), "it ");
    throw Refusal{
        400, "the image cannot be used", why,
        "a PNG, JPEG, BMP or WebP image of at most " + std::to_string(kMostPixels) + " pixels"};
  }
}

void Server::Parts::infer(const Request& request, Response& response,
                          const httplib::ContentReader& reader) {
  try {
    const std::string body = read_upload(request, reader, kMostBytes, options.upload_seconds);
    send(response, inference.infer(request.path, body,
                                   request.get_header_value("Inference-Header-Content-Length"),
                                   [this](const std::string& model, std::string_view picture) {
                                     return run_later(model, Mode::compiled, picture);
                                   }));
  } catch (const Refusal& refusal) {
    send(response, Inference::refusal(refusal.status, refusal.what + ": got " + refusal.got +
                                                          ", need " + refusal.need));
  } catch (const std::exception& error) {
    send(response, Inference::refusal(500, error.what()));
  }
}

void Server::Parts::set_up() {
  using Handled = httplib::Server::HandlerResponse;
  const auto microseconds =
      std::chrono::microseconds(static_cast<std::int64_t>(options.idle_seconds * 1e6));
  http.new_task_queue = [] { return new httplib::ThreadPool(kConnections); };
  http.set_keep_alive_max_count(1);
  http.set_keep_alive_timeout(static_cast<time_t>(std::ceil(options.idle_seconds)));
  http.set_read_timeout(microseconds);
  http.set_write_timeout(microseconds);
  http.set_default_headers(kHeaders);
  // httplib's default lets two servers share a port.
  http.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  http.set_pre_routing_handler([this](const Request& request, Response& response) {
    // httplib would repeat the body for each of many ranges; a server may ignore them
    // (RFC 9110, section 14.2).
    const_cast<Request&>(request).ranges.clear();
    return check_route(request, response) ? Handled::Unhandled : Handled::Handled;
  });
  http.Get(".*", [this](const Request& request, Response& response) {
    if (!Inference::method_of(request.path).empty())
      return send(response, inference.get(request.path));
    const auto& [type, content] = files.at(request.path);
    response.set_content(content.data(), content.size(), type);
  });
  http.Post(".*", [this](const Request& request, Response& response,
                         const httplib::ContentReader& reader) {
    Inference::method_of(request.path).empty() ? run(request, response, reader)
                                               : infer(request, response, reader);
  });
  http.set_exception_handler([](const Request&, Response& response, std::exception_ptr thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Refusal& refusal) {
      refuse(response, refusal);
    } catch (const std::exception& error) {
      refuse(response,
             {500, "the server failed", one_line(error.what()), "a report of how this came about"});
    }
  });
  http.set_error_handler([](const Request&, Response& response) {
    if (response.body.empty()) refuse(response, refusal_of(response.status));
  });
}

Server::Server(Engine& engine, const ServerOptions& options)
    : parts_(std::make_unique<Parts>(engine, options)) {
  Parts& parts = *parts_;
  parts.set_up();
  parts.port = options.port;
  if (!parts.http.bind(options.host, parts.port))
    tensor::fail(options.host, bind_problem(options.host, options.port));
  parts.listener = std::thread([&parts] { parts.http.listen_after_bind(); });
  while (!parts.http.is_running()) std::this_thread::yield();  // before that, stop has no effect
}

Server::~Server() { stop(); }

int Server::port() const { return parts_->port; }

std::string Server::url() const {
  const std::string& host = parts_->options.host;
  const bool numeric6 = host.find(':') != host.npos;
  return "http://" + (numeric6 ? "[" + host + "]" : host) + ":" + std::to_string(parts_->port) +
         "/";
}

void Server::stop() {
  if (!parts_->listener.joinable()) return;
  parts_->http.stop();
  parts_->listener.join();
}

}  // namespace models::server
