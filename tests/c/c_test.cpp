// The C interface: what it answers, and that nothing passed in place of a handle or a pointer does
// harm.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "tensor/compile.h"
#include "tensor/json.h"
#include "tensor/log.h"
#include "tensor/tensor.h"
#include "tensor_c.h"
#include "tests/onnx_writer.h"
#include "tests/seed.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;

namespace {

const std::string kSource = TENSOR_TEST_DATA "/../../";
const std::string kDigits = kSource + "models/vit/pretrained/digits";

std::string digit(int number) {
  std::ifstream file(kSource + "examples/images/digits/digit-" + std::to_string(number) + ".png",
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Frees what it holds.
template <class Handle, tc_status (*free)(Handle*)>
struct Held {
  Handle* handle = nullptr;
  ~Held() { EXPECT_EQ(free(handle), TC_OK); }
};
using Options = Held<tc_options, tc_options_free>;
using Model = Held<tc_model, tc_model_free>;
using Tensor = Held<tc_tensor, tc_tensor_free>;
using Answer = Held<tc_answer, tc_answer_free>;

void open(Model& model, const std::string& path,
          const std::vector<std::pair<const char*, const char*>>& settings = {}) {
  Options options;
  ASSERT_EQ(tc_options_new(&options.handle), TC_OK);
  ASSERT_EQ(tc_options_set(options.handle, "threads", "1"), TC_OK);
  for (const auto& [name, value] : settings)
    ASSERT_EQ(tc_options_set(options.handle, name, value), TC_OK) << tc_error();
  ASSERT_EQ(tc_model_open(path.c_str(), options.handle, &model.handle), TC_OK) << tc_error();
}

/// x + x of f32 (batch, 3).
std::string doubling_onnx() {
  using namespace tn::by_hand;
  const std::vector<std::string> shape{"batch", "3"};
  const std::int64_t f32 = onnx_type(tn::f32);
  return model(graph({node("Add", {"x", "x"}, {"y"})}, {value("x", f32, shape)},
                     {value("y", f32, shape)}))
      .str();
}

TEST(C, LooksAtAPicture) {
  Model model;
  open(model, kDigits, {{"top", "2"}});
  int pictures = 0;
  EXPECT_EQ(tc_model_takes_pictures(model.handle, &pictures), TC_OK);
  EXPECT_EQ(pictures, 1);
  const std::string bytes = digit(8);
  Answer answer;
  ASSERT_EQ(tc_model_look(model.handle, bytes.data(), bytes.size(), &answer.handle), TC_OK);
  const char* text = nullptr;
  ASSERT_EQ(tc_answer_json(answer.handle, &text), TC_OK);
  const tn::Json findings = tn::Json::parse(text, "answer")["findings"];
  std::size_t count = 0;
  ASSERT_EQ(tc_answer_count(answer.handle, &count), TC_OK);
  ASSERT_EQ(count, 2u);
  ASSERT_EQ(findings.size(), 2u);
  const char* label = nullptr;
  std::int64_t id = -1;
  double score = 0, box[4] = {1, 1, 1, 1};
  ASSERT_EQ(tc_answer_finding(answer.handle, 0, &label, &id, &score, box), TC_OK);
  EXPECT_STREQ(label, "8");
  EXPECT_EQ(id, 8);
  EXPECT_NEAR(score, findings[0]["score"].number(), 1e-3);
  EXPECT_EQ(box[3], 0);
  EXPECT_EQ(tc_answer_finding(answer.handle, 2, nullptr, nullptr, nullptr, nullptr),
            TC_BAD_ARGUMENT);
  EXPECT_STREQ(tc_error(), "index: got 2, the answer has 2 findings");
  tc_tensor* classes = nullptr;
  EXPECT_EQ(tc_answer_classes(answer.handle, &classes), TC_BAD_ARGUMENT);
}

TEST(C, GivesTheClassOfEveryPixel) {
  Model model;
  open(model, kSource + "models/setr/pretrained/scenes");
  const std::string bytes = digit(3);
  Answer answer;
  ASSERT_EQ(tc_model_look(model.handle, bytes.data(), bytes.size(), &answer.handle), TC_OK);
  Tensor classes;
  ASSERT_EQ(tc_answer_classes(answer.handle, &classes.handle), TC_OK);
  tc_dtype dtype = TC_F64;
  int rank = 0;
  EXPECT_EQ(tc_tensor_type(classes.handle, &dtype, &rank, nullptr, 0), TC_OK);
  EXPECT_EQ(dtype, TC_U8);
  EXPECT_EQ(rank, 2);
}

TEST(C, RunsACheckpointOnTensors) {
  Model model;
  open(model, kDigits, {{"input", "tensor"}});
  std::size_t inputs = 0, outputs = 0;
  ASSERT_EQ(tc_model_input_count(model.handle, &inputs), TC_OK);
  ASSERT_EQ(tc_model_output_count(model.handle, &outputs), TC_OK);
  ASSERT_EQ(inputs, 1u);
  ASSERT_EQ(outputs, 1u);
  const char* name = nullptr;
  ASSERT_EQ(tc_model_output_name(model.handle, 0, &name), TC_OK);
  EXPECT_STREQ(name, "logits");
  tc_dtype dtype = TC_BOOL;
  int rank = 0;
  std::int64_t extents[8] = {};
  ASSERT_EQ(tc_model_input_type(model.handle, 0, &dtype, &rank, extents, 8), TC_OK);
  EXPECT_EQ(dtype, TC_F32);
  ASSERT_EQ(rank, 4);
  EXPECT_EQ(extents[0], -1);
  EXPECT_EQ(extents[1], 3);
  EXPECT_EQ(extents[2], 32);
  std::vector<float> pixels(2 * 3 * 32 * 32, 0.25f);
  extents[0] = 2;
  Tensor x, y;
  ASSERT_EQ(tc_tensor_from_memory(pixels.data(), TC_F32, extents, 4, nullptr, nullptr, nullptr,
                                  &x.handle),
            TC_OK);
  ASSERT_EQ(tc_model_run(model.handle, &x.handle, 1, &y.handle, 1), TC_OK) << tc_error();
  ASSERT_EQ(tc_tensor_type(y.handle, nullptr, &rank, extents, 8), TC_OK);
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(extents[0], 2);
  const void* data = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(tc_tensor_data(y.handle, &data, &size), TC_OK);
  ASSERT_EQ(size, 2 * 10 * sizeof(float));
  const auto* logits = static_cast<const float*>(data);
  EXPECT_NEAR(logits[3], logits[13], 1e-4f);  // rows of one content
}

TEST(C, RunsAPlanFromMemory) {
  const tn::Executable executable =
      tn::compile([](const std::vector<tn::Tensor>& in) { return std::vector{in[0] * 2.f + 1.f}; },
                  std::vector{tn::TensorType{{3}, tn::f32}}, {.threads = 1});
  tn::Plan plan;
  plan.add(executable);
  const std::vector<std::byte> bytes = plan.bytes();
  Model model;
  ASSERT_EQ(tc_model_parse(bytes.data(), bytes.size(), nullptr, &model.handle), TC_OK)
      << tc_error();
  const char* name = nullptr;
  ASSERT_EQ(tc_model_input_name(model.handle, 0, &name), TC_OK);
  EXPECT_STREQ(name, "input_0");
  int pictures = 1;
  ASSERT_EQ(tc_model_takes_pictures(model.handle, &pictures), TC_OK);
  EXPECT_EQ(pictures, 0);
  float values[6] = {1, -1, 2, -2, 3, -3};
  const std::int64_t extents[] = {3}, strides[] = {2};
  Tensor x, y;
  ASSERT_EQ(tc_tensor_from_memory(values, TC_F32, extents, 1, strides, nullptr, nullptr, &x.handle),
            TC_OK);
  ASSERT_EQ(tc_model_run(model.handle, &x.handle, 1, &y.handle, 1), TC_OK) << tc_error();
  const void* data = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(tc_tensor_data(y.handle, &data, &size), TC_OK);
  float got[3];
  ASSERT_EQ(size, sizeof got);
  std::memcpy(got, data, size);
  EXPECT_EQ(got[0], 3);
  EXPECT_EQ(got[2], 7);
  ASSERT_EQ(tc_tensor_data(x.handle, &data, &size), TC_OK);  // in a row
  std::memcpy(got, data, size);
  EXPECT_EQ(got[1], 2);
  tc_answer* answer = nullptr;
  EXPECT_EQ(tc_model_look(model.handle, "x", 1, &answer), TC_BAD_ARGUMENT);
  EXPECT_NE(std::string(tc_error()).find("open a checkpoint folder"), std::string::npos);
}

TEST(C, ReleasesMemoryOnceAndAtTheEnd) {
  static std::atomic<int> released = 0;
  const auto release = [](void* user) { released += *static_cast<int*>(user); };
  int one = 1;
  float value = 5;
  const std::int64_t extent = 1;
  tc_tensor* x = nullptr;
  ASSERT_EQ(tc_tensor_from_memory(&value, TC_F32, &extent, 1, nullptr, release, &one, &x), TC_OK);
  DLManagedTensor* managed = nullptr;
  ASSERT_EQ(tc_tensor_to_dlpack(x, &managed), TC_OK);
  tc_tensor* again = nullptr;
  ASSERT_EQ(tc_tensor_from_dlpack(managed, &again), TC_OK);
  EXPECT_EQ(tc_tensor_free(x), TC_OK);
  EXPECT_EQ(tc_tensor_free(x), TC_BAD_HANDLE);
  EXPECT_EQ(released, 0);
  const void* data = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(tc_tensor_data(again, &data, &size), TC_OK);
  EXPECT_EQ(data, &value);
  EXPECT_EQ(tc_tensor_free(again), TC_OK);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(tc_tensor_from_memory(&value, 77, &extent, 1, nullptr, release, &one, &x),
            TC_BAD_ARGUMENT);
  EXPECT_STREQ(tc_error(), "dtype: got 77, need TC_BOOL to TC_F64");
  EXPECT_EQ(released, 2);
}

TEST(C, SaysWhatIsWrong) {
  tc_model* model = nullptr;
  EXPECT_EQ(tc_model_open("/no/where", nullptr, &model), TC_BAD_ARGUMENT);
  EXPECT_STREQ(tc_error(),
               "/no/where: is not there: name a checkpoint folder, a plan or an ONNX file");
  const tn::check::TemporaryFolder folder;
  EXPECT_EQ(tc_model_open(folder.path().c_str(), nullptr, &model), TC_BAD_ARGUMENT);
  EXPECT_NE(std::string(tc_error()).find("holds no model"), std::string::npos);
  EXPECT_EQ(model, nullptr);
  Options options;
  ASSERT_EQ(tc_options_new(&options.handle), TC_OK);
  EXPECT_EQ(tc_options_set(options.handle, "threads", "many"), TC_BAD_ARGUMENT);
  EXPECT_STREQ(tc_error(), "threads: got \"many\", need a whole number from 0 to 1024");
  EXPECT_EQ(tc_options_set(options.handle, "input", "sound"), TC_BAD_ARGUMENT);
  EXPECT_STREQ(tc_error(), "input: got \"sound\", need image or tensor");
  ASSERT_EQ(tc_options_set(options.handle, "treshold", "0.5"), TC_OK);
  EXPECT_EQ(tc_model_open(kDigits.c_str(), options.handle, &model), TC_BAD_ARGUMENT);
  EXPECT_NE(std::string(tc_error()).find("vit: does not take these options"), std::string::npos);
  std::thread([] { EXPECT_STREQ(tc_error(), ""); }).join();  // every thread has its own
}

/// What every function makes of `bad` in place of each handle; pointers are good.
void try_everything(std::uintptr_t bad) {
  auto* options = reinterpret_cast<tc_options*>(bad);
  auto* model = reinterpret_cast<tc_model*>(bad);
  auto* tensor = reinterpret_cast<tc_tensor*>(bad);
  auto* answer = reinterpret_cast<tc_answer*>(bad);
  std::size_t count = 0;
  const char* text = nullptr;
  const void* data = nullptr;
  tc_dtype dtype;
  int number = 0;
  std::int64_t extents[2], id;
  double score, box[4];
  tc_tensor* made = nullptr;
  tc_answer* seen = nullptr;
  tc_model* opened = nullptr;
  DLManagedTensor* managed = nullptr;
  const tc_status got[] = {tc_options_set(options, "top", "1"),
                           tc_model_input_count(model, &count),
                           tc_model_output_count(model, &count),
                           tc_model_input_name(model, 0, &text),
                           tc_model_output_name(model, 0, &text),
                           tc_model_input_type(model, 0, &dtype, &number, extents, 2),
                           tc_model_output_type(model, 0, &dtype, &number, extents, 2),
                           tc_model_input_is_optional(model, 0, &number),
                           tc_model_takes_pictures(model, &number),
                           tc_model_run(model, &tensor, 1, &made, 1),
                           tc_model_enqueue(model, &tensor, 1, &made, 1, nullptr),
                           tc_model_look(model, "abc", 3, &seen),
                           tc_answer_json(answer, &text),
                           tc_answer_count(answer, &count),
                           tc_answer_finding(answer, 0, &text, &id, &score, box),
                           tc_answer_classes(answer, &made),
                           tc_tensor_to_dlpack(tensor, &managed),
                           tc_tensor_type(tensor, &dtype, &number, extents, 2),
                           tc_tensor_device(tensor, &number),
                           tc_tensor_data(tensor, &data, &count)};
  for (const tc_status status : got) EXPECT_EQ(status, TC_BAD_HANDLE) << bad;
  if (bad != 0) {
    EXPECT_EQ(tc_options_free(options), TC_BAD_HANDLE);
    EXPECT_EQ(tc_model_free(model), TC_BAD_HANDLE);
    EXPECT_EQ(tc_tensor_free(tensor), TC_BAD_HANDLE);
    EXPECT_EQ(tc_answer_free(answer), TC_BAD_HANDLE);
    EXPECT_EQ(tc_model_open(kDigits.c_str(), options, &opened), TC_BAD_HANDLE);
  }
}

TEST(C, RefusesWhatIsNoHandle) {
  try_everything(0);
  EXPECT_STREQ(tc_error(), "handle: got NULL, need that of a tensor");
  int on_the_stack = 0;
  try_everything(reinterpret_cast<std::uintptr_t>(&on_the_stack) | 7);
  tc_options* freed = nullptr;
  ASSERT_EQ(tc_options_new(&freed), TC_OK);
  ASSERT_EQ(tc_options_free(freed), TC_OK);
  try_everything(reinterpret_cast<std::uintptr_t>(freed));
  std::mt19937_64 random(tn::check::seed());
  for (int i = 0; i < 1000; ++i) try_everything((random() << 3) | (random() % 4 == 0 ? 1 : 7));
}

TEST(C, TellsOneKindFromAnother) {
  Options options;
  ASSERT_EQ(tc_options_new(&options.handle), TC_OK);
  int number = 0;
  EXPECT_EQ(tc_model_takes_pictures(reinterpret_cast<tc_model*>(options.handle), &number),
            TC_BAD_HANDLE);
  EXPECT_STREQ(tc_error(), "handle: got one of options, or a number, need that of a model");
  EXPECT_EQ(tc_tensor_free(reinterpret_cast<tc_tensor*>(options.handle)), TC_BAD_HANDLE);
}

TEST(C, RefusesNullPointers) {
  Options options;
  ASSERT_EQ(tc_options_new(&options.handle), TC_OK);
  Model model;
  open(model, kDigits);
  float value = 1;
  const std::int64_t extent = 1;
  Tensor x;
  ASSERT_EQ(tc_tensor_from_memory(&value, TC_F32, &extent, 1, nullptr, nullptr, nullptr, &x.handle),
            TC_OK);
  tc_model* opened = nullptr;
  tc_tensor* made = nullptr;
  std::size_t size = 0;
  const tc_status got[] = {
      tc_options_new(nullptr),
      tc_options_set(options.handle, nullptr, "1"),
      tc_options_set(options.handle, "top", nullptr),
      tc_model_open(nullptr, nullptr, &opened),
      tc_model_open(kDigits.c_str(), nullptr, nullptr),
      tc_model_parse(nullptr, 8, nullptr, &opened),
      tc_model_parse("", 0, nullptr, nullptr),
      tc_model_input_count(model.handle, nullptr),
      tc_model_input_name(model.handle, 0, nullptr),
      tc_model_input_is_optional(model.handle, 0, nullptr),
      tc_model_takes_pictures(model.handle, nullptr),
      tc_model_run(model.handle, nullptr, 1, &made, 1),
      tc_model_run(model.handle, &x.handle, 1, nullptr, 1),
      tc_model_enqueue(model.handle, nullptr, 1, &made, 1, nullptr),
      tc_model_enqueue(model.handle, &x.handle, 1, &made, 1, nullptr),  // it is for the CPU
      tc_tensor_device(x.handle, nullptr),
      tc_model_look(model.handle, nullptr, 1, nullptr),
      tc_tensor_from_memory(nullptr, TC_F32, &extent, 1, nullptr, nullptr, nullptr, &made),
      tc_tensor_from_memory(&value, TC_F32, nullptr, 1, nullptr, nullptr, nullptr, &made),
      tc_tensor_from_memory(&value, TC_F32, &extent, 1, nullptr, nullptr, nullptr, nullptr),
      tc_tensor_from_memory(&value, TC_F32, &extent, 99, nullptr, nullptr, nullptr, &made),
      tc_tensor_from_dlpack(nullptr, &made),
      tc_tensor_to_dlpack(x.handle, nullptr),
      tc_tensor_data(x.handle, nullptr, &size),
      tc_tensor_from_picture(nullptr, 4, &made),
      tc_tensor_from_picture("abcd", 4, &made)};
  for (std::size_t i = 0; i < std::size(got); ++i) EXPECT_EQ(got[i], TC_BAD_ARGUMENT) << i;
  EXPECT_EQ(tc_tensor_type(x.handle, nullptr, nullptr, nullptr, 0), TC_OK);
  EXPECT_EQ(made, nullptr);
  int gpu = 0;
  EXPECT_EQ(tc_tensor_device(x.handle, &gpu), TC_OK);
  EXPECT_EQ(gpu, -1);
  EXPECT_EQ(tc_dtype_size(TC_F64), 8u);
  EXPECT_EQ(tc_dtype_size(-1), 0u);
}

TEST(C, RunsAnOnnxFileFromMemory) {
  const std::string bytes = doubling_onnx();
  Model model;
  ASSERT_EQ(tc_model_parse(bytes.data(), bytes.size(), nullptr, &model.handle), TC_OK)
      << tc_error();
  float values[] = {1, 2, 3};
  const std::int64_t extents[] = {1, 3};
  Tensor x, y;
  ASSERT_EQ(tc_tensor_from_memory(values, TC_F32, extents, 2, nullptr, nullptr, nullptr, &x.handle),
            TC_OK);
  ASSERT_EQ(tc_model_run(model.handle, &x.handle, 1, &y.handle, 1), TC_OK) << tc_error();
  const void* data = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(tc_tensor_data(y.handle, &data, &size), TC_OK);
  EXPECT_EQ(static_cast<const float*>(data)[2], 6);
}

TEST(C, LogsWhatWasCompiled) {
  static std::vector<std::string> lines;
  lines.clear();
  const auto keep = [](void*, tc_log_level level, const char* text) {
    lines.push_back(std::to_string(level) + " " + text);
  };
  ASSERT_EQ(tc_set_log(keep, nullptr, TC_LOG_INFO), TC_OK);
  Model model;
  open(model, kDigits);
  const std::string bytes = digit(1 + 1);
  Answer answer;
  ASSERT_EQ(tc_model_look(model.handle, bytes.data(), bytes.size(), &answer.handle), TC_OK);
  ASSERT_EQ(tc_set_log(nullptr, nullptr, TC_LOG_INFO), TC_OK);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].rfind("0 compile: the inputs f32(1, 3, 32, 32) took ", 0), 0u) << lines[0];
  EXPECT_EQ(tc_set_log(keep, nullptr, 9), TC_BAD_ARGUMENT);
}

TEST(C, MayBeFreedWhileOthersUseIt) {
  Model model;
  open(model, kDigits);
  const std::string bytes = digit(5);
  std::vector<std::thread> threads;
  tc_model* shared = nullptr;
  ASSERT_EQ(tc_model_open(kDigits.c_str(), nullptr, &shared), TC_OK);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        tc_answer* answer = nullptr;
        const tc_status status = tc_model_look(shared, bytes.data(), bytes.size(), &answer);
        EXPECT_TRUE(status == TC_OK || status == TC_BAD_HANDLE) << tc_error();
        EXPECT_EQ(tc_answer_free(answer), TC_OK);
      }
    });
  EXPECT_EQ(tc_model_free(shared), TC_OK);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
