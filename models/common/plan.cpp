// Plan files: what stands beside the executables in the file's metadata, and its checks.
#include "models/common/plan.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>

#include "models/common/text.h"
#include "tensor/io.h"
#include "tensor/text.h"
#include "tensor/version.h"

namespace models {

using tensor::Tensor;
using tensor::nn::StateDict;

namespace {

// Against mistakes, not against forgers: every element counts, eight bytes at a time.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t)))
      mix(bytes.data(), sizeof(std::uint64_t));
    mix(bytes.data(), bytes.size());
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::string digits() const {
    tensor::TextWriter text;
    text << std::hex << std::setw(16) << std::setfill('0') << state_;
    return text.str();
  }

 private:
  void mix(const std::byte* bytes, std::size_t count) {
    constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;  // odd, its bits without a pattern
    std::uint64_t word = count;
    if (count > 0) std::memcpy(&word, bytes, count);
    state_ = (state_ ^ word) * kFactor;
    state_ ^= state_ >> 32;  // the high bits of a word must reach the low ones
  }

  std::uint64_t state_ = 0xcbf29ce484222325;
};

std::vector<std::string> words(const std::string& text) {
  tensor::TextReader in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

std::string entry(const std::map<std::string, std::string>& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

}  // namespace

std::string fingerprint(const std::string& text,
                        const std::vector<tensor::nn::Parameter>& parameters) {
  Hash hash;
  hash.add(text);
  for (const tensor::nn::Parameter& p : parameters) {
    tensor::TextWriter heading;
    heading << p.name << ' ' << p.tensor->type();
    hash.add(heading.str());
    const Tensor values = p.tensor->is_contiguous() ? *p.tensor : p.tensor->copy();
    hash.add(std::as_bytes(values.span<float>()));
    tensor::forget_pages(*p.tensor);  // the weights of the plan fill memory already
  }
  return hash.digits();
}

std::string fingerprint(const std::vector<std::string>& files) {
  Hash hash;
  std::vector<char> block(std::size_t{1} << 20);
  for (const std::string& path : files) {
    tensor::Classic<std::ifstream> file(path, std::ios::binary);
    std::uint64_t size = 0;
    while (file.read(block.data(), std::ssize(block)), file.gcount() > 0) {
      const auto count = static_cast<std::size_t>(file.gcount());
      hash.add(std::string_view(block.data(), count));
      size += count;
    }
    if (!file.eof()) tensor::fail(path, "cannot be read");
    hash.add(std::to_string(size));
  }
  return hash.digits();
}

PlanKey plan_key(const std::string& program, const RunOptions& options,
                 const std::vector<std::string>& examples, const std::string& model) {
  return {{"program", program},
          {"version", std::string(tensor::version())},
          {"dtype", options.dtype},
          {"narrow residuals", options.narrow_residuals ? "yes" : "no"},
          {"device", options.devices().front().is_cuda() ? "cuda" : "cpu"},
          {"exclude", joined(options.exclude, ",")},
          {"calibration", examples.empty() ? "" : fingerprint(examples)},
          {"model", model}};
}

tensor::Plan load_plan(const std::string& path, const PlanKey& key) {
  const std::string mending = ": name another plan, or a file that does not exist yet";
  tensor::Plan plan;
  try {
    plan = tensor::Plan::load(path);
  } catch (const tensor::UserError& error) {
    throw tensor::UserError(error.what() + mending);
  }
  const std::string program = entry(plan.about(), "program");
  if (program != key.at("program"))
    tensor::fail(path, "was made by ", program, ", this is ", key.at("program"), mending);
  for (const auto& [name, wanted] : key) {
    const std::string found = entry(plan.about(), name);
    if (found != wanted && name == "model")
      tensor::fail(path, "was made from another model: other weights or another configuration",
                   mending);
    if (found != wanted)
      tensor::fail(path, "was compiled for the ", name, ' ', json_text(found), ", this run has ",
                   json_text(wanted), mending);
  }
  return plan;
}

std::optional<NamedExecutable> planned(const tensor::Plan& plan, const std::string& path,
                                       const StateDict& inputs,
                                       const tensor::LoadOptions& options) {
  tensor::Plan::Size types;
  for (const auto& [name, value] : inputs) types.push_back(value.type());
  if (!plan.holds(types, options)) return std::nullopt;
  const tensor::Plan::About& about = plan.about(types, options);
  NamedExecutable result{words(entry(about, "inputs")), words(entry(about, "outputs")),
                         plan.executable(types, options)};
  if (result.outputs.size() != result.executable.output_types().size() ||
      result.inputs.size() != types.size() || !result.fits(inputs))
    tensor::fail(path, "names the inputs ", joined(result.inputs, " "), " and ",
                 result.outputs.size(), " outputs, need those of ", describe_inputs(inputs),
                 " and ", result.executable.output_types().size(),
                 " outputs: the file is damaged, name another");
  return result;
}

bool grow_plan(const std::string& path, const PlanKey& key, const NamedExecutable& size) {
  return tensor::Plan::grow(
      path, key, size.executable,
      {{"inputs", joined(size.inputs, " ")}, {"outputs", joined(size.outputs, " ")}});
}

NamedExecutable planned_or_made(const std::string& path, const PlanKey& key,
                                const StateDict& inputs, const tensor::LoadOptions& options,
                                bool is_to_tune, const std::function<NamedExecutable()>& make) {
  // It may have grown since the last size: other processes add to it, too.
  if (std::filesystem::exists(path)) {
    if (auto known = planned(load_plan(path, key), path, inputs, options)) {
      if (is_to_tune)
        tensor::fail("--tune", "has nothing to do: the plan ", path, " has ",
                     describe_inputs(inputs),
                     " and would be run as it is; name a file that does not exist yet");
      return *std::move(known);
    }
  }
  NamedExecutable made = make();
  grow_plan(path, key, made);
  return made;
}

}  // namespace models
