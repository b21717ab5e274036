#include "models/server/inference.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>

#include "models/common/text.h"
#include "models/service/face.h"
#include "tensor/json.h"
#include "tensor/text.h"
#include "tensor/version.h"

namespace models::server {

using service::Array;

namespace {

constexpr std::int64_t kMostPictures = 16;  // of one request
constexpr std::string_view kModels = "/v2/models/";

/// A path under kModels: "vit" and "infer", say, without the version.
struct ModelPath {
  std::string model, action;
};

std::optional<ModelPath> parse_path(const std::string& path) {
  if (!path.starts_with(kModels)) return std::nullopt;
  std::string rest = path.substr(kModels.size());
  const std::size_t slash = rest.find('/');
  ModelPath parts{rest.substr(0, slash), ""};
  rest = slash == rest.npos ? "" : rest.substr(slash);
  if (const std::string_view version = "/versions/1"; rest.starts_with(version))
    rest.erase(0, version.size());
  if (!rest.empty() && rest != "/ready" && rest != "/infer") return std::nullopt;
  if (!rest.empty()) parts.action = rest.substr(1);
  return parts;
}

bool is_model(const std::string& name) {
  return std::ranges::find(Engine::kModels, name) != Engine::kModels.end();
}

/// An output that a client wants, and how.
struct Wanted {
  std::string name;
  bool is_binary = false;
};

struct InferenceRequest {
  std::string id;
  std::vector<std::string_view> pictures;
  std::vector<Wanted> outputs;  // none: all
  bool is_binary = false;       // where an output does not say
};

std::vector<std::string_view> pictures_of(const tensor::Json& inputs, std::string_view arrays) {
  if (inputs.size() != 1 || inputs[std::size_t{0}]["name"].text() != service::kPicture)
    tensor::fail("inputs", "need one, called \"", service::kPicture, "\"");
  const tensor::Json input = inputs[std::size_t{0}];
  if (const std::string type = input["datatype"].text(); type != "BYTES")
    tensor::fail(service::kPicture, "got ", type, ", need BYTES: the bytes of picture files");
  const tensor::Ints shape = input["shape"].ints();
  if (shape.empty() || shape.size() > 2 || shape[0] < 1 || shape[0] > kMostPictures ||
      (shape.size() == 2 && shape[1] != 1))
    tensor::fail(service::kPicture, "its shape must be [n] or [n, 1], n being 1 to ",
                 kMostPictures);
  const bool is_binary = input.has("parameters") && input["parameters"].has("binary_data_size");
  if (!is_binary)
    tensor::fail(service::kPicture,
                 "its data is in JSON, which holds no bytes: send them behind the JSON text, with "
                 "binary_data_size");
  if (input["parameters"]["binary_data_size"].integer() != std::ssize(arrays))
    tensor::fail(service::kPicture, "binary_data_size is ",
                 input["parameters"]["binary_data_size"].integer(), ", but ", arrays.size(),
                 " bytes follow the JSON text");
  return service::texts_in(arrays, shape[0], service::kPicture);
}

bool flag(const tensor::Json& value, std::string_view key, bool fallback) {
  return value.has("parameters") ? value["parameters"].boolean(key, fallback) : fallback;
}

InferenceRequest parse_request(std::string_view body, const std::string& header_length) {
  std::size_t length = body.size();
  if (!header_length.empty()) {
    const char* end = header_length.data() + header_length.size();
    const auto [rest, error] = std::from_chars(header_length.data(), end, length);
    if (error != std::errc() || rest != end || length > body.size())
      tensor::fail("Inference-Header-Content-Length", "got \"", header_length,
                   "\", need at most the ", body.size(), " bytes of the body");
  }
  InferenceRequest request;
  if (length == 0) {  // the body is a picture, as it is
    request.pictures = {body};
    request.is_binary = true;
    return request;
  }
  const tensor::Json root = tensor::Json::parse(body.substr(0, length), "the request");
  request.id = root.text("id", "");
  request.is_binary = flag(root, "binary_data_output", false);
  request.pictures = pictures_of(root["inputs"], body.substr(length));
  if (!root.has("outputs")) return request;
  for (std::size_t i = 0; i < root["outputs"].size(); ++i) {
    const tensor::Json output = root["outputs"][i];
    request.outputs.push_back(
        {output["name"].text(), flag(output, "binary_data", request.is_binary)});
  }
  return request;
}

template <class T>
void print_numbers(std::ostream& out, std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    out << (at == 0 ? "" : ", ") << value;
  }
}

void print_elements(std::ostream& out, const Array& array) {
  if (array.datatype == "FP32") return print_numbers<float>(out, array.bytes);
  if (array.datatype == "INT64") return print_numbers<std::int64_t>(out, array.bytes);
  const auto texts = service::texts_in(array.bytes, tensor::num_elements(array.shape), array.name);
  for (std::size_t i = 0; i < texts.size(); ++i) out << (i == 0 ? "" : ", ") << json_text(texts[i]);
}

void print_shape(std::ostream& out, const tensor::Shape& shape) {
  for (int axis = 0; axis < shape.rank(); ++axis) out << (axis == 0 ? "" : ", ") << shape[axis];
}

/// The face's outputs that are wanted. PNGs are bytes, which JSON cannot hold.
std::vector<std::pair<Array, bool>> chosen(const std::vector<Array>& face,
                                           const InferenceRequest& request) {
  std::vector<std::pair<Array, bool>> outputs;
  if (request.outputs.empty()) {
    for (const Array& array : face)
      if (request.is_binary || array.name != "classes")
        outputs.emplace_back(array, request.is_binary);
    return outputs;
  }
  for (const Wanted& wanted : request.outputs) {
    const auto found = std::ranges::find(face, wanted.name, &Array::name);
    if (found == face.end()) tensor::fail("outputs", "there is none called \"", wanted.name, '"');
    if (wanted.name == "classes" && !wanted.is_binary)
      tensor::fail("classes", "is a PNG file, which JSON cannot hold: ask for binary_data");
    outputs.emplace_back(*found, wanted.is_binary);
  }
  return outputs;
}

InferenceAnswer write_answer(const std::string& model, const Program& program,
                             const InferenceRequest& request,
                             const std::vector<ImageResult>& results) {
  tensor::TextWriter out;
  std::string arrays;
  out.precision(9);
  out << "{\"model_name\": " << json_text(model) << ", \"model_version\": \"1\"";
  if (!request.id.empty()) out << ", \"id\": " << json_text(request.id);
  out << ", \"outputs\": [";
  const char* separator = "";
  for (const auto& [like, is_binary] : chosen(service::face_of(program), request)) {
    const Array array = service::face_output(like, results, program);
    out << std::exchange(separator, ", ") << "{\"name\": " << json_text(array.name)
        << ", \"datatype\": \"" << array.datatype << "\", \"shape\": [";
    print_shape(out, array.shape);
    if (is_binary) {
      out << "], \"parameters\": {\"binary_data_size\": " << array.bytes.size() << "}}";
      arrays += array.bytes;
    } else {
      out << "], \"data\": [";
      print_elements(out, array);
      out << "]}";
    }
  }
  out << "]}";
  InferenceAnswer answer{200, out.str()};
  if (arrays.empty()) return answer;
  answer.header_length = answer.body.size();
  answer.type = "application/octet-stream";
  answer.body += arrays;
  return answer;
}

void print_arrays(std::ostream& out, const std::vector<Array>& arrays) {
  for (const Array& array : arrays) {
    out << (&array == &arrays.front() ? "" : ", ") << "{\"name\": " << json_text(array.name)
        << ", \"datatype\": \"" << array.datatype << "\", \"shape\": [-1, ";
    print_shape(out, array.shape);
    out << "]}";
  }
}

std::string metadata(const std::string& model, const Program& program) {
  tensor::TextWriter out;
  out << "{\"name\": " << json_text(model)
      << ", \"versions\": [\"1\"], \"platform\": \"tensor\", \"inputs\": [";
  print_arrays(out, {{service::kPicture, "BYTES", {1}}});
  out << "], \"outputs\": [";
  print_arrays(out, service::face_of(program));
  out << "]}";
  return out.str();
}

}  // namespace

Inference::Inference(const Engine& engine) : engine_(engine) {
  for (const char* model : Engine::kModels) counts_[model];
}

std::string_view Inference::method_of(const std::string& path) {
  for (const char* known : {"/v2", "/v2/health/live", "/v2/health/ready", "/metrics"})
    if (path == known) return "GET";
  const std::optional<ModelPath> parts = parse_path(path);
  if (!parts) return "";
  return parts->action == "infer" ? "POST" : "GET";
}

InferenceAnswer Inference::refusal(int status, std::string_view why) {
  return {status, "{\"error\": " + json_text(one_line(why)) + "}"};
}

InferenceAnswer Inference::get(const std::string& path) const {
  if (path == "/metrics") return {200, metrics(), "text/plain; version=0.0.4"};
  if (path.starts_with("/v2/health/")) return {200, ""};
  const std::optional<ModelPath> parts = parse_path(path);
  if (!parts)
    return {200, "{\"name\": \"demo-server\", \"version\": " + json_text(tensor::version()) +
                     ", \"extensions\": [\"binary_tensor_data\"]}"};
  if (!is_model(parts->model)) return refusal(404, "there is no model \"" + parts->model + "\"");
  if (parts->action == "ready") return {200, ""};
  return {200, metadata(parts->model, engine_.program(parts->model))};
}

InferenceAnswer Inference::infer(const std::string& path, std::string_view body,
                                 const std::string& header_length, const Look& look) {
  const std::string model = parse_path(path).value().model;
  if (!is_model(model)) return refusal(404, "there is no model \"" + model + "\"");
  Counts& counts = counts_.at(model);
  const auto start = std::chrono::steady_clock::now();
  try {
    const InferenceRequest request = parse_request(body, header_length);
    const Program& program = engine_.program(model);
    chosen(service::face_of(program), request);  // refused before anything is computed
    std::vector<ImageResult> results;
    for (const std::string_view picture : request.pictures) {
      Answer answer = look(model, picture);
      results.push_back({std::move(answer.findings), {}, answer.labels});
    }
    InferenceAnswer answer = write_answer(model, program, request, results);
    const auto time = std::chrono::steady_clock::now() - start;
    counts.microseconds += static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
    counts.pictures += results.size();
    ++counts.answered;
    return answer;
  } catch (const tensor::UserError& error) {
    ++counts.refused;
    return refusal(400, error.what());
  }
}

std::string Inference::metrics() const {
  tensor::TextWriter out;
  const auto print = [&](const char* name, const char* about, auto value) {
    out << "# HELP " << name << ' ' << about << "\n# TYPE " << name << " counter\n";
    for (const auto& [model, counts] : counts_)
      out << name << "{model=\"" << model << "\"} " << value(counts) << '\n';
  };
  print("tensor_requests_answered_total", "Requests that were answered.",
        [](const Counts& c) { return c.answered.load(); });
  print("tensor_requests_refused_total", "Requests that were refused.",
        [](const Counts& c) { return c.refused.load(); });
  print("tensor_pictures_total", "Pictures in the requests that were answered.",
        [](const Counts& c) { return c.pictures.load(); });
  print("tensor_request_seconds_total", "Time that the requests that were answered took.",
        [](const Counts& c) { return static_cast<double>(c.microseconds) / 1e6; });
  return out.str();
}

}  // namespace models::server
