// NVRTC, opened at run time. Skipped, with the reason, where there is none.
#include "src/kernels/cuda/driver/compiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "src/core/shared_library.h"
#include "tests/cuda/compiled.h"
#include "tests/error_of.h"

#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#endif

namespace tensor::cuda {
namespace {

class RunTimeCompiler : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
    compiler_ = &Compiler::get();
  }
  const Compiler* compiler_ = nullptr;
};

TEST(Trouble, IsWhatPtxasReports) {
  const auto log = [](const std::string& memory, const std::string& more = "") {
    return "ptxas info    : Function properties for k\nptxas         .     " + memory +
           "\nptxas info    : Used 40 registers, used 0 barriers\n" + more;
  };
  const std::string clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
  EXPECT_EQ(trouble(log(clean)), "");
  EXPECT_EQ(trouble(log(clean) + log(clean)), "");
  EXPECT_TRUE(trouble("").starts_with("no line of ptxas"));
  EXPECT_TRUE(trouble(log("")).starts_with("no line of ptxas"));
  const std::string stores = "40 bytes stack frame, 40 bytes spill stores, 0 bytes spill loads",
                    loads = "0 bytes stack frame, 0 bytes spill stores, 20 bytes spill loads",
                    frame = "10 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
  EXPECT_TRUE(trouble(log(stores)).starts_with("registers spill"));
  EXPECT_TRUE(trouble(log(loads)).starts_with("registers spill"));
  EXPECT_TRUE(trouble(log(frame)).starts_with("variables lie in memory"));
  EXPECT_TRUE(trouble(log(clean) + log(stores)).starts_with("registers spill"));
  EXPECT_EQ(trouble(log(stores), 40), "");
  EXPECT_TRUE(trouble(log(stores), 39).starts_with("registers spill"));
  const std::string serialized =
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized\n";
  EXPECT_TRUE(trouble(log(clean, serialized)).starts_with("the compiler changed"));
  EXPECT_EQ(trouble(log(clean, "ptxas info    : Function properties for k_0C7510a\n")), "");
}

const KernelSource kAdd = {
    "add.cu",
    "#include \"twice.h\"\n"
    "extern \"C\" __global__ void add(float* x) { x[threadIdx.x] += twice(1.f); }\n",
    Headers::List{{"twice.h", "__device__ inline float twice(float x) { return 2 * x; }\n"}}};

TEST_F(RunTimeCompiler, CompilesForEveryArchitectureItKnows) {
  EXPECT_GE(compiler_->version(), 12000);
  ASSERT_FALSE(compiler_->architectures().empty());
  for (const int architecture : compiler_->architectures()) {
    const Cubin cubin = compiler_->compile(kAdd, "sm_" + std::to_string(architecture));
    ASSERT_GE(cubin.code.size(), 4u);
    EXPECT_EQ(std::memcmp(cubin.code.data(),
                          "\x7f"
                          "ELF",
                          4),
              0);
    EXPECT_NE(cubin.log.find("registers"), std::string::npos) << cubin.log;
  }
}

TEST_F(RunTimeCompiler, SaysWhatIsWrongAndWhere) {
  KernelSource wrong = kAdd;
  wrong.text += "__global__ void bad() { nothing = 1; }\n";
  try {
    compiler_->compile(wrong, "sm_80");
    FAIL() << "it compiled";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("add.cu: does not compile for sm_80 (")) << text;
    EXPECT_NE(text.find("add.cu(3)"), std::string::npos) << text;
    EXPECT_NE(text.find("\"nothing\" is undefined"), std::string::npos) << text;
  }
}

TEST_F(RunTimeCompiler, KeysTellEverythingApart) {
  std::vector<std::string> keys = {compiler_->key(kAdd, "sm_80"), compiler_->key(kAdd, "sm_90a")};
  const auto add = [&](auto change) {
    KernelSource source = kAdd;
    change(source);
    keys.push_back(compiler_->key(source, "sm_80"));
  };
  add([](KernelSource& s) { s.text += ' '; });
  add([](KernelSource& s) { s.name += '2'; });
  add([](KernelSource& s) { s.headers.edit()[0].second += ' '; });
  add([](KernelSource& s) { s.headers.edit()[0].first = "other.h"; });
  add([](KernelSource& s) { s.options = {"--use_fast_math"}; });
  // The same letters, cut in another place.
  add([](KernelSource& s) {
    auto& [name, text] = s.headers.edit()[0];
    name = "twice.h_", text.erase(0, 1);
  });
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
  EXPECT_EQ(compiler_->key(kAdd, "sm_80"), compiler_->key(kAdd, "sm_80"));
}

TEST(SharedLibraries, NameEverythingThatWasTried) {
  const std::string text = check::error_of([] {
    SharedLibrary("a library", {"libabsent.so.1", "/nowhere/libabsent.so"}, "bring one");
  });
  EXPECT_TRUE(text.starts_with("a library: cannot be opened (libabsent.so.1: ")) << text;
  EXPECT_NE(text.find("; /nowhere/libabsent.so: "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("): bring one")) << text;
}

TEST(SharedLibraries, NameAFunctionThatIsMissing) {
  const SharedLibrary library("the C library", {"libc.so.6"}, "");
  EXPECT_EQ(library.function<std::size_t(const char*)>("strlen")("four"), 4u);
  EXPECT_EQ(check::error_of([&] { library.function<void()>("no_such_function"); }),
            "libc.so.6: has no function no_such_function: it is too old, install a newer one");
}

#if __has_include(<nvrtc.h>)
// Our declarations are those of the toolkit: results are ints, programs are pointers.
static_assert(sizeof(nvrtcResult) == sizeof(int) && NVRTC_SUCCESS == 0);
static_assert(sizeof(nvrtcProgram) == sizeof(void*));
static_assert(
    std::is_same_v<decltype(&nvrtcGetCUBINSize), nvrtcResult (*)(nvrtcProgram, std::size_t*)>);
static_assert(std::is_same_v<decltype(&nvrtcCompileProgram),
                             nvrtcResult (*)(nvrtcProgram, int, const char* const*)>);
#endif

}  // namespace
}  // namespace tensor::cuda
