#include "tests/cuda/emulator/program.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "tensor/error.h"

namespace tensor::emulator {
namespace {

namespace fs = std::filesystem;

// Asks GCC for calls before every load and store and nothing else of the address sanitizer;
// variables that are not set hold a pattern, not what was there. Functions of the C library are
// found in this process, which halves the time of linking; the hooks are the kernel's own, also
// where this process has sanitizers.
constexpr const char* kFlags =
    "-O1 -g1 -std=c++20 -shared -nostdlib -Wl,-Bsymbolic -fPIC -w -Wno-psabi -fno-strict-aliasing "
    "-ffp-contract=off "
    "-fsanitize=kernel-address --param asan-stack=0 --param asan-globals=0 "
    "--param asan-instrumentation-with-call-threshold=0 -fsanitize=alignment,bounds "
    "-ftrivial-auto-var-init=pattern -include prelude.h -include hooks.h";

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) internal_error("emulator", "cannot write ", path.string());
}

std::pair<int, std::string> output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) internal_error("emulator", "cannot run ", command);
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    text.append(buffer.data(), n);
  return {pclose(pipe), text};
}

std::string hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

/// The text of (...) from `at` on, which is behind the bracket afterwards.
std::string bracketed(const std::string& text, std::size_t& at) {
  const std::size_t begin = text.find('(', at) + 1;
  int depth = 1;
  for (at = begin; at < text.size() && depth > 0; ++at)
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
  return text.substr(begin, at - begin - 1);
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// C++ for the declaration "TYPE NAME[EXTENTS]" (without extents, too) in shared memory.
std::string shared_declaration(std::string declaration, const std::string& alignment,
                               bool is_dynamic) {
  while (!declaration.empty() && std::isspace(static_cast<unsigned char>(declaration.back())))
    declaration.pop_back();
  std::string extents;
  if (const std::size_t bracket = declaration.find('['); bracket != std::string::npos) {
    extents = declaration.substr(bracket);
    declaration.resize(bracket);
  }
  std::size_t begin = declaration.size();
  while (begin > 0 && is_word(declaration[begin - 1])) --begin;
  const std::string name = declaration.substr(begin), type = declaration.substr(0, begin);
  if (name.empty() || type.find_first_not_of(" \n") == std::string::npos ||
      declaration.find('=') != std::string::npos)
    internal_error("emulator", "cannot read the shared variable '", declaration,
                   "': need one a statement, without a value");
  if (is_dynamic)
    return type + "* const " + name + " = static_cast<" + type + "*>(tensor_gpu->dynamic_shared(" +
           alignment + "))";
  return "auto& " + name + " = tensor::emulated::shared_variable<" + type + extents + ", " +
         alignment + ">([]() -> const void* { static char key; return &key; }())";
}

}  // namespace

std::string for_host(const std::string& text) {
  constexpr std::string_view kShared = "__shared__";
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = text.find(kShared); at != std::string::npos;
       at = text.find(kShared, done)) {
    const std::size_t line = text.rfind('\n', at) + 1;
    std::size_t end = text.find(';', at);
    if (text.substr(line, at - line).find("//") != std::string::npos || end == std::string::npos) {
      end = at + kShared.size();
      result += text.substr(done, end - done);
      done = end;
      continue;
    }
    std::size_t from = at + kShared.size();
    std::string before = text.substr(done, at - done), alignment = "16";
    const std::size_t outside = before.rfind("extern");
    const bool is_dynamic = outside != std::string::npos &&
                            before.find_first_not_of(" \n", outside + 6) == std::string::npos;
    if (is_dynamic) before.resize(outside);
    from = text.find_first_not_of(" \n", from);
    for (const std::string_view word : {"__align__", "alignas"})
      if (text.compare(from, word.size(), word) == 0) alignment = bracketed(text, from);
    result += before + shared_declaration(text.substr(from, end - from), alignment, is_dynamic);
    done = end;
  }
  return result + text.substr(done);
}

namespace {

/// Compiles the text to `path`; other processes may do the same at the same time.
void compile(const cuda::KernelSource& source, const std::string& text, const std::string& flags,
             const fs::path& path) {
  const std::string own = path.string() + "." + std::to_string(getpid());
  const fs::path folder = own + ".d";
  fs::create_directories(folder);
  for (const auto& [name, header] : source.headers)
    if (name != "ptx.h") write(folder / name, for_host(header));
  write(folder / "kernel.cpp", text);
  const auto [status, log] = output_of(
      std::string(TENSOR_EMULATOR_COMPILER) + " " + flags + " -I" TENSOR_EMULATOR_HEADERS " " +
      (folder / "kernel.cpp").string() + " -lgcc -o " + own + " 2>&1");
  if (status != 0)
    internal_error("emulator", source.name, " does not compile for the host (", folder.string(),
                   "):\n", log.substr(0, 6000));
  fs::rename(own, path);
  fs::remove_all(folder);
}

void find_image(Program& program) {
  struct Search {
    Program& program;
    const char* inside;
  } search{program, reinterpret_cast<const char*>(program.run)};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& [found, inside] = *static_cast<Search*>(data);
        const char *begin = nullptr, *end = nullptr;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
          const char* at =
              reinterpret_cast<const char*>(info->dlpi_addr) + info->dlpi_phdr[i].p_vaddr;
          if (!begin) begin = at;
          end = at + info->dlpi_phdr[i].p_memsz;
        }
        if (inside < begin || inside >= end) return 0;
        found.image_begin = begin;
        found.image_end = end;
        return 1;
      },
      &search);
}

/// Where programs are kept; those that nobody used for a week are removed.
fs::path cache_folder() {
  const fs::path folder = TENSOR_EMULATOR_CACHE;
  fs::create_directories(folder);
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24 * 7);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::error_code ignored;  // another process may remove it as well
    const auto used = fs::last_write_time(entry, ignored);
    if (!ignored && used < old) fs::remove_all(entry, ignored);
  }
  return folder;
}

Program load(const fs::path& path) {
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) internal_error("emulator", "cannot load a kernel: ", dlerror());
  Program program;
  program.path = path.string();
  const auto find = [&](const char* name, auto& to) {
    void* symbol = dlsym(library, name);
    if (!symbol) internal_error("emulator", "a kernel without ", name);
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(symbol);
  };
  find("tensor_emulated_run", program.run);
  find("tensor_emulated_sizes", program.sizes);
  find("tensor_gpu", program.gpu);
  find("tensor_here", program.here);
  find_image(program);
  return program;
}

}  // namespace

std::string Program::place(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  if (at < image_begin || at >= image_end) return {};
  char offset[32];
  std::snprintf(offset, sizeof offset, "0x%llx",
                static_cast<unsigned long long>(at - 1 - image_begin));
  const std::string lines = output_of("addr2line -s -C -e " + path + " -i " + offset).second;
  std::istringstream stream(lines);
  std::string line, text;
  for (int shown = 0; shown < 4 && std::getline(stream, line);) {
    if (line.starts_with("ptx.h") || line.starts_with("prelude.h") || line.starts_with("hooks.h"))
      continue;
    text += (shown++ > 0 ? " < " : "") + line.substr(0, line.find(' '));
  }
  return text;
}

const Program& program_of(const cuda::KernelSource& source, const std::string& entry,
                          int capability) {
  static std::map<std::string, Program> programs;
  const std::string text = for_host(source.text) +
                           "\nextern \"C\" void tensor_emulated_run(void** arguments) {\n"
                           "  tensor::emulated::kernel_of(&" +
                           entry +
                           ")(arguments);\n}\n"
                           "extern \"C\" unsigned tensor_emulated_sizes(unsigned* to) {\n"
                           "  return tensor::emulated::kernel_of(&" +
                           entry + ").sizes(to);\n}\n";
  const std::string flags =
      std::string(kFlags) + " -DTENSOR_EMULATED_ARCH=" + std::to_string(10 * capability);
  std::string key = text + flags + TENSOR_EMULATOR_COMPILER;
  for (const auto& [name, header] : source.headers) key += name + header;
  static const std::string own_headers = [] {
    std::string all;
    for (const char* name : {"gpu.h", "prelude.h", "hooks.h", "ptx.h"})
      all += read(fs::path(TENSOR_EMULATOR_HEADERS) / name);
    return all;
  }();
  const std::string hash = hash_of(key + own_headers);
  if (const auto known = programs.find(hash); known != programs.end()) return known->second;
  static const fs::path folder = cache_folder();
  const fs::path path = folder / (hash + ".so");
  if (!fs::exists(path)) compile(source, text, flags, path);
  return programs.emplace(hash, load(path)).first->second;
}

}  // namespace tensor::emulator
