// The test models of the ONNX standard, with their inputs and outputs, as Debian's package
// libonnx-testdata has them: every model that is accepted runs, eagerly and compiled, and gives the
// saved outputs. What is not accepted is counted by its reason. TENSOR_ONNX_DATA names another
// folder of such models.
#include <iostream>

#include "src/onnx/elements.h"

#include "tensor/onnx.h"
#include "tests/headers.h"
#include "tests/io/io_testing.h"

namespace tensor {
namespace {

std::string data_folder() {
  const char* other = std::getenv("TENSOR_ONNX_DATA");
  return other ? other : "/usr/share/libonnx-testdata/data";
}

using Tensors = std::vector<Tensor>;

Tensor load_tensor(const std::string& path) {
  const auto bytes = testing::bytes_of(testing::read_bytes(path));
  return onnx::ElementReader(path).read(onnx::read_tensor(bytes, path));
}

// input_0.pb, input_1.pb, ... of a folder.
Tensors load_tensors(const std::string& folder, const std::string& role, std::size_t count) {
  Tensors result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back(load_tensor(folder + "/" + role + "_" + std::to_string(i) + ".pb"));
  return result;
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::f32:
      return 0x1p-23;
    default:
      return is_floating(dtype) ? 0x1p-52 : 0;
  }
}

// What is wrong, or nothing. Both have rounded sums of as many terms as the largest tensor has
// elements, in float32 or better, and a few results on the way to them: their distance grows as the
// root of the number of terms. Whole numbers are equal, but quantized ones may round differently at
// a tie.
std::string difference(const Tensors& got, const Tensors& want, double terms, bool is_quantized) {
  if (got.size() != want.size()) return "another number of outputs";
  for (std::size_t i = 0; i < got.size(); ++i) {
    TextWriter text;
    text << "output " << i << ": ";
    if (!(got[i].type() == want[i].type())) {
      text << got[i].type() << ", need " << want[i].type();
      return text.str();
    }
    const auto a = got[i].to_vector<double>(), b = want[i].to_vector<double>();
    double largest = 0;
    for (const double value : b)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    const double bound = is_floating(got[i].dtype())
                             ? 8 * epsilon(got[i].dtype()) * std::sqrt(terms) * largest
                             : is_quantized;
    for (std::size_t k = 0; k < a.size(); ++k) {
      if (a[k] == b[k] || (std::isnan(a[k]) && std::isnan(b[k]))) continue;
      if (std::abs(a[k] - b[k]) <= bound) continue;
      text << "element " << k << " is " << a[k] << ", need " << b[k] << " up to " << bound;
      return text.str();
    }
  }
  return {};
}

// Compiled as a function of all inputs, or, where a shape depends on the elements of some, of those
// of floating types, with the others as constants. False where it depends on these, too.
bool run_compiled(const OnnxModel& model, const Tensors& inputs, Tensors& outputs) {
  constexpr std::string_view kReason = "asks for the values of a traced tensor";
  for (const bool all : {true, false}) {
    std::vector<bool> is_free;
    Tensors arguments;
    for (const Tensor& x : inputs) {
      is_free.push_back(all || (is_floating(x.dtype()) && arguments.empty()));
      if (is_free.back()) arguments.push_back(x);
    }
    const auto function = [&](const Tensors& given) {
      Tensors whole = inputs;
      for (std::size_t i = 0, k = 0; i < whole.size(); ++i)
        if (is_free[i]) whole[i] = given[k++];
      return model(whole);
    };
    if (arguments.empty() && !inputs.empty()) return false;
    try {
      outputs = compile(function, arguments, {.threads = 1})(arguments);
      return true;
    } catch (const UserError& error) {
      if (std::string_view(error.what()).find(kReason) == std::string_view::npos) throw;
    }
  }
  return false;
}

// Models whose saved outputs are not what the standard says, by a part of their names.
const std::pair<std::string_view, std::string_view> kInexact[] = {
    {"window", "outputs that do not take 3.1415 for pi"},
    {"roialign", "outputs of more than four digits"},
    {"resize_downsample_scales_linear_align", "outputs that align corners of whole lengths"},
    {"resize_downsample_scales_cubic_align", "outputs that align corners of whole lengths"}};

// Why a model that was accepted cannot be compared, though it is no fault: parts of errors.
const std::string_view kRefusedLate[] = {"training_mode: is true", "elements of the type UINT16"};

struct Counts {
  int models = 0, accepted = 0, compiled = 0;
  std::map<std::string, int> reasons;
};

// "needs what this library does not run: LSTM (opset 7) at ..." without the node.
std::string reason_of(const std::string& error) {
  for (const std::string_view late : kRefusedLate)
    if (error.find(late) != std::string::npos) return std::string(late);
  const std::string start = "does not run: ";
  const std::size_t from = error.find(start);
  if (from == std::string::npos) return error;
  const std::string what = error.substr(from + start.size());
  return what.substr(0, std::min({what.find(" at "), what.find(" (docs"), what.find(';')}));
}

// One set of inputs and outputs. False where it runs only eagerly.
bool run_set(const OnnxModel& model, const std::filesystem::path& folder, bool is_quantized) {
  const Tensors inputs = load_tensors(folder, "input", model.inputs().size());
  const Tensors want = load_tensors(folder, "output", model.outputs().size());
  double terms = 1;
  for (const auto* list : {&inputs, &want})
    for (const Tensor& x : *list) terms = std::max(terms, static_cast<double>(x.size()));
  EXPECT_EQ(difference(model(inputs), want, terms, is_quantized), "") << "eager";
  Tensors got;
  if (!run_compiled(model, inputs, got)) return false;
  EXPECT_EQ(difference(got, want, terms, is_quantized), "") << "compiled";
  return true;
}

void run_model(const std::filesystem::path& folder, Counts& counts) {
  SCOPED_TRACE(folder.string());
  ++counts.models;
  const std::string name = folder.filename();
  const bool is_quantized =
      name.find("quantize") != std::string::npos || name.find("qlinear") != std::string::npos;
  for (const auto& [part, why] : kInexact)
    if (name.find(part) != std::string::npos) {
      ++counts.reasons[std::string(why)];
      return;
    }
  try {
    const OnnxModel model = load_onnx(folder / "model.onnx");
    bool is_compiled = true;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.is_directory()) is_compiled &= run_set(model, entry.path(), is_quantized);
    ++counts.accepted;
    counts.compiled += is_compiled;
  } catch (const UserError& error) {
    const std::string text = error.what(), reason = reason_of(text);
    if (reason == text) ADD_FAILURE() << text;
    ++counts.reasons[reason];
  }
}

void run_models(const std::string& kind, int least) {
  const std::string data = data_folder() + "/" + kind;
  if (!std::filesystem::exists(data))
    GTEST_SKIP() << "there is no " << data << ": install the package libonnx-testdata";
  Counts counts;
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(data))
    if (std::filesystem::exists(entry.path() / "model.onnx")) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const auto& folder : folders) run_model(folder, counts);
  std::cout << kind << ": " << counts.accepted << " of " << counts.models
            << " models are accepted and run, " << counts.compiled << " of them compiled, too\n";
  for (const auto& [reason, count] : counts.reasons)
    std::cout << "  " << count << " need " << reason << '\n';
  EXPECT_GE(counts.accepted, least);
}

TEST(OnnxStandard, Operators) { run_models("node", 724); }
TEST(OnnxStandard, OperatorsByPyTorch) { run_models("pytorch-operator", 35); }
TEST(OnnxStandard, ModelsByPyTorch) { run_models("pytorch-converted", 82); }
TEST(OnnxStandard, SimpleModels) { run_models("simple", 7); }

}  // namespace
}  // namespace tensor
