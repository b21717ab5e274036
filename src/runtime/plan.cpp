// Plans as files: safetensors whose tensors are the constants of all sizes, each once, named by its
// elements (content_name). The metadata entry "plan" is JSON: the version of the format, what the
// executables are for, and the types of every size's inputs; "plan.0", "plan.1", ... are the texts
// of the sizes in that order, which are read when they are needed.
#include "tensor/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/io/atomic_file.h"
#include "src/io/json_reader.h"
#include "src/io/safetensors_file.h"
#include "src/runtime/plan_data.h"
#include "src/trace/items.h"
#include "tensor/io.h"
#include "tensor/json.h"

namespace tensor {

using detail::PlanData;
using detail::PlannedSize;

namespace {

using Text = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tensor-plan";
constexpr std::int64_t kVersion = 3;  // 1 and 2: one size, as the whole text
constexpr const char* kEntry = "plan";

std::string entry_of(std::size_t size) { return kEntry + ("." + std::to_string(size)); }

bool is_own(const std::string& entry) {
  return entry == kEntry || entry.starts_with(std::string(kEntry) + ".");
}

std::string kind_of(const Device& device) { return device.is_cuda() ? "cuda" : "cpu"; }

Text size_json(const PlannedSize& size) {
  Text json = {{"inputs", Text::array()}, {"about", size.about}};
  for (const TensorType& type : size.inputs)
    json["inputs"].push_back({{"dtype", std::string(name(type.dtype))},
                              {"shape", Ints(type.shape.begin(), type.shape.end())}});
  return json;
}

std::map<std::string, std::string> metadata_of(const PlanData& plan) {
  Text head = {{"format", kFormat},         {"version", kVersion},    {"device", plan.device},
               {"computes", plan.computes}, {"sizes", Text::array()}, {"parts", Text::object()}};
  for (const auto& [name, part] : plan.constants.parts())
    head["parts"][name] = {
        {"of", part.of}, {"axis", part.axis}, {"begin", part.begin}, {"extent", part.extent}};
  std::map<std::string, std::string> metadata = plan.about;
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
    head["sizes"].push_back(size_json(plan.sizes[i]));
    metadata[entry_of(i)] = plan.sizes[i].text;
  }
  metadata[kEntry] = head.dump();
  return metadata;
}

PlannedSize size_of(const Json& json) {
  PlannedSize size;
  for (std::size_t i = 0; i < json["inputs"].size(); ++i) {
    const Json input = json["inputs"][i];
    const Shape shape(input["shape"].ints());
    num_elements(shape);
    size.inputs.push_back({shape, parse_dtype(input["dtype"].text())});
  }
  for (const std::string& key : json["about"].keys()) size.about[key] = json["about"][key].text();
  return size;
}

void write(const PlanData& plan, const std::string& name, const Write& to) {
  write_safetensors(name, plan.constants.stored(), metadata_of(plan), to);
}

// UserError unless the file is about what its new size is about.
void check_about(const std::string& path, const Plan::About& file, const Plan::About& size) {
  const auto entry = [](const Plan::About& about, const std::string& key) {
    const auto found = about.find(key);
    return found == about.end() ? "" : found->second;
  };
  for (const Plan::About* about : {&size, &file})
    for (const auto& [key, value] : *about)
      if (const std::string there = entry(file, key), here = entry(size, key); there != here)
        fail(path, "is a plan whose \"", key, "\" is \"", there, "\", the new size's is \"", here,
             "\": name another file");
}

}  // namespace

const PlannedSize* PlanData::find(const Plan::Size& inputs) const {
  const auto found = std::find_if(sizes.begin(), sizes.end(),
                                  [&](const PlannedSize& size) { return size.inputs == inputs; });
  return found == sizes.end() ? nullptr : &*found;
}

const PlannedSize& PlanData::at(const Plan::Size& inputs) const {
  if (const PlannedSize* size = find(inputs)) return *size;
  std::vector<Plan::Size> all;
  for (const PlannedSize& size : sizes) all.push_back(size.inputs);
  fail(name, "has no executable for ", detail::list_of({inputs}), ", only for ",
       all.empty() ? "nothing" : detail::list_of(all),
       ": use one of these sizes, or compile the model for this one");
}

std::string detail::list_of(const std::vector<Plan::Size>& sizes) {
  constexpr std::size_t kMost = 20;
  TextWriter text;
  for (std::size_t i = 0; i < std::min(sizes.size(), kMost); ++i) {
    text << (i == 0 ? "" : "; ");
    for (std::size_t k = 0; k < sizes[i].size(); ++k) text << (k == 0 ? "" : ", ") << sizes[i][k];
    if (sizes[i].empty()) text << "no inputs";
  }
  if (sizes.size() > kMost) text << "; and " << sizes.size() - kMost << " others";
  return text.str();
}

PlanData detail::plan_data(Safetensors file, const std::string& name) {
  const auto head = file.metadata.find(kEntry);
  if (head == file.metadata.end())
    fail(name, "is no plan file: it has no metadata entry \"plan\" (Plan::save writes one)");
  const Json json = Json::parse(head->second, name + ": plan",
                                std::max(Json::kMostValues, head->second.size() / 6));
  if (json.text("format", "") != kFormat)
    fail(name, "is no plan file: its format is \"", json.text("format", ""), "\", need \"", kFormat,
         '"');
  if (const std::int64_t version = json.integer("version", 0); version != kVersion)
    fail(name, "has the plan version ", version, ", this build reads ", kVersion,
         ": compile the model again");
  PlanData plan;
  plan.name = name;
  plan.device = json["device"].text();
  plan.computes = json["computes"].text();
  const Json sizes = json["sizes"];
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    plan.sizes.push_back(size_of(sizes[i]));
    const auto text = file.metadata.find(entry_of(i));
    if (text == file.metadata.end())
      fail(sizes[i].path(), "the file has no metadata entry \"", entry_of(i),
           "\": compile the model again");
    plan.sizes.back().text = std::move(text->second);
  }
  std::erase_if(file.metadata, [](const auto& entry) { return is_own(entry.first); });
  plan.about = std::move(file.metadata);
  plan.constants = PlanConstants(std::move(file.tensors));
  const Json parts = json["parts"];
  for (const std::string& part : parts.keys())
    plan.constants.add_part(parts[part].path(), part,
                            {parts[part]["of"].text(), parts[part]["axis"].integer(),
                             parts[part]["begin"].integer(), parts[part]["extent"].integer()});
  return plan;
}

namespace {

// For options.device.
std::shared_ptr<const detail::Program> load_whole(const PlanData& plan, const Plan::Size& inputs,
                                                  const LoadOptions& options,
                                                  const std::function<bool()>& make_room) {
  using namespace detail;
  const auto common = options.sharing.value_or(plan.sharing).common();
  auto program =
      read_program(plan, plan.at(inputs),
                   target_of(options.device, options.threads, true, options.spin_us), common);
  common->keep_within(options.memory_limit, *program, make_room);
  return program;
}

detail::Division division_of(const Plan::Size& inputs, const LoadOptions& options) {
  return detail::divide(inputs, options.device, options.devices, options.whole_inputs);
}

}  // namespace

std::shared_ptr<const detail::Program> detail::load_program(
    const PlanData& plan, const Plan::Size& inputs, const LoadOptions& options,
    const std::function<bool()>& make_room) {
  if (options.devices.empty()) return load_whole(plan, inputs, options, make_room);
  const Division division = division_of(inputs, options);
  return program_of(division, [&](const Division::Piece& piece) {
    LoadOptions own = options;
    own.device = piece.device, own.devices = {};
    auto program = load_whole(plan, piece.inputs, own, make_room);
    if (piece.begin == 0 && piece.count > 1)
      check_items(program->laid.graph, division.is_batch, piece.count);
    return program;
  });
}

Plan::Plan() : data_(std::make_shared<PlanData>()) {}

Plan Plan::of(About about) {
  for (const auto& [key, value] : about)
    if (is_own(key))
      fail("Plan", "the entry \"", key, "\" is the plan's own: give yours another name");
  auto data = std::make_shared<PlanData>();
  data->about = std::move(about);
  Plan plan;
  plan.data_ = std::move(data);
  return plan;
}

Plan Plan::load(const std::string& path) {
  Plan plan;
  plan.data_ = std::make_shared<PlanData>(detail::plan_data(load_safetensors(path), path));
  return plan;
}

Plan Plan::parse(std::span<const std::byte> bytes, const std::string& name) {
  Plan plan;
  plan.data_ = std::make_shared<PlanData>(
      detail::plan_data(parse_safetensors(bytes, name, FileAccess::map), name));
  return plan;
}

const Plan::About& Plan::about() const { return data_->about; }
const Plan::About& Plan::about(const Size& inputs) const { return data_->at(inputs).about; }
bool Plan::holds(const Size& inputs) const { return data_->find(inputs); }

bool Plan::holds(const Size& inputs, const LoadOptions& options) const {
  if (options.devices.empty()) return holds(inputs);
  const detail::Division division = division_of(inputs, options);
  return std::ranges::all_of(division.pieces,
                             [this](const auto& piece) { return holds(piece.inputs); });
}

const Plan::About& Plan::about(const Size& inputs, const LoadOptions& options) const {
  return about(options.devices.empty() ? inputs : division_of(inputs, options).pieces[0].inputs);
}

std::vector<Plan::Size> Plan::sizes() const {
  std::vector<Size> result;
  for (const PlannedSize& size : data_->sizes) result.push_back(size.inputs);
  return result;
}

Executable Plan::executable(const Size& inputs, const LoadOptions& options) const {
  return Executable(detail::load_program(*data_, inputs, options));
}

namespace {

// Plan::add of a program with a graph.
bool add_one(std::shared_ptr<const PlanData>& data, const detail::Program& program,
             Plan::About about) {
  if (data->find(program.inputs)) return false;
  const std::string device = kind_of(program.target.device);
  auto next = std::make_shared<PlanData>(*data);
  if (next->sizes.empty()) next->device = device, next->computes = program.computes;
  if (next->device != device || next->computes != program.computes)
    fail(next->name, "has executables that compute ", next->computes, " on ", next->device,
         ", got one for ", program.computes, " on ", device, ": put it into another plan");
  for (const auto& [key, value] : about) json_string(next->name, key + value);  // or UserError
  program.shared.check();
  const auto name_constant = [&](const Tensor& x) {
    std::string name = next->constants.add(x);
    program.common->contents().share(name, x);
    return name;
  };
  std::string text = detail::text_of(program, name_constant);
  next->sizes.push_back({program.inputs, std::move(about), std::move(text)});
  data = std::move(next);
  return true;
}

}  // namespace

bool Plan::add(const Executable& executable, About about) {
  const detail::Program& whole = executable.program();
  if (!whole.parts) return add_one(data_, whole, std::move(about));
  if (whole.parts->have_shares())
    fail("plan", "got an executable that ", whole.parts->does(),
         ", need one that has whole products: compile it where it runs, or divide the batch");
  Plan plan = *this;  // all of them, or none
  bool is_new = false;
  for (std::size_t i = 0; i < whole.parts->size(); ++i)
    is_new |= add_one(plan.data_, (*whole.parts)[i], about);
  *this = std::move(plan);
  return is_new;
}
void Plan::save(const std::string& path) const {
  save_safetensors(path, data_->constants.stored(), metadata_of(*data_));
}

std::vector<std::byte> Plan::bytes() const {
  std::vector<std::byte> result;
  write(*data_, data_->name, [&](std::span<const std::byte> bytes) {
    result.insert(result.end(), bytes.begin(), bytes.end());
  });
  return result;
}

bool Plan::grow(const std::string& path, const About& about, const Executable& executable,
                const About& about_size) {
  for (;;) {
    const Turn turn(path);
    Plan plan = turn.has_file() ? load(path) : of(about);
    check_about(path, plan.about(), about);
    if (!plan.add(executable, about_size)) return false;
    if (turn.has_file()) {
      plan.save(path);
      return true;
    }
    AtomicFile file(path);
    tensor::write(*plan.data_, path, [&](std::span<const std::byte> bytes) { file.write(bytes); });
    if (file.commit_as_new()) return true;
  }
}

void Executable::save(const std::string& path,
                      const std::map<std::string, std::string>& about) const {
  Plan plan = Plan::of(about);
  plan.add(*this);
  plan.save(path);
}

namespace {

Executable only_one(const Plan& plan, int threads, const Device& device) {
  const PlanData& data = *plan.data();
  if (data.sizes.size() != 1)
    fail(data.name, "has ", data.sizes.size(), " executables, for ",
         data.sizes.empty() ? "nothing" : detail::list_of(plan.sizes()),
         ", need one: take it from Plan::load(path), or give that to Compiled");
  return Executable(
      detail::read_program(data, data.sizes.front(), detail::target_of(device, threads)));
}

}  // namespace

Executable load_executable(const std::string& path, int threads, const Device& device) {
  return only_one(Plan::load(path), threads, device);
}

Executable load_executable(std::span<const std::byte> bytes, int threads, const Device& device) {
  return only_one(Plan::parse(bytes), threads, device);
}

}  // namespace tensor
