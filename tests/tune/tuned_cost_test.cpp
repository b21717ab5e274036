// What plans take from logs: on the plans of GPUs as their data sheets describe them.
#include "src/tune/tuned_cost.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "src/compile.h"
#include "src/kernels/cuda/family.h"
#include "src/trace/isolate.h"
#include "src/trace/parallel.h"
#include "tensor/tensor.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

detail::Target gpu(int capability) { return detail::cuda_target(cuda::typical_device(capability)); }

// Two products, one after the other.
LaidOutGraph network(DType dtype, const detail::Target& target) {
  const Tensor first = Generator(1).normal({384, 1536}), second = Generator(2).normal({1536, 384});
  return detail::prepare(
             [&](const std::vector<Tensor>& in) {
               return std::vector{matmul(gelu(matmul(in[0], first)), second)};
             },
             {{{197, 384}, f32}}, {.dtype = dtype}, target)
      .laid;
}

// A line of the log: the group of the plan took so long, run so.
Measurement line(const detail::Target& target, const Graph& graph, const Group& group,
                 const std::string& schedule, double microseconds) {
  Measurement m;
  m.problem = problem_text(graph, group);
  m.family = target.offers->name(group.family);
  m.schedule = schedule;
  m.device = target.tuned_as;
  m.version = "1.0.0";
  m.microseconds = {microseconds};
  return m;
}

// Of every group that has a choice the last `count` schedules of its space, each faster than the
// one before; all of them faster than estimated.
std::vector<Measurement> log_of(const LaidOutGraph& laid, const detail::Target& target,
                                std::size_t count = 1) {
  std::vector<Measurement> log;
  for (const Group& group : fuse(propose_parallel(laid), target.cost()).groups) {
    const auto space = space_of(target, laid, group, group.family);
    if (!space) continue;
    const std::vector<Schedule> all = space->all();
    for (std::size_t i = 0; i < count; ++i)
      log.push_back(line(target, laid.graph, group, all.at(all.size() - count + i).text(),
                         group.microseconds * (0.5 - 0.1 * static_cast<double>(i))));
  }
  return log;
}

FusionPlan plan_of(const LaidOutGraph& laid, const detail::Target& target,
                   const std::vector<Measurement>& log) {
  return tuned_fusion(propose_parallel(laid), target, std::make_shared<const Table>(log));
}

// How many groups of the plan are run as one of the log's lines says, and take as long.
std::size_t taken(const FusionPlan& plan, const detail::Target& target,
                  const std::vector<Measurement>& log) {
  std::size_t count = 0;
  for (const Group& group : plan.groups)
    count += std::any_of(log.begin(), log.end(), [&](const Measurement& m) {
      return target.offers->name(group.family) == m.family && group.schedule == m.schedule &&
             group.microseconds == median(m.microseconds);
    });
  return count;
}

// What a log may say that this build cannot run, all of it faster than what it can.
std::vector<Measurement> stale(const Measurement& good) {
  std::vector<Measurement> lines(5, good);
  lines[0].schedule = "no schedule!";
  lines[1].schedule = "forgotten rows=3";  // no such sketch
  lines[2].schedule += " more=1";
  const std::size_t number = good.schedule.find_last_of('=') + 1;
  lines[3].schedule = good.schedule.substr(0, number) + "12345";
  lines[4].family = "forgotten";
  for (Measurement& m : lines) m.microseconds[0] /= 2;
  return lines;
}

TEST(StaleLogs, GiveTheNextBestScheduleThatThereIs) {
  for (const detail::Target& target :
       {gpu(90), gpu(75), detail::cpu_target(cpu::this_machine(2))}) {
    const LaidOutGraph laid = network(bf16, target);
    const std::vector<Measurement> good = log_of(laid, target);
    ASSERT_FALSE(good.empty());
    std::vector<Measurement> log = good, bad;
    for (const Measurement& m : good)
      for (const Measurement& line : stale(m)) bad.push_back(line);
    log.insert(log.end(), bad.begin(), bad.end());
    EXPECT_EQ(taken(plan_of(laid, target, log), target, good), good.size()) << target.name;
    // Nothing else: as if there were no log.
    const FusionPlan plan = plan_of(laid, target, bad),
                     want = fuse(propose_parallel(laid), target.cost());
    EXPECT_EQ(plan.microseconds, want.microseconds);
    ASSERT_EQ(plan.groups.size(), want.groups.size());
    for (std::size_t i = 0; i < plan.groups.size(); ++i)
      EXPECT_EQ(plan.groups[i].schedule, want.groups[i].schedule);
  }
}

// What a size that was not measured takes from one that was, a few rows smaller.
TEST(Neighbours, GiveSchedulesThatLoseLittle) {
  const detail::Target target = gpu(90);
  const auto rows = [&](std::int64_t count) {
    const Tensor weight = Generator(1).normal({384, 1536});
    return detail::prepare(
               [&](const std::vector<Tensor>& in) { return std::vector{matmul(in[0], weight)}; },
               {{{count, 384}, f32}}, {.dtype = f16}, target)
        .laid;
  };
  const LaidOutGraph measured = rows(190), other = rows(197);
  const auto product_in = [&](const LaidOutGraph& laid, const FusionPlan& plan) {
    return *std::find_if(plan.groups.begin(), plan.groups.end(), [&](const Group& group) {
      return laid.graph.is_op(group.nodes.back(), Op::matmul) || group.nodes.size() > 1;
    });
  };
  const FusionPlan plan = fuse(propose_parallel(measured), target.cost());
  const Group product = product_in(measured, plan);
  const auto space = space_of(target, other, product, product.family);
  ASSERT_TRUE(space);
  const double least = space->model_us(space->chosen);
  std::size_t near = 0, far = 0;
  for (const Schedule& schedule : space->all()) {
    const double loss = space->model_us(schedule) / least;
    if (schedule == space->chosen || (loss > 1.05 ? far : near)++ > 0) continue;
    const std::vector<Measurement> log = {
        line(target, measured.graph, product, schedule.text(), product.microseconds / 2)};
    const Group got = product_in(other, plan_of(other, target, log));
    EXPECT_EQ(got.schedule, loss > 1.05 ? "" : schedule.text());
  }
  EXPECT_GT(near, 0u);
  EXPECT_GT(far, 0u);
}

// A schedule whose numbers are all in the sketch, but not together: there is no such kernel.
TEST(StaleLogs, GiveNoScheduleThatHasAFault) {
  const detail::Target target = gpu(90);
  const LaidOutGraph laid = network(bf16, target);
  std::size_t faults = 0;
  for (const Group& group : fuse(propose_parallel(laid), target.cost()).groups) {
    const auto space = space_of(target, laid, group, group.family);
    if (!space) continue;
    for (const Sketch& sketch : space->sketches)
      for (std::int64_t i = 0; i < sketch.combinations(); ++i) {
        if (space->fault(sketch.at(i)).empty()) continue;
        const std::vector<Measurement> log = {
            line(target, laid.graph, group, sketch.at(i).text(), group.microseconds / 2)};
        EXPECT_EQ(taken(plan_of(laid, target, log), target, log), 0u) << sketch.at(i).text();
        ++faults;
        break;  // one of each sketch
      }
  }
  EXPECT_GT(faults, 0u);
}

TEST(StaleLogs, LeaveProgramsAsTheyAre) {
  const detail::Target target = detail::cpu_target(cpu::this_machine(2));
  const Tensor weight = Generator(3).normal({96, 64}), x = Generator(4).normal({50, 96});
  const TensorFunction f = [=](const std::vector<Tensor>& in) {
    return std::vector{relu(matmul(in[0], weight))};
  };
  const LaidOutGraph laid = detail::prepare(f, {x.type()}, {}, target).laid;
  const std::vector<Measurement> good = log_of(laid, target);
  ASSERT_FALSE(good.empty());
  const check::TemporaryFolder folder;
  const std::string path = folder / "stale.jsonl";
  for (const Measurement& line : stale(good[0])) {
    std::filesystem::remove(path);
    Log(path).append(line);
    const Executable program = compile(f, std::vector{x.type()},
                                       {.threads = 2, .tune_logs = std::vector<std::string>{path}});
    EXPECT_LT(max(abs(program({x})[0] - f({x})[0])).item<float>(), 1e-4) << line.schedule;
  }
}

// A kernel that gave wrong results is no part of a plan while there is another way; of a group with
// many schedules those that were not tried remain, once one of them has a time.
TEST(FailedKernels, AreAvoided) {
  const detail::Target target = gpu(90);
  const LaidOutGraph laid = network(f16, target);
  std::vector<Measurement> log;
  for (const Group& group : fuse(propose_parallel(laid), target.cost()).groups) {
    if (group.nodes.size() < 2) continue;
    const auto space = space_of(target, laid, group, group.family);
    Measurement m = line(target, laid.graph, group, space ? space->chosen.text() : "", 1);
    m.microseconds.clear(), m.error = "wrong result";
    log.push_back(m);
  }
  ASSERT_FALSE(log.empty());
  for (const Group& group : plan_of(laid, target, log).groups)
    for (const Measurement& m : log) EXPECT_NE(problem_text(laid.graph, group), m.problem);
  // Another schedule works.
  for (Measurement m : std::vector<Measurement>(log)) {
    for (const Group& group : fuse(propose_parallel(laid), target.cost()).groups)
      if (problem_text(laid.graph, group) == m.problem) {
        const auto space = space_of(target, laid, group, group.family);
        if (!space) continue;
        m.error.clear(), m.microseconds = {group.microseconds / 2};
        const std::vector<Schedule> all = space->all();
        m.schedule = (all.front() == space->chosen ? all.back() : all.front()).text();
        log.push_back(m);
      }
  }
  std::size_t found = 0;
  for (const Group& group : plan_of(laid, target, log).groups)
    for (const Measurement& m : log)
      found += m.error.empty() && m.schedule == group.schedule &&
               problem_text(laid.graph, group) == m.problem;
  EXPECT_GT(found, 0u);
}

TEST(Twins, HaveTheOtherNarrowType) {
  const std::string problem =
      "%0 = f16(197, 768); %1 = constant bf16(768, 8); %2 = matmul(%0, %1); %3 = astype(%2, "
      "dtype=\"f32\"); %4 = f32(8,); %5 = add(%3, %4); %6 = astype(%5, dtype=\"f16\"); return %6";
  const std::string twin =
      "%0 = bf16(197, 768); %1 = constant f16(768, 8); %2 = matmul(%0, %1); %3 = astype(%2, "
      "dtype=\"f32\"); %4 = f32(8,); %5 = add(%3, %4); %6 = astype(%5, dtype=\"bf16\"); return %6";
  EXPECT_EQ(twin_text(problem), twin);
  EXPECT_EQ(twin_text(twin), problem);
  const std::string f32_only = "%0 = f32(16, 16); %1 = relu(%0); return %1";
  EXPECT_EQ(twin_text(f32_only), f32_only);

  const detail::Target target = gpu(90);
  const LaidOutGraph half = network(f16, target), brain = network(bf16, target);
  const FusionPlan plan = fuse(propose_parallel(half), target.cost()),
                   other = fuse(propose_parallel(brain), target.cost());
  ASSERT_EQ(plan.groups.size(), other.groups.size());
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    EXPECT_EQ(twin_text(problem_text(half.graph, plan.groups[i])),
              problem_text(brain.graph, other.groups[i]));
}

TEST(Twins, ServeEachOtherOnAGpu) {
  for (const int capability : {80, 90, 120}) {
    const detail::Target target = gpu(capability);
    for (const auto& [measured, wanted] : {std::pair(f16, bf16), {bf16, f16}}) {
      const auto log = log_of(network(measured, target), target);
      ASSERT_GE(log.size(), 2u);
      const LaidOutGraph laid = network(wanted, target);
      const FusionPlan untuned = fuse(propose_parallel(laid), target.cost()),
                       plan = plan_of(laid, target, log);
      EXPECT_EQ(taken(untuned, target, log), 0u);
      EXPECT_EQ(taken(plan, target, log), log.size()) << capability << " " << wanted;
      // Nothing else may run as the log says: of float32 there is no twin.
      const LaidOutGraph exact = network(f32, target);
      EXPECT_EQ(taken(plan_of(exact, target, log), target, log), 0u);
    }
  }
}

TEST(Twins, DoNotServeWhereOneIsSlower) {
  // Tensor Cores for f16 alone, and a CPU that has instructions for bf16 and none for f16.
  cpu::Machine machine = cpu::this_machine(2);
  machine.has_bf16 = true;
  for (const detail::Target& target : {gpu(75), detail::cpu_target(machine)}) {
    const LaidOutGraph laid = network(bf16, target);
    std::vector<Measurement> log = log_of(laid, target);
    ASSERT_FALSE(log.empty()) << target.name;
    EXPECT_EQ(taken(plan_of(laid, target, log), target, log), log.size()) << target.name;
    for (Measurement& m : log) m.problem = twin_text(m.problem);
    EXPECT_EQ(taken(plan_of(laid, target, log), target, log), 0u) << target.name;
  }
}

TEST(Twins, GiveWayToOwnMeasurements) {
  const detail::Target target = gpu(90);
  const LaidOutGraph laid = network(bf16, target);
  const std::vector<Measurement> twins = log_of(network(f16, target), target, 3);
  // The slowest of the three is the only one that was measured in this type, and slower still.
  std::vector<Measurement> own;
  for (std::size_t i = 0; i < twins.size(); i += 3) {
    own.push_back(twins[i]);
    own.back().problem = twin_text(own.back().problem);
    own.back().microseconds[0] *= 1.5;
  }
  std::vector<Measurement> log = twins;
  log.insert(log.end(), own.begin(), own.end());
  EXPECT_EQ(taken(plan_of(laid, target, log), target, own), own.size());
  std::reverse(log.begin(), log.end());
  EXPECT_EQ(taken(plan_of(laid, target, log), target, own), own.size());
}

TEST(Twins, LendNothingThatFailedInTheOtherType) {
  const detail::Target target = gpu(90);
  const LaidOutGraph laid = network(bf16, target);
  const std::vector<Measurement> twins = log_of(network(f16, target), target, 2);
  std::vector<Measurement> log = twins, second;
  for (std::size_t i = 0; i < twins.size(); i += 2) {
    second.push_back(twins[i]);
    Measurement failure = twins[i + 1];
    failure.problem = twin_text(failure.problem);
    failure.microseconds.clear();
    failure.error = "wrong result";
    log.push_back(failure);
  }
  EXPECT_EQ(taken(plan_of(laid, target, twins), target, second), 0u);
  EXPECT_EQ(taken(plan_of(laid, target, log), target, second), second.size());
}

// Choices by the whole model's time, too.
TEST(ShippedLogs, ServeBothNarrowTypes) {
  detail::Target target = gpu(90);
  target.tuned_as = "NVIDIA H200";
  std::vector<Measurement> shipped;
  for (const auto& [name, text] : shipped_logs()) {
    const LogContents log = parse_log(text, name);
    shipped.insert(shipped.end(), log.measurements.begin(), log.measurements.end());
  }
  const std::string vit = "vit-base-patch16-224";
  const LaidOutGraph half = nine::nine_models(nine::on_gpu(f16, 90)).at(vit)(),
                     brain = nine::nine_models(nine::on_gpu(bf16, 90)).at(vit)();
  const FusionPlan want = plan_of(half, target, shipped), plan = plan_of(brain, target, shipped);
  EXPECT_EQ(plan.microseconds, want.microseconds);
  ASSERT_EQ(plan.groups.size(), want.groups.size());
  std::size_t measured = 0;
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    EXPECT_EQ(plan.groups[i].nodes, want.groups[i].nodes);
    EXPECT_EQ(plan.groups[i].family, want.groups[i].family);
    EXPECT_EQ(plan.groups[i].schedule, want.groups[i].schedule);
    measured += !plan.groups[i].schedule.empty();
  }
  EXPECT_GT(measured, plan.groups.size() / 2);
}

// A log that is named takes the place of the user's own, not of those that ship.
TEST(KnownMeasurements, OfShippedLogsAndFiles) {
  const check::TemporaryFolder folder;
  const std::string path = folder / "log.jsonl";
  const detail::Target target = gpu(90);
  const std::vector<Measurement> own = log_of(network(f16, target), target);
  Log(path).append(own);
  using Names = std::vector<std::string>;
  const std::vector<Measurement> shipped = known_measurements(Names{kShippedLogs});
  ASSERT_GT(shipped.size(), 100u);
  EXPECT_TRUE(known_measurements(Names{}).empty());
  EXPECT_EQ(known_measurements(Names{path}), own);
  std::vector<Measurement> both = shipped;
  both.insert(both.end(), own.begin(), own.end());
  EXPECT_EQ(known_measurements(Names{kShippedLogs, path}), both);
  EXPECT_EQ(known_measurements(Names{path, kShippedLogs}), both);
  // A file that ships is of one device.
  EXPECT_EQ(known_measurements(Names{path, kShippedLogs}, "NVIDIA H200"), both);
  EXPECT_EQ(known_measurements(Names{path, kShippedLogs}, "another device"), own);
}

}  // namespace
}  // namespace tensor
