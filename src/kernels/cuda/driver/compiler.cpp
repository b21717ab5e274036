#include "src/kernels/cuda/driver/compiler.h"

#include <atomic>
#include <cstdlib>

#include "src/core/shared_library.h"
#include "tensor/error.h"

namespace tensor::cuda {

struct NvrtcProgram;

namespace {

// NVRTC's interface, declared here so that building needs no toolkit; tests/cuda compares it with
// the toolkit's own header where there is one.
using Result = int;  // 0 is success
using Unit = NvrtcProgram*;

std::vector<std::string> candidates() {
  std::vector<std::string> names;
  if (const char* file = std::getenv("TENSOR_NVRTC")) return {file};
  if (const char* home = std::getenv("CUDA_HOME"))
    names.push_back(std::string(home) + "/lib64/libnvrtc.so");
  for (const char* name :
       {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"})
    names.push_back(name);
  return names;
}

std::vector<std::string> options_of(const KernelSource& source, const std::string& architecture) {
  std::vector<std::string> options = {"--gpu-architecture=" + architecture, "--std=c++20",
                                      "--ptxas-options=-v", "-lineinfo"};
  options.insert(options.end(), source.options.begin(), source.options.end());
  return options;
}

}  // namespace

struct Compiler::Api {
  SharedLibrary library{"NVRTC (CUDA's run-time compiler)", candidates(),
                        "install the CUDA toolkit (Debian: nvidia-cuda-toolkit), or name the file "
                        "in TENSOR_NVRTC; the CPU works without it"};
  template <class... T>
  using Call = Result(T...);
  Call<int*, int*>* version = library.function<Call<int*, int*>>("nvrtcVersion");
  Call<int*>* architecture_count = library.function<Call<int*>>("nvrtcGetNumSupportedArchs");
  Call<int*>* architectures = library.function<Call<int*>>("nvrtcGetSupportedArchs");
  const char* (*error_text)(Result) = library.function<const char*(Result)>("nvrtcGetErrorString");
  Call<Unit*, const char*, const char*, int, const char* const*, const char* const*>* create =
      library.function<
          Call<Unit*, const char*, const char*, int, const char* const*, const char* const*>>(
          "nvrtcCreateProgram");
  Call<Unit*>* destroy = library.function<Call<Unit*>>("nvrtcDestroyProgram");
  Call<Unit, int, const char* const*>* compile =
      library.function<Call<Unit, int, const char* const*>>("nvrtcCompileProgram");
  Call<Unit, std::size_t*>* log_size =
      library.function<Call<Unit, std::size_t*>>("nvrtcGetProgramLogSize");
  Call<Unit, char*>* log = library.function<Call<Unit, char*>>("nvrtcGetProgramLog");
  Call<Unit, std::size_t*>* code_size =
      library.function<Call<Unit, std::size_t*>>("nvrtcGetCUBINSize");
  Call<Unit, char*>* code = library.function<Call<Unit, char*>>("nvrtcGetCUBIN");

  void check(Result result, const std::string& what) const {
    if (result != 0) internal_error(what, error_text(result));
  }
};

Compiler::Compiler() {
  static const Api api;
  api_ = &api;
  int major = 0, minor = 0, count = 0;
  api.check(api.version(&major, &minor), "nvrtcVersion");
  version_ = 1000 * major + 10 * minor;
  api.check(api.architecture_count(&count), "nvrtcGetNumSupportedArchs");
  architectures_.resize(static_cast<std::size_t>(count));
  api.check(api.architectures(architectures_.data()), "nvrtcGetSupportedArchs");
}

const Compiler& Compiler::get() {
  static const Compiler compiler;
  return compiler;
}

namespace {
std::atomic<std::int64_t> compiled_texts = 0;
}  // namespace

std::int64_t Compiler::compilations() { return compiled_texts; }

Cubin Compiler::compile(const KernelSource& source, const std::string& architecture) const {
  ++compiled_texts;
  std::vector<const char*> texts, names, options;
  for (const auto& [name, text] : source.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  const std::vector<std::string> option_texts = options_of(source, architecture);
  for (const std::string& option : option_texts) options.push_back(option.c_str());

  struct Program {
    const Api& api;
    Unit unit = nullptr;
    ~Program() { api.destroy(&unit); }
  } program{*api_};
  api_->check(api_->create(&program.unit, source.text.c_str(), source.name.c_str(),
                           static_cast<int>(names.size()), texts.data(), names.data()),
              source.name);
  const Result result =
      api_->compile(program.unit, static_cast<int>(options.size()), options.data());
  Cubin cubin;
  std::size_t size = 0;
  api_->check(api_->log_size(program.unit, &size), source.name);
  cubin.log.resize(size);
  api_->check(api_->log(program.unit, cubin.log.data()), source.name);
  while (!cubin.log.empty() && cubin.log.back() == '\0') cubin.log.pop_back();
  if (result != 0)
    internal_error(source.name, "does not compile for ", architecture, " (",
                   api_->error_text(result), "):\n", cubin.log);
  api_->check(api_->code_size(program.unit, &size), source.name);
  cubin.code.resize(size);
  api_->check(api_->code(program.unit, reinterpret_cast<char*>(cubin.code.data())), source.name);
  return cubin;
}

std::string Compiler::key(const KernelSource& source, const std::string& architecture) const {
  // Lengths before texts: no two lists of texts have one key.
  std::string key = "nvrtc " + std::to_string(version_);
  const auto add = [&](const std::string& text) {
    key += '\n' + std::to_string(text.size()) + ' ' + text;
  };
  for (const std::string& option : options_of(source, architecture)) add(option);
  add(source.name);
  add(source.text);
  for (const auto& [name, text] : source.headers) {
    add(name);
    add(text);
  }
  return key;
}

}  // namespace tensor::cuda
