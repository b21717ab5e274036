// The files of the time models' constants: read strictly, one for each GPU model, and what they say
// agrees with the logs that ship with the library.
#include "src/kernels/cuda/time_model.h"

#include <gtest/gtest.h>

#include <set>

#include "src/kernels/cuda/machine.h"
#include "tests/error_of.h"

namespace tensor::cuda {
namespace {

using check::error_of;

std::string_view file(std::string_view name) {
  for (const auto& [known, text] : time_model_files())
    if (known == name) return text;
  return {};
}

TEST(TimeModels, HaveAFileForEachKnownGpuAndATypicalOne) {
  std::set<std::string_view> names;
  for (const auto& [name, text] : time_model_files()) {
    names.insert(name);
    EXPECT_EQ(time_model_text(parse_time_model(text, name), text), text) << name;
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"h100.txt", "h200.txt", "typical.txt"}));
  const auto text_of = [](std::string_view gpu) {
    return time_model_text(time_model_of(gpu), file("h200.txt"));
  };
  EXPECT_EQ(&time_model_of("NVIDIA H200"), &time_model_of("H200"));
  EXPECT_EQ(text_of("NVIDIA H200"), file("h200.txt"));
  EXPECT_NE(&time_model_of("NVIDIA H100 80GB HBM3"), &time_model_of("NVIDIA H200"));
  EXPECT_EQ(&time_model_of("NVIDIA GH200 480GB"), &time_model_of("Tesla T4"));
  EXPECT_EQ(&time_model_of(""), &time_model_of("typical"));
}

TEST(TimeModels, NamesAreUniqueAndEachIsAConstantOfItsOwn) {
  std::set<std::string_view> names;
  std::set<const double*> places;
  TimeModel model;
  for (const TimeParameter& parameter : time_parameters()) {
    names.insert(parameter.name);
    places.insert(&parameter.of(model));
  }
  EXPECT_EQ(names.size(), time_parameters().size());
  EXPECT_EQ(places.size(), time_parameters().size());
  EXPECT_EQ(sizeof(TimeModel), places.size() * sizeof(double)) << "a constant has no name";
}

TEST(TimeModels, FollowWhatIsWritten) {
  TimeModel model = time_model_of("H200");
  model.rates.overlapped_launch_us = 3, model.rates.cached_share = 0.25;
  const Machine machine = machine_of(typical_device(90), model);
  EXPECT_EQ(machine.launch_us, 3);
  EXPECT_FALSE(is_cached(machine, 0.3 * static_cast<double>(machine.device.l2_bytes)));
  EXPECT_TRUE(time_model_text(model, "rates.cached_share 1  # why\n") ==
              "rates.cached_share 0.25  # why\n");
}

TEST(TimeModels, Errors) {
  const std::string whole(file("typical.txt"));
  const auto refused = [](const std::string& text) {
    return error_of([&] { parse_time_model(text, "mine.txt"); });
  };
  const std::string need =
      "need the name of a constant (src/kernels/cuda/time_model.h) and a "
      "number above 0";
  for (const std::string line :
       {"gemm_sm90.arival 3", "gemm_sm90.arrival", "gemm_sm90.arrival x", "gemm_sm90.arrival 0",
        "gemm_sm90.arrival -1", "gemm_sm90.arrival nan", "gemm_sm90.arrival 3 4"})
    EXPECT_EQ(refused("# a comment\n" + line + "# why\n" + whole),
              "mine.txt: got \"" + line + "\" in line 2, " + need);
  EXPECT_EQ(refused("rates.arrival 3\nrates.arrival 3"),
            "mine.txt: got rates.arrival again in line 2: each constant has "
            "one line");
  EXPECT_EQ(refused("# nothing\n"),
            "mine.txt: got no rates.clock_share, need "
            "a line for each constant: typical.txt has "
            "all");
}

}  // namespace
}  // namespace tensor::cuda
