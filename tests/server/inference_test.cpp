// The Open Inference Protocol: what tritonclient, KServe and curl send, and what goes wrong.
#include <cstring>

#include "models/service/face.h"
#include "tests/server/server_testing.h"

namespace {

using namespace server_testing;
using namespace std::string_literals;
using models::service::bytes_of;
using models::service::texts_in;
using tensor::testing::read_bytes;

class Inference : public ServerTest {
 protected:
  static httplib::Result infer(const std::string& model, const std::string& head,
                               const std::string& arrays) {
    return client().Post("/v2/models/" + model + "/infer",
                         {{"Inference-Header-Content-Length", std::to_string(head.size())}},
                         head + arrays, "application/octet-stream");
  }
  /// The JSON text before some pictures; `more` is what follows the inputs.
  static std::string head(std::size_t pictures, std::size_t bytes, const std::string& more = "") {
    return R"({"inputs": [{"name": "image", "datatype": "BYTES", "shape": [)" +
           std::to_string(pictures) + R"(, 1], "parameters": {"binary_data_size": )" +
           std::to_string(bytes) + "}}]" + more + "}";
  }
  static httplib::Result look(const std::string& model, const std::vector<std::string>& pictures,
                              const std::string& more = "") {
    const std::string arrays = bytes_of(pictures);
    return infer(model, head(pictures.size(), arrays.size(), more), arrays);
  }
  static void expect_refused(const httplib::Result& got, int status, const std::string& why) {
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->status, status);
    EXPECT_EQ(Json::parse(got->body, "answer")["error"].text(), why);
  }
};

Json output(const Json& answer, const std::string& name) {
  for (std::size_t i = 0; i < answer["outputs"].size(); ++i)
    if (answer["outputs"][i]["name"].text() == name) return answer["outputs"][i];
  tensor::fail("outputs", "no ", name);
}

TEST_F(Inference, TellsWhatThereIs) {
  EXPECT_EQ(Json::parse(client().Get("/v2")->body, "v2")["name"].text(), "demo-server");
  for (const char* path : {"/v2/health/live", "/v2/health/ready", "/v2/models/vit/ready",
                           "/v2/models/vit/versions/1/ready"})
    EXPECT_EQ(client().Get(path)->status, 200) << path;
  const Json detr = Json::parse(client().Get("/v2/models/detr")->body, "detr");
  EXPECT_EQ(detr["inputs"][std::size_t{0}]["datatype"].text(), "BYTES");
  EXPECT_EQ(output(detr, "box")["shape"].ints(), (tensor::Ints{-1, -1, 4}));
}

TEST_F(Inference, AnswersSeveralPicturesInJson) {
  const auto got = look("vit", {read_bytes(digit(8)), read_bytes(digit(3))}, R"(, "id": "first")");
  ASSERT_TRUE(got);
  ASSERT_EQ(got->status, 200) << got->body;
  EXPECT_FALSE(got->has_header("Inference-Header-Content-Length"));
  const Json answer = Json::parse(got->body, "answer");
  EXPECT_EQ(answer["id"].text(), "first");
  const Json labels = output(answer, "label");
  ASSERT_EQ(labels["shape"].ints(), (tensor::Ints{2, 5}));
  EXPECT_EQ(labels["data"][std::size_t{0}].text(), "8");
  EXPECT_EQ(labels["data"][5].text(), "3");
  const Json told =
      Json::parse(output(answer, "json")["data"][std::size_t{0}].text(), "json")["findings"];
  EXPECT_EQ(told[std::size_t{0}]["label"].text(), "8");
  EXPECT_NEAR(output(answer, "score")["data"][std::size_t{0}].number(),
              told[std::size_t{0}]["score"].number(), 1e-6);
}

TEST_F(Inference, AnswersWithBinaryArrays) {
  const auto got =
      look("setr", {read_bytes(scene(3))},
           R"(, "outputs": [{"name": "score", "parameters": {"binary_data": true}},)"
           R"( {"name": "id"}, {"name": "classes", "parameters": {"binary_data": true}}])");
  ASSERT_TRUE(got);
  ASSERT_EQ(got->status, 200) << got->body;
  const std::size_t length = std::stoul(got->get_header_value("Inference-Header-Content-Length"));
  const Json answer = Json::parse(got->body.substr(0, length), "answer");
  const std::int64_t size = output(answer, "score")["parameters"]["binary_data_size"].integer();
  const std::int64_t count = output(answer, "score")["shape"][1].integer();
  ASSERT_EQ(size, 4 * count);
  float first = 0;
  std::memcpy(&first, got->body.data() + length, sizeof first);
  EXPECT_GT(first, 0.5f);
  EXPECT_EQ(output(answer, "id")["data"].size(), static_cast<std::size_t>(count));
  const auto classes =
      texts_in(std::string_view(got->body).substr(length + static_cast<std::size_t>(size)), 1, "");
  EXPECT_TRUE(classes[0].starts_with("\x89PNG"));
}

TEST_F(Inference, TakesAPictureAsItIs) {
  const auto got =
      client().Post("/v2/models/vit/versions/1/infer", {{"Inference-Header-Content-Length", "0"}},
                    read_bytes(digit(7)), "application/octet-stream");
  ASSERT_TRUE(got);
  ASSERT_EQ(got->status, 200) << got->body;
  EXPECT_NE(got->body.find(R"({"findings": [{"label": "7")"), std::string::npos);
}

TEST_F(Inference, SaysWhyNot) {
  const std::string picture = read_bytes(digit(1 + 1));
  expect_refused(look("vit", {"no picture"}), 400,
                 "the image: is no image that this library reads: need PNG, JPEG, BMP or WebP");
  expect_refused(look("cat", {picture}), 404, "there is no model \"cat\"");
  expect_refused(client().Get("/v2/models/cat"), 404, "there is no model \"cat\"");
  expect_refused(client().Get("/v2/nothing"), 404, "there is nothing at this address");
  expect_refused(client().Get("/v2/models/vit/infer"), 405,
                 "the method does not fit the address: need POST");
  expect_refused(look("vit", {picture}, R"(, "outputs": [{"name": "box"}])"), 400,
                 "outputs: there is none called \"box\"");
  expect_refused(look("setr", {picture}, R"(, "outputs": [{"name": "classes"}])"), 400,
                 "classes: is a PNG file, which JSON cannot hold: ask for binary_data");
  expect_refused(infer("vit", head(1, 9), "12345678"), 400,
                 "image: binary_data_size is 9, but 8 bytes follow the JSON text");
  expect_refused(infer("vit", head(1, 8), "\x09"s + "\0\0\0abcd"s), 400,
                 "image: element 0 has a length of 9 bytes, but only 4 follow");
  expect_refused(infer("vit", head(17, 8), "12345678"), 400,
                 "image: its shape must be [n] or [n, 1], n being 1 to 16");
  expect_refused(
      infer("vit",
            R"({"inputs": [{"name": "image", "datatype": "BYTES", "shape": [1], "data": ["x"]}]})",
            ""),
      400,
      "image: its data is in JSON, which holds no bytes: send them behind the JSON text, with "
      "binary_data_size");
  expect_refused(
      infer("vit", R"({"inputs": [{"name": "image", "datatype": "FP32", "shape": [1]}]})", ""), 400,
      "image: got FP32, need BYTES: the bytes of picture files");
  expect_refused(infer("vit", R"({"inputs": []})", ""), 400, "inputs: need one, called \"image\"");
  for (const char* length : {"x", "-1", "999999"}) {
    const auto got =
        client().Post("/v2/models/vit/infer", {{"Inference-Header-Content-Length", length}}, "{}",
                      "application/octet-stream");
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 400) << length;
  }
  EXPECT_EQ(infer("vit", "{", "")->status, 400);
}

TEST_F(Inference, CountsForPrometheus) {
  const auto value = [](const std::string& name) {
    const std::string text = client().Get("/metrics")->body;
    const std::string start = "\n" + name + "{model=\"vit\"} ";
    const std::size_t at = text.find(start);
    EXPECT_NE(at, std::string::npos) << text;
    return std::stod(text.substr(at + start.size()));
  };
  const double answered = value("tensor_requests_answered_total");
  const double refused = value("tensor_requests_refused_total");
  const double pictures = value("tensor_pictures_total");
  look("vit", {read_bytes(digit(8)), read_bytes(digit(3))});
  look("vit", {"x"});
  EXPECT_EQ(value("tensor_requests_answered_total"), answered + 1);
  EXPECT_EQ(value("tensor_requests_refused_total"), refused + 1);
  EXPECT_EQ(value("tensor_pictures_total"), pictures + 2);
  EXPECT_GT(value("tensor_request_seconds_total"), 0);
}

}  // namespace
