// TENSOR_DUMP=source: every generated kernel as a file that compiles as it stands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "src/compile.h"
#include "src/kernels/cuda/driver/compiler.h"
#include "tensor/creation.h"
#include "tensor/ops.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/no_engine.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class DumpSource : public ::testing::Test {
 protected:
  ~DumpSource() override {
    ::unsetenv("TENSOR_DUMP");
    ::unsetenv("TENSOR_DUMP_FOLDER");
  }

  // The texts of the kernels of a product and a softmax.
  static std::vector<std::string> dumped(const std::string& folder, int capability) {
    ::setenv("TENSOR_DUMP", "source", 1);
    ::setenv("TENSOR_DUMP_FOLDER", folder.c_str(), 1);
    const Tensor weight = full({64, 64}, 0.5, f32);
    const auto function = [&](const std::vector<Tensor>& in) {
      return std::vector{softmax(gelu(matmul(in[0], weight)), -1)};
    };
    detail::compile_until(detail::Until::linked, function, {{{32, 64}, f32}}, {.dtype = f16},
                          testing::target_without_gpu(capability));
    std::set<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.insert(entry);
    std::vector<std::string> texts;
    for (const auto& path : paths) texts.push_back(text_of(path));
    return texts;
  }

  check::TemporaryFolder folder_;
};

TEST_F(DumpSource, SaysWhatTheKernelIs) {
  const auto texts = dumped(folder_ / "new", 90);
  const auto product = std::find_if(texts.begin(), texts.end(), [](const std::string& text) {
    return text.find("// family:   gemm_sm90\n") != std::string::npos;
  });
  ASSERT_NE(product, texts.end());
  for (const char* line :
       {"// group:    1, matmul", "// place:    ", "// schedule: swapped tokens=", "__global__"})
    EXPECT_NE(product->find(line), std::string::npos) << line << '\n' << product->substr(0, 400);
  for (const std::string& text : texts) EXPECT_EQ(text.find("#include \""), std::string::npos);
}

TEST_F(DumpSource, CompilesAsItStands) {
  if (const std::string missing = cuda::no_compiler(); !missing.empty()) GTEST_SKIP() << missing;
  for (const int capability : {75, 90})
    for (const std::string& text : dumped(folder_ / std::to_string(capability), capability)) {
      const cuda::KernelSource source{"dumped.cu", text, {}, {"-default-device"}};
      const std::string architecture = cuda::typical_device(capability).architecture();
      EXPECT_FALSE(cuda::Compiler::get().compile(source, architecture).code.empty());
    }
}

TEST_F(DumpSource, RefusesAFolderThatCannotBeWritten) {
  folder_.write("file", "");
  const std::string file = folder_ / "file";
  EXPECT_NE(check::error_of([&] { dumped(file, 90); }).find("cannot write " + file),
            std::string::npos);
}

}  // namespace
}  // namespace tensor
