// What a processor is called in logs.
#include <gtest/gtest.h>

#include "src/runtime/target.h"
#include "tests/temporary_folder.h"

namespace tensor::detail {
namespace {

TEST(Processor, IsToldApartByNameOrPart) {
  const check::TemporaryFolder folder;
  const auto named = [&](const std::string& text) {
    folder.write("cpuinfo", text);
    return processor_of((folder / "cpuinfo").c_str());
  };
  EXPECT_EQ(named("processor\t: 0\nmodel name\t: AMD EPYC 9R45\nflags\t\t: fpu\n"),
            "AMD EPYC 9R45");
  const std::string arm =
      "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: ";
  EXPECT_EQ(named(arm + "0xd4f\n"), "cpu 0x41 part 0xd4f");
  EXPECT_EQ(named(arm + "0xd40\n"), "cpu 0x41 part 0xd40");
  EXPECT_EQ(named("processor\t: 0\n"), "cpu");
  EXPECT_EQ(processor_of((folder / "missing").c_str()), "cpu");
}

}  // namespace
}  // namespace tensor::detail
