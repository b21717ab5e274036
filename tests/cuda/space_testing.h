// What tests of spaces share: schedules drawn at random, and what must hold of every space and of
// the kernels that its schedules stand for.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/kernels/cuda/family.h"
#include "src/trace/isolate.h"
#include "tensor/error.h"
#include "tensor/tensor.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/families.h"

namespace tensor::cuda {

/// Why a sketch's schedule is not tried.
inline std::string fault(const Space& space, const std::string& text) {
  const Schedule schedule = Schedule::parse(text);
  EXPECT_TRUE(std::any_of(space.sketches.begin(), space.sketches.end(), [&](const Sketch& s) {
    return s.contains(schedule);
  })) << text;
  return space.fault(schedule);
}

inline std::set<std::string> sketches_of(const Space& space) {
  std::set<std::string> names;
  for (const Sketch& sketch : space.sketches) names.insert(sketch.name);
  return names;
}

/// `count` valid schedules of every sketch, drawn evenly.
inline std::vector<Schedule> drawn(const Space& space, std::size_t count, std::mt19937& random) {
  std::map<std::string, std::vector<Schedule>> by_sketch;
  for (Schedule& s : space.all()) by_sketch[s.sketch].push_back(std::move(s));
  std::vector<Schedule> result;
  for (auto& [name, schedules] : by_sketch) {
    std::shuffle(schedules.begin(), schedules.end(), random);
    schedules.resize(std::min(schedules.size(), count));
    result.insert(result.end(), schedules.begin(), schedules.end());
  }
  return result;
}

/// How many of every sketch are compiled: TENSOR_MORE_SCHEDULES, or 0.
inline std::size_t more_schedules() {
  const char* more = std::getenv("TENSOR_MORE_SCHEDULES");
  return more ? static_cast<std::size_t>(std::atoi(more)) : 0;
}

inline Lowered lower_with(const Family& family, const LaidOutGraph& laid, Group group,
                          const std::string& schedule, const Machine& machine) {
  group.schedule = schedule;
  return built_by(family, laid, group, machine);
}

inline std::string entries_of(const Lowered& lowered) {
  std::string entries;
  for (const Call& call : lowered.calls) entries += call.entry + '\n';
  return entries;
}

/// Level 0 is one of its schedules, and features are finite numbers that tell schedules apart.
inline void expect_sound(const Space& space, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_TRUE(space.has(space.chosen)) << space.chosen.text() << ": " << space.fault(space.chosen);
  const std::vector<float> chosen = space.features(space.chosen);
  EXPECT_EQ(chosen.size(), feature_names().size());
  std::set<std::vector<float>> seen;
  const std::vector<Schedule> all = space.all();
  for (const Schedule& s : all) {
    const std::vector<float> features = space.features(s);
    ASSERT_EQ(features.size(), chosen.size());
    for (std::size_t i = 0; i < features.size(); ++i)
      ASSERT_TRUE(std::isfinite(features[i])) << feature_names()[i] << " of " << s.text();
    EXPECT_TRUE(seen.insert(features).second) << s.text() << " looks like another one";
    EXPECT_GT(space.model_us(s), 0) << s.text();
  }
  EXPECT_EQ(static_cast<std::int64_t>(all.size()), space.size());
}

/// A group of one family.
struct Sample {
  std::string name;
  const Family* family = nullptr;
  TensorFunction function;
  std::vector<Tensor> inputs;
  int processors = 132;  // of the machine: with few, small problems have several rounds of tiles
  int capability = 90;
  Graph (*pass)(const Graph&) = nullptr;

  Machine machine() const {
    Machine machine = machine_of(typical_device(capability));
    machine.device.multiprocessors = processors;
    return machine;
  }
};

inline Tensor random_tensor(const Shape& shape, DType dtype, int seed) {
  Generator random(static_cast<std::uint64_t>(seed));
  return random.normal(shape, 0, 0.5).astype(dtype);
}

/// Attention as a product, a softmax and a product, and queries, keys and values of two heads.
inline std::vector<Tensor> attention(const std::vector<Tensor>& in) {
  const Tensor scores = matmul(in[0], swapaxes(in[1], -1, -2)).astype(f32) * 0.125;
  return {matmul(softmax(scores, -1).astype(in[2].dtype()), in[2])};
}
inline std::vector<Tensor> heads(std::int64_t queries, std::int64_t keys, DType dtype) {
  return {random_tensor({1, 2, queries, 64}, dtype, 3), random_tensor({1, 2, keys, 64}, dtype, 4),
          random_tensor({1, 2, keys, 64}, dtype, 5)};
}

/// The sample's space is sound, and `count` schedules of every sketch are right on the emulator.
inline void expect_right_at_random(const Sample& sample, std::size_t count, std::mt19937& random) {
  emulator::GroupCase group(sample.function, sample.inputs, nullptr, sample.pass);
  const Machine machine = sample.machine();
  const auto space = space_of(*sample.family, group.laid(), group.group(), machine);
  ASSERT_TRUE(space) << sample.name;
  expect_sound(*space, sample.name);
  const auto kernels = [&](const std::string& schedule) {
    return entries_of(lower_with(*sample.family, group.laid(), group.group(), schedule, machine));
  };
  const std::string level0 = kernels("");
  EXPECT_EQ(kernels(space->chosen.text()), level0) << sample.name;
  for (const Schedule& s : drawn(*space, count, random)) {
    SCOPED_TRACE(sample.name + ": " + s.text());
    if (!(s == space->chosen)) {
      EXPECT_NE(kernels(s.text()), level0) << "fell back";
    }
    emulator::expect_emulated(
        group,
        [&](const LaidOutGraph& laid, const Group& of, const Machine&) {
          return lower_with(*sample.family, laid, of, s.text(), machine);
        },
        sample.capability);
    if (::testing::Test::HasFailure()) return;
  }
}

/// Texts of schedules that the sample does not have are as if there were none; other texts are
/// errors.
inline void expect_falls_back(const Sample& sample) {
  emulator::GroupCase group(sample.function, sample.inputs, nullptr, sample.pass);
  const auto kernels = [&](const std::string& schedule) {
    return entries_of(
        lower_with(*sample.family, group.laid(), group.group(), schedule, sample.machine()));
  };
  for (const char* other :
       {"swapped tokens=1000 groups=1 blocks=1 stages=2 late=0", "online groups=1 block=8 stages=2",
        "window_mma pixels=48", "of_another_gpu width=3"})
    EXPECT_EQ(kernels(other), kernels("")) << sample.name;
  EXPECT_THROW(kernels("no schedule at all"), UserError);
}

/// The kernels of a schedule have registers enough: at most so many bytes are spilled.
inline void expect_compiles(const Family& family, const Isolated& alone, const Schedule& schedule,
                            const Machine& machine, int spilled = 0) {
  SCOPED_TRACE(schedule.text());
  const Lowered lowered = lower_with(family, alone.laid, alone.group, schedule.text(), machine);
  for (const Call& call : lowered.calls)
    expect_no_trouble(call.source, machine.device.architecture(), spilled);
}

}  // namespace tensor::cuda
