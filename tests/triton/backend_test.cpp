// The backend between a server of the test's own and the models that ship: every request is
// answered once and given back once, whatever it holds.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "models/service/face.h"
#include "tensor/interop.h"
#include "tensor/json.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/driver.h"
#include "tests/onnx_writer.h"
#include "tests/temporary_folder.h"
#include "tests/triton/fake_server.h"

namespace {

using tensor::Json;

const std::string kSource = TENSOR_TEST_DATA "/../../";

std::string file(const std::string& name) {
  std::ifstream in(kSource + "examples/images/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string digit(int number) { return file("digits/digit-" + std::to_string(number) + ".png"); }

std::string told(TRITONSERVER_Error* error) {
  if (!error) return {};
  std::string text = error->text;
  TRITONSERVER_ErrorDelete(error);
  return text;
}

/// A model's folder, which links to a checkpoint that ships, and its instances.
class Served {
 public:
  explicit Served(const std::string& checkpoint, const std::string& more = "",
                  bool completes = true) {
    std::filesystem::create_directory_symlink(kSource + "models/" + checkpoint, folder_ / "1");
    model_.folder = folder_.path();
    model_.config =
        "{\"name\": \"m\", \"parameters\": {\"threads\": {\"string_value\": \"1\"}}" + more + "}";
    model_.completes = completes;
    error = told(TRITONBACKEND_ModelInitialize(&model_));
  }
  ~Served() {
    for (TRITONBACKEND_ModelInstance& instance : instances_)
      EXPECT_EQ(told(TRITONBACKEND_ModelInstanceFinalize(&instance)), "");
    if (error.empty()) error = told(TRITONBACKEND_ModelFinalize(&model_));
    EXPECT_TRUE(!model_.state || error.empty()) << error;
    EXPECT_EQ(fake::living(), 0);
  }

  TRITONBACKEND_ModelInstance& instance() {
    TRITONBACKEND_ModelInstance& made = instances_.emplace_back(&model_);
    EXPECT_EQ(told(TRITONBACKEND_ModelInstanceInitialize(&made)), "");
    return made;
  }
  Json config() const { return Json::parse(model_.completed, "config"); }

  std::string error;

 private:
  tensor::check::TemporaryFolder folder_;
  TRITONBACKEND_Model model_;
  std::deque<TRITONBACKEND_ModelInstance> instances_;
};

TRITONBACKEND_Request looking(const std::vector<std::string>& pictures,
                              std::vector<std::string> wanted = {"label", "score", "json"}) {
  TRITONBACKEND_Request request;
  request.inputs.push_back({"image",
                            TRITONSERVER_TYPE_BYTES,
                            {std::ssize(pictures), 1},
                            {models::service::bytes_of(pictures)}});
  request.wanted = std::move(wanted);
  return request;
}

TRITONBACKEND_Request running(std::int64_t rows, float value) {
  TRITONBACKEND_Request request;
  const std::vector<float> pixels(static_cast<std::size_t>(rows * 3 * 32 * 32), value);
  request.inputs.push_back({"pixel_values",
                            TRITONSERVER_TYPE_FP32,
                            {rows, 3, 32, 32},
                            {{reinterpret_cast<const char*>(pixels.data()), pixels.size() * 4}}});
  request.wanted = {"logits"};
  return request;
}

/// Executes them, and sees that each came to its end once.
void execute(TRITONBACKEND_ModelInstance& instance, std::vector<TRITONBACKEND_Request>& requests) {
  std::vector<TRITONBACKEND_Request*> pointers;
  for (TRITONBACKEND_Request& request : requests) pointers.push_back(&request);
  EXPECT_EQ(told(TRITONBACKEND_ModelInstanceExecute(&instance, pointers.data(),
                                                    static_cast<std::uint32_t>(pointers.size()))),
            "");
  for (const TRITONBACKEND_Request& request : requests) {
    EXPECT_EQ(request.releases, 1);
    EXPECT_EQ(request.reports, 1);
    EXPECT_EQ(request.finals, request.responses);
  }
}

template <class... Requests>
std::vector<TRITONBACKEND_Request> list(Requests... requests) {
  std::vector<TRITONBACKEND_Request> all;
  (all.push_back(std::move(requests)), ...);
  return all;
}

std::string first_label(const TRITONBACKEND_Request& request) {
  const TRITONBACKEND_Output& output = request.outputs.at("label");
  return std::string(
      models::service::texts_in(output.bytes, output.shape[0] * output.shape[1], "label")[0]);
}

const std::string kDigits = "vit/pretrained/digits";

TEST(Triton, CompletesTheConfigurationOfPictures) {
  const Served detr("detr/pretrained/scenes");
  ASSERT_EQ(detr.error, "");
  const Json config = detr.config();
  EXPECT_EQ(config["max_batch_size"].integer(), 8);
  EXPECT_TRUE(config.has("dynamic_batching"));
  EXPECT_EQ(config["input"][std::size_t{0}]["data_type"].text(), "TYPE_STRING");
  EXPECT_EQ(config["output"][3]["name"].text(), "box");
  EXPECT_EQ(config["output"][3]["dims"].ints(), (tensor::Ints{-1, 4}));
}

TEST(Triton, CompletesTheConfigurationOfTensors) {
  const std::string tensors =
      R"(, "max_batch_size": 2, "dynamic_batching": {}, "parameters": {"input": {"string_value": "tensor"}})";
  tensor::check::TemporaryFolder folder;
  std::filesystem::create_directory_symlink(kSource + "models/" + kDigits, folder / "1");
  TRITONBACKEND_Model model{folder.path(), "{\"name\": \"m\"" + tensors + "}"};
  ASSERT_EQ(told(TRITONBACKEND_ModelInitialize(&model)), "");
  const Json config = Json::parse(model.completed, "config");
  EXPECT_EQ(config["max_batch_size"].integer(), 2);
  EXPECT_TRUE(config.has("dynamic_batching"));  // the server takes no other than the given one
  EXPECT_EQ(config["input"][std::size_t{0}]["dims"].ints(), (tensor::Ints{3, 32, 32}));
  EXPECT_EQ(config["output"][std::size_t{0}]["dims"].ints(), (tensor::Ints{10}));
  EXPECT_EQ(told(TRITONBACKEND_ModelFinalize(&model)), "");
}

TEST(Triton, AnswersPicturesTogetherAndEachByItself) {
  Served digits(kDigits);
  TRITONBACKEND_ModelInstance& instance = digits.instance();
  std::string broken = digit(8);
  broken.resize(broken.size() / 2);
  auto requests = list(looking({digit(8)}), looking({broken}), looking({digit(3), digit(5)}),
                       looking({"no picture"}), looking({digit(2)}));
  requests[4].is_cancelled = true;
  execute(instance, requests);
  EXPECT_EQ(requests[0].code, 0);
  EXPECT_EQ(first_label(requests[0]), "8");
  EXPECT_EQ(requests[1].code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_EQ(requests[2].code, 0);
  EXPECT_EQ(first_label(requests[2]), "3");
  EXPECT_EQ(requests[2].outputs.at("score").shape, (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ(requests[3].error,
            "the image: is no image that this library reads: need PNG, JPEG, BMP or WebP");
  EXPECT_EQ(requests[4].code, TRITONSERVER_ERROR_CANCELLED);
  EXPECT_EQ(instance.succeeded, 2u);
  EXPECT_EQ(instance.failed, 3u);
  EXPECT_EQ(instance.rows, 5u);
  EXPECT_EQ(instance.executions, 1u);
}

TEST(Triton, FillsUpPicturesWithFewerFindings) {
  Served detr("detr/pretrained/scenes");
  auto requests = list(looking({file("scenes/scene-3.png"), digit(8)}, {"label", "box", "id"}));
  execute(detr.instance(), requests);
  ASSERT_EQ(requests[0].code, 0) << requests[0].error;
  const TRITONBACKEND_Output& ids = requests[0].outputs.at("id");
  ASSERT_EQ(ids.shape, (std::vector<std::int64_t>{2, 5}));
  std::int64_t last = 0;
  std::memcpy(&last, ids.bytes.data() + 9 * sizeof last, sizeof last);
  EXPECT_EQ(last, -1);
  EXPECT_EQ(requests[0].outputs.at("box").bytes.size(), 2 * 5 * 4 * sizeof(float));
  EXPECT_FALSE(requests[0].outputs.contains("json"));
}

TEST(Triton, JoinsBuffersInPieces) {
  Served digits(kDigits);
  auto requests = list(looking({digit(7)}));
  const std::string whole = requests[0].inputs[0].pieces[0];
  requests[0].inputs[0].pieces = {whole.substr(0, 1), whole.substr(1, 200), "", whole.substr(201)};
  execute(digits.instance(), requests);
  ASSERT_EQ(requests[0].code, 0) << requests[0].error;
  EXPECT_EQ(first_label(requests[0]), "7");
}

TEST(Triton, RefusesWhatIsNoListOfPictures) {
  Served digits(kDigits);
  auto requests = list(looking({digit(7)}), looking({digit(7)}), looking({digit(7)}),
                       looking({digit(7)}), looking({digit(7)}), running(1, 0), looking({}));
  requests[0].inputs[0].pieces[0].pop_back();
  requests[1].inputs[0].pieces[0] += "x";
  requests[2].inputs[0].pieces[0] = "\xff\xff\xff\xff";
  requests[3].inputs[0].memory = TRITONSERVER_MEMORY_GPU;
  requests[4].inputs[0].type = TRITONSERVER_TYPE_FP32;
  execute(digits.instance(), requests);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(requests[i].code, TRITONSERVER_ERROR_INVALID_ARG) << i;
  EXPECT_EQ(requests[2].error,
            "image: element 0 has a length of 4294967295 bytes, but only 0 follow");
  EXPECT_EQ(requests[3].error,
            "image: lies in a GPU's memory, where pictures are not read: send it, or use system "
            "shared memory");
  EXPECT_EQ(requests[5].error,
            "pixel_values: got FP32, need \"image\" of BYTES: the bytes of picture files");
}

TEST(Triton, OutlivesAServerThatFails) {
  Served digits(kDigits);
  TRITONBACKEND_ModelInstance& instance = digits.instance();
  for (const char* function : {"RequestInputCount", "RequestOutputCount", "InputBuffer",
                               "ResponseOutput", "OutputBuffer"}) {
    fake::fail_next(function);
    auto requests = list(looking({digit(1 + 1)}), looking({digit(3)}));
    execute(instance, requests);
    EXPECT_EQ(requests[0].code, TRITONSERVER_ERROR_INTERNAL) << function;
    EXPECT_EQ(requests[1].code, 0) << function;
  }
  fake::fail_next("ResponseNew");
  auto requests = list(looking({digit(2)}), looking({digit(3)}));
  execute(instance, requests);
  EXPECT_EQ(requests[0].finals, 0);  // there was nobody to tell
  EXPECT_EQ(requests[1].code, 0);
}

const std::string kTensors = R"(, "parameters": {"input": {"string_value": "tensor"}})";

TEST(Triton, JoinsTheRowsOfTensors) {
  tensor::check::TemporaryFolder folder;
  std::filesystem::create_directory_symlink(kSource + "models/" + kDigits, folder / "1");
  TRITONBACKEND_Model model{folder.path(), "{\"name\": \"m\"" + kTensors + "}"};
  ASSERT_EQ(told(TRITONBACKEND_ModelInitialize(&model)), "");
  TRITONBACKEND_ModelInstance instance{&model};
  ASSERT_EQ(told(TRITONBACKEND_ModelInstanceInitialize(&instance)), "");
  auto requests = list(running(1, 0.5f), running(3, -0.25f), running(2, 0.5f), running(1, 0.f));
  requests[3].inputs[0].type = TRITONSERVER_TYPE_INT64;
  requests[3].inputs[0].pieces[0].resize(requests[3].inputs[0].pieces[0].size() / 2);
  execute(instance, requests);
  for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(requests[i].code, 0) << requests[i].error;
  const TRITONBACKEND_Output& alone = requests[0].outputs.at("logits");
  const TRITONBACKEND_Output& joined = requests[2].outputs.at("logits");
  EXPECT_EQ(joined.shape, (std::vector<std::int64_t>{2, 10}));
  for (std::size_t i = 0; i < 10; ++i) {
    float one = 0, other = 0;
    std::memcpy(&one, alone.bytes.data() + 4 * i, 4);
    std::memcpy(&other, joined.bytes.data() + 4 * (10 + i), 4);
    EXPECT_NEAR(one, other, 1e-4f);
  }
  EXPECT_EQ(requests[3].code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_EQ(told(TRITONBACKEND_ModelInstanceFinalize(&instance)), "");
  EXPECT_EQ(told(TRITONBACKEND_ModelFinalize(&model)), "");
}

TEST(Triton, RefusesAConfigurationOfAnotherModel) {
  EXPECT_EQ(Served(kDigits, R"(, "input": [{"name": "picture"}])").error,
            "m: config.pbtxt names the input \"picture\", need one of image");
  EXPECT_EQ(Served(kDigits, R"(, "output": [{"name": "box"}])").error,
            "m: config.pbtxt names the output \"box\", need one of label, score, id, json");
  EXPECT_EQ(Served(kDigits, "", false).error,
            "m: got max_batch_size 0, need at least 1 for pictures");
  EXPECT_EQ(Served(kDigits, R"(, "max_batch_size": 4)", false).error, "");
}

TEST(Triton, InstancesWorkAtTheSameTimeOnOneModel) {
  Served digits(kDigits);
  std::vector<TRITONBACKEND_ModelInstance*> instances;
  for (int i = 0; i < 4; ++i) instances.push_back(&digits.instance());
  std::vector<std::jthread> threads;
  for (TRITONBACKEND_ModelInstance* instance : instances)
    threads.emplace_back([instance] {
      for (int round = 0; round < 3; ++round) {
        auto requests = list(looking({digit(8)}), looking({"x"}), looking({digit(5)}));
        execute(*instance, requests);
        EXPECT_EQ(first_label(requests[0]), "8");
        EXPECT_EQ(requests[1].code, TRITONSERVER_ERROR_INVALID_ARG);
        EXPECT_EQ(first_label(requests[2]), "5");
      }
    });
}

// On a GPU that is played: arrays come from its memory and go there, beside others on the host.
class TritonOnGpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("TENSOR_CACHE_DIR", (testing::TempDir() + "tensor_emulated_kernels").c_str(), 1);
    tensor::emulator::install_driver({{90, 1 << 30}});
  }
  void TearDown() override { EXPECT_EQ(tensor::emulator::driver_complaints(), ""); }
};

TEST_F(TritonOnGpu, TakesAndGivesArraysInItsMemory) {
  using namespace tensor::by_hand;
  const tensor::check::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "1");
  const std::vector<std::string> shape{"batch", "3"};
  const std::int64_t f32 = onnx_type(tensor::f32);
  std::ofstream(folder / "1/model.onnx", std::ios::binary)
      << model(graph({node("Mul", {"x", "x"}, {"y"})}, {value("x", f32, shape)},
                     {value("y", f32, shape)}))
             .str();
  TRITONBACKEND_Model squares{folder.path(), R"({"name": "m", "max_batch_size": 4})"};
  ASSERT_EQ(told(TRITONBACKEND_ModelInitialize(&squares)), "");
  TRITONBACKEND_ModelInstance instance{&squares, TRITONSERVER_INSTANCEGROUPKIND_GPU};
  ASSERT_EQ(told(TRITONBACKEND_ModelInstanceInitialize(&instance)), "");

  const std::vector<float> numbers{1.5f, -2, 3};
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()), 12);
  const tensor::Tensor on_gpu = tensor::array(std::span(numbers)).to("cuda");
  const tensor::Tensor result = tensor::zeros({3}).to("cuda");
  TRITONBACKEND_Request request;
  request.inputs.push_back({"x", TRITONSERVER_TYPE_FP32, {1, 3}, {bytes}});
  request.wanted = {"y"};
  auto requests = list(std::move(request));
  const auto add = [&](std::vector<std::string> pieces) {
    TRITONBACKEND_Request& next = requests.emplace_back();
    next.inputs.push_back({"x", TRITONSERVER_TYPE_FP32, {1, 3}, std::move(pieces)});
    next.inputs[0].memory = TRITONSERVER_MEMORY_GPU;
    next.inputs[0].on_gpu = tensor::device_pointer(on_gpu);
    next.wanted = {"y"};
  };
  for (int i = 0; i < 2; ++i) add({bytes});
  add({bytes.substr(0, 4), bytes.substr(4)});
  requests[2].output_on_gpu = tensor::device_pointer(result);
  execute(instance, requests);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(requests[i].code, 0) << requests[i].error;
    std::vector<float> y(3);
    std::memcpy(y.data(), requests[i].outputs.at("y").bytes.data(), 12);
    EXPECT_EQ(y, (std::vector<float>{2.25f, 4, 9}));
  }
  EXPECT_EQ(requests[2].code, 0) << requests[2].error;
  EXPECT_EQ(result.to("cpu").to_vector<float>(), (std::vector<float>{2.25f, 4, 9}));
  EXPECT_EQ(requests[3].error, "x: lies in a GPU's memory in 2 pieces, need one");
  EXPECT_EQ(told(TRITONBACKEND_ModelInstanceFinalize(&instance)), "");
  EXPECT_EQ(told(TRITONBACKEND_ModelFinalize(&squares)), "");
}

TEST(Triton, BeginsAndEnds) {
  EXPECT_EQ(told(TRITONBACKEND_Initialize(nullptr)), "");
  EXPECT_EQ(told(TRITONBACKEND_Finalize(nullptr)), "");
}

}  // namespace
