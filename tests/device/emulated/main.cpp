// device_tests: the cases of tests/device on pretended GPUs.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cuda/emulator/driver.h"

namespace {

// Every case fails that did what a driver does not promise to bear.
class Complaints : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override {
    EXPECT_EQ(tensor::emulator::driver_complaints(), "");
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ::setenv("TENSOR_CACHE_DIR", (testing::TempDir() + "tensor_emulated_kernels").c_str(), 1);
  constexpr std::int64_t kSmall = 64 << 20, kLarge = 1 << 30;
  tensor::emulator::install_driver({{90, kSmall}, {80, kSmall}, {90, kLarge}});
  testing::UnitTest::GetInstance()->listeners().Append(new Complaints);
  return RUN_ALL_TESTS();
}
