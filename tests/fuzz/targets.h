// What is fuzzed: each target takes any bytes, and either succeeds or throws UserError. Used by the
// libFuzzer programs beside this file and by tests/io/mutation_test.cpp.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "src/kernels/cuda/family.h"
#include "src/runtime/plan_data.h"
#include "src/tune/log.h"
#include "tensor/error.h"
#include "tensor/io.h"
#include "tensor/json.h"
#include "tensor/tensor.h"
#include "tests/families.h"

namespace tensor::fuzzing {

using Bytes = std::span<const std::byte>;

/// Reads every element, so that the sanitizers see memory that is not there.
inline void touch(const Tensor& x) {
  constexpr std::int64_t kMany = 4096;
  if (x.size() <= kMany)
    static_cast<void>(x.to_vector<double>());
  else
    static_cast<void>(x.copy());
}

template <class Body>
void allow_user_errors(Body&& body) {
  try {
    body();
  } catch (const UserError&) {
  }
}

inline void touch(const TensorMap& tensors) {
  for (const auto& [name, x] : tensors) touch(x);
  for (const auto& entry : tensors.foreign) allow_user_errors([&] { tensors.at(entry.first); });
}

inline void safetensors(Bytes bytes) {
  allow_user_errors([&] { touch(parse_safetensors(bytes, "f").tensors); });
}

inline void npy(Bytes bytes) {
  allow_user_errors([&] { touch(parse_npy(bytes, "f")); });
  allow_user_errors([&] { touch(parse_npz(bytes, "f", std::int64_t{1} << 26)); });
}

inline void image(Bytes bytes) {
  allow_user_errors([&] { touch(decode_image(bytes, "f", std::int64_t{1} << 20)); });
}

inline void visit(const Json& value) {
  allow_user_errors([&] { value.integer(); });
  allow_user_errors([&] { value.number(); });
  allow_user_errors([&] { value.boolean(); });
  allow_user_errors([&] { value.text(); });
  allow_user_errors([&] { value.ints(); });
  allow_user_errors([&] { value.numbers(); });
  allow_user_errors([&] { value.attribute(); });
  allow_user_errors([&] { value["model_type"]; });
  if (value.is_object())
    for (const std::string& key : value.keys()) visit(value[key]);
  if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i) visit(value[i]);
}

inline void json(Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  allow_user_errors([&] { visit(Json::parse(text, "f")); });
}

inline std::uint32_t crc(std::string_view text) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

/// Gives every line the checksum that it should have, so that changed lines reach the parser.
inline std::string mend_log(std::string_view text) {
  constexpr std::string_view kChecksum = ",\"crc\":\"";
  std::string mended;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view body = line.substr(0, line.rfind(kChecksum));
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(crc(body)));
    mended.append(body).append(kChecksum).append(digits).append("\"}\n");
  }
  return mended;
}

/// What is read can be written, and is the same when it is read again.
inline void log(Bytes bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const std::string& version : {text, mend_log(text)})
    allow_user_errors([&] {
      const LogContents contents = parse_log(version, "f");
      for (const Measurement& m : contents.measurements) {
        const LogContents again = parse_log(log_line(m), "f");
        const bool is_same = again.measurements.size() == 1 && again.damaged == 0 &&
                             log_line(again.measurements.front()) == log_line(m);
        if (!is_same) std::abort();
      }
    });
}

/// Elements of a program's values, and multiplications, up to which it is run.
inline constexpr double kManyElements = 1 << 16, kManyFlops = 1 << 24;

inline bool is_small(const detail::Program& program) {
  double elements = 0, flops = 0;
  for (const Node& node : program.laid.graph.nodes())
    elements += static_cast<double>(num_elements(node.type.shape));
  for (const Group& group : program.plan.groups) flops += work_of(program.laid.graph, group).flops;
  return elements <= kManyElements && flops <= kManyFlops;
}

/// 0, 1, 2, 0, 1, ...: numbers of any type, and positions of elements.
inline Tensor counted(const TensorType& type) {
  return (arange(num_elements(type.shape)) % 3).astype(type.dtype).reshape(type.shape);
}

/// The constants of such a text as plan_text (plan_seeds.h) makes; UserError where that is none.
inline Safetensors plan_file(std::string_view text) {
  Safetensors file;
  const std::size_t line = std::min(text.find('\n'), text.size());
  std::istringstream constants{std::string(text.substr(0, line))};
  for (std::string constant; std::getline(constants, constant, ';');) {
    std::istringstream words(constant);
    std::string name, dtype;
    words >> name >> dtype;
    TensorType type{{}, parse_dtype(dtype)};
    for (std::int64_t extent = 0; words >> extent;) type.shape.push_back(extent);
    if (static_cast<double>(num_elements(type.shape)) > kManyElements) fail("f", "is too large");
    file.tensors.insert_or_assign(name, counted(type));
  }
  std::istringstream entries{std::string(text.substr(std::min(line + 1, text.size())))};
  std::string entry;
  std::getline(entries, file.metadata["plan"]);
  for (int i = 0; std::getline(entries, entry); ++i)
    file.metadata["plan." + std::to_string(i)] = entry;
  return file;
}

/// A GPU for which programs are lowered, and no more.
inline detail::Target lowering_target() {
  detail::Target target = detail::cuda_target(cuda::typical_device(90));
  target.build = [](const detail::Program&, std::unique_ptr<detail::Kernels>) {
    return std::unique_ptr<detail::Engine>();
  };
  return target;
}

/// What is read can be added to a plan, once, and is there when that is read again.
inline void save_again(const Executable& executable) {
  Plan plan;
  if (!plan.add(executable) || plan.add(executable)) std::abort();
  const std::vector<std::byte> bytes = plan.bytes();
  if (!Plan::parse(bytes).holds(executable.input_types())) std::abort();
}

/// The sizes of a plan are refused, or linked for both kinds of device and, where they are small,
/// run and saved.
inline void plan(Bytes bytes) {
  static const detail::Target here = detail::target_of(Device(), 2), gpu = lowering_target();
  constexpr std::size_t kMost = 4;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  allow_user_errors([&] {
    const detail::PlanData plan = detail::plan_data(plan_file(text), "f");
    for (std::size_t i = 0; i < std::min(kMost, plan.sizes.size()); ++i) {
      allow_user_errors([&] { detail::read_program(plan, plan.sizes[i], gpu); });
      allow_user_errors([&] {
        const auto& common = plan.sharing.common();
        const auto program = detail::read_program(plan, plan.sizes[i], here, common);
        if (!is_small(*program)) return;
        std::vector<Tensor> inputs;
        for (const TensorType& type : program->inputs) inputs.push_back(counted(type));
        for (const Tensor& x : detail::execute(*program, inputs)) touch(x);
        save_again(Executable(program));
      });
    }
  });
}

/// A plan as the bytes that it is, used where they lie.
inline void plan_bytes(Bytes bytes) {
  allow_user_errors([&] {
    const Plan plan = Plan::parse(bytes);
    for (const Plan::Size& size : plan.sizes())
      allow_user_errors([&] { plan.executable(size, {.threads = 2}); });
  });
}

/// Makes the checksums of PNG chunks agree again, so that changed chunks reach the decoder.
inline void mend_png(std::span<std::byte> bytes) {
  constexpr std::size_t kSignature = 8, kAround = 12;
  if (bytes.size() < kSignature || std::memcmp(bytes.data(), "\x89PNG", 4) != 0) return;
  std::span<std::byte> rest = bytes.subspan(kSignature);
  while (rest.size() >= kAround) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length = length << 8 | std::to_integer<std::size_t>(rest[i]);
    if (length > rest.size() - kAround) return;
    const auto* checked = reinterpret_cast<const Bytef*>(rest.data() + 4);
    const auto checksum = static_cast<std::uint32_t>(crc32_z(0, checked, length + 4));
    for (std::size_t i = 0; i < 4; ++i)
      rest[8 + length + i] = static_cast<std::byte>(checksum >> (24 - 8 * i) & 0xff);
    rest = rest.subspan(kAround + length);
  }
}

}  // namespace tensor::fuzzing
