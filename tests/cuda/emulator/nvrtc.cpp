#include "tests/cuda/emulator/nvrtc.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "src/core/shared_library.h"
#include "tests/cuda/emulator/driver_state.h"

namespace tensor::emulator {
namespace {

struct Unit {
  cuda::KernelSource source;
  std::string image;
};

// Lengths before texts.
void put(std::string& image, const std::string& text) {
  image += std::to_string(text.size()) + ' ' + text;
}
std::string get(const char*& at) {
  char* begin = nullptr;
  const std::size_t size = std::strtoull(at, &begin, 10);
  at = begin + 1 + size;
  return std::string(begin + 1, size);
}

constexpr int kCapabilities[] = {75, 80, 86, 89, 90, 100, 120};

int version(int* major, int* minor) { return *major = 0, *minor = 0, 0; }
int architecture_count(int* count) { return *count = std::size(kCapabilities), 0; }
int architectures(int* to) {
  std::copy(std::begin(kCapabilities), std::end(kCapabilities), to);
  return 0;
}
const char* error_string(int) { return "emulated error"; }

int create(Unit** unit, const char* text, const char* name, int count, const char* const* texts,
           const char* const* names) {
  *unit = new Unit{{name, text}, {}};
  cuda::Headers::List& headers = (*unit)->source.headers.edit();
  for (int i = 0; i < count; ++i) headers.emplace_back(names[i], texts[i]);
  return 0;
}
int destroy(Unit** unit) {
  delete *unit;
  return 0;
}
int compile_unit(Unit* unit, int count, const char* const* options) {
  constexpr std::string_view kArchitecture = "--gpu-architecture=sm_";
  for (int i = 0; i < count; ++i)
    if (const std::string_view option = options[i]; option.starts_with(kArchitecture))
      put(unit->image, std::to_string(std::atoi(options[i] + kArchitecture.size())));
  put(unit->image, unit->source.name);
  put(unit->image, unit->source.text);
  put(unit->image, std::to_string(unit->source.headers.size()));
  for (const auto& [name, text] : unit->source.headers)
    put(unit->image, name), put(unit->image, text);
  unit->image += '\0';
  return 0;
}
int log_size(Unit*, std::size_t* size) { return *size = 1, 0; }
int log(Unit*, char* to) { return *to = '\0', 0; }
int code_size(Unit* unit, std::size_t* size) { return *size = unit->image.size(), 0; }
int code(Unit* unit, char* to) {
  std::memcpy(to, unit->image.data(), unit->image.size());
  return 0;
}

}  // namespace

void install_nvrtc() {
  constexpr const char* kName = "emulated NVRTC";
  ::setenv("TENSOR_NVRTC", kName, 1);
  SharedLibrary::stand_in(kName, [](const char* name) -> void* {
    static const std::map<std::string, void*> table = {
        {"nvrtcVersion", pointer_to(version)},
        {"nvrtcGetNumSupportedArchs", pointer_to(architecture_count)},
        {"nvrtcGetSupportedArchs", pointer_to(architectures)},
        {"nvrtcGetErrorString", pointer_to(error_string)},
        {"nvrtcCreateProgram", pointer_to(create)},
        {"nvrtcDestroyProgram", pointer_to(destroy)},
        {"nvrtcCompileProgram", pointer_to(compile_unit)},
        {"nvrtcGetProgramLogSize", pointer_to(log_size)},
        {"nvrtcGetProgramLog", pointer_to(log)},
        {"nvrtcGetCUBINSize", pointer_to(code_size)},
        {"nvrtcGetCUBIN", pointer_to(code)},
    };
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second;
  });
}

std::optional<std::pair<cuda::KernelSource, int>> read_image(const char* image) {
  char* end = nullptr;
  const long digits = std::strtol(image, &end, 10);
  if ((digits != 2 && digits != 3) || *end != ' ') return std::nullopt;
  const int capability = std::atoi(get(image).c_str());
  if (std::find(std::begin(kCapabilities), std::end(kCapabilities), capability) ==
      std::end(kCapabilities))
    return std::nullopt;
  cuda::KernelSource source;
  source.name = get(image);
  source.text = get(image);
  cuda::Headers::List list;
  for (int headers = std::atoi(get(image).c_str()); headers > 0; --headers) {
    const std::string name = get(image);
    list.emplace_back(name, get(image));
  }
  source.headers = list;
  return {{source, capability}};
}

}  // namespace tensor::emulator
