// Programs of several devices, whose parts run on the CPU here: what is divided, and that a part
// gives what an executable of its size gives by itself.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <sstream>
#include <thread>

#include "src/compile.h"
#include "src/runtime/crew.h"
#include "src/runtime/parts.h"
#include "src/runtime/program.h"
#include "tensor/plan.h"
#include "tensor/tensor.h"
#include "tensor/tune.h"
#include "tests/error_of.h"
#include "tests/runtime/many_sizes.h"

namespace tn = tensor;
using tn::Tensor;
using tn::check::error_of;
using Tensors = std::vector<Tensor>;
using many_sizes::same_bits;

namespace {

using Types = std::vector<tn::TensorType>;

Types types_of(const Tensors& inputs) {
  Types types;
  for (const Tensor& x : inputs) types.push_back(x.type());
  return types;
}

class PartsOfCpus : public ::testing::Test {
 protected:
  static constexpr std::size_t kTable = 1;  // an input that is no batch

  Tensors inputs(std::int64_t items) {
    return {random_.normal({items, 64}), random_.normal({64, 32}), random_.normal({items, 32}),
            random_.normal({})};
  }
  // Two outputs, one of which has two rows for every item.
  Tensors function(const Tensors& in) const {
    const Tensor rows = relu(matmul(in[0], weight_)) * in[3];
    return {softmax(rows.reshape({-1, 64}), -1), matmul(in[0], in[kTable]) + in[2]};
  }
  tn::Executable compiled(const Types& types, const tn::CompileOptions& options) const {
    return tn::compile([this](const Tensors& in) { return function(in); }, types, options);
  }
  // On so many "devices".
  tn::Executable divided(const Types& types, std::size_t devices) const {
    const tn::CompileOptions options{.sharing = tn::Sharing()};
    return tn::Executable(tn::detail::program_of(
        tn::detail::divide(types, std::vector<tn::Device>(devices), {kTable}),
        [&](const tn::detail::Division::Piece& piece) {
          return tn::detail::compile_until(
                     tn::detail::Until::linked, [this](const Tensors& in) { return function(in); },
                     piece.inputs, options, tn::detail::target_of(piece.device, 1))
              .program;
        }));
  }
  // Each part compiled and run by itself, after the other.
  Tensors one_by_one(const Tensors& in, const std::vector<std::int64_t>& counts) const {
    std::vector<Tensors> parts(2);
    const tn::CompileOptions options{.threads = 1, .sharing = tn::Sharing()};
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      const auto of = [&](const Tensor& x) { return x(tn::slice(begin, begin + count)); };
      const Tensors own = {of(in[0]), in[1], of(in[2]), in[3]};
      const Tensors out = compiled(types_of(own), options)(own);
      for (std::size_t i = 0; i < out.size(); ++i) parts[i].push_back(out[i]);
      begin += count;
    }
    return {tn::concatenate(parts[0], 0), tn::concatenate(parts[1], 0)};
  }

  tn::Generator random_{11};
  const Tensor weight_ = random_.normal({64, 128});
};

TEST_F(PartsOfCpus, GiveTheBitsOfAnExecutableEach) {
  for (const auto& [items, counts] : std::vector<std::pair<int, std::vector<std::int64_t>>>{
           {4, {2, 2}}, {5, {3, 2}}, {2, {1, 1}}, {7, {3, 2, 2}}}) {
    const Tensors in = inputs(items);
    const tn::Executable f = divided(types_of(in), counts.size());
    EXPECT_EQ(f.input_types(), types_of(in));
    const Tensors want = one_by_one(in, counts);
    EXPECT_EQ(f.output_types(), types_of(want)) << items;
    EXPECT_TRUE(same_bits(f(in), want)) << items;
    Tensors out = {tn::empty(want[0].shape()), tn::empty(want[1].shape())};
    const std::byte* const place = std::as_bytes(out[0].span<float>()).data();
    f.run(in, out);
    EXPECT_TRUE(same_bits(out, want)) << items;
    EXPECT_EQ(std::as_bytes(out[0].span<float>()).data(), place);
  }
}

TEST_F(PartsOfCpus, AreFewerThanDevicesInSmallBatches) {
  const Tensors in = inputs(1);
  const tn::Executable f = divided(types_of(in), 3);
  EXPECT_FALSE(f.program().parts);
  EXPECT_TRUE(same_bits(f(in), one_by_one(in, {1})));
  EXPECT_EQ(divided(types_of(inputs(2)), 3).memory_by_device().size(), 2u);
}

TEST_F(PartsOfCpus, TakeInputsOfAnyStrides) {
  const Tensors in = inputs(5);
  Tensors turned = in;
  turned[0] = tn::transpose(tn::transpose(in[0]).copy());
  turned[2] = tn::broadcast_to(in[2](tn::slice(0, 1)), {5, 32});
  const tn::Executable f = divided(types_of(in), 2);
  EXPECT_TRUE(same_bits(f(turned), f({in[0], in[1], turned[2].copy(), in[3]})));
}

TEST_F(PartsOfCpus, RunForManyCallersAtATime) {
  const Tensors in = inputs(6);
  const tn::Executable f = divided(types_of(in), 3);
  const Tensors want = f(in);
  std::vector<int> same(4, 0);
  {
    std::vector<std::jthread> callers;
    for (int& mine : same)
      callers.emplace_back([&f, &in, &want, &mine] {
        for (int i = 0; i < 20; ++i) mine += same_bits(f(in), want);
      });
  }
  EXPECT_EQ(same, std::vector<int>(4, 20));
}

TEST_F(PartsOfCpus, AreVerifiedTimedAndReportedEach) {
  const Tensors in = inputs(5);
  const tn::Executable f = divided(types_of(in), 2);
  const std::vector<tn::GroupCheck> checks = tn::verify(f, in);
  EXPECT_EQ(checks.size(), 2 * f.group_count());
  for (const tn::GroupCheck& check : checks) EXPECT_TRUE(check.ok()) << check.kernel;
  EXPECT_EQ(f.time(in, 3).size(), 3u);
  std::ostringstream report;
  f.report(report, in, 1);
  EXPECT_NE(report.str().find("cpu, items 0 to 2 of 5\n"), std::string::npos) << report.str();
  EXPECT_NE(report.str().find("cpu, items 3 to 4 of 5\n      memory "), std::string::npos);
  const auto each = f.memory_by_device();
  ASSERT_EQ(each.size(), 2u);
  EXPECT_EQ(f.device_memory().weights, each[0].second.weights + each[1].second.weights);
  EXPECT_GT(each[0].second.weights, 0);
}

TEST_F(PartsOfCpus, CheckTheirCalls) {
  const Tensors in = inputs(4);
  const tn::Executable f = divided(types_of(in), 2);
  EXPECT_EQ(error_of([&] { f(inputs(5)); }),
            "run: input 0 is f32(5, 64), this executable was compiled for f32(4, 64): compile it "
            "again for other types");
  Tensors out = f(in);
  out[1] = in[2];
  EXPECT_EQ(error_of([&] { f.run(in, out); }),
            "run: output 1 lies in the memory of input 2, need memory of its own: use "
            "empty(shape, dtype)");
}

TEST_F(PartsOfCpus, AreSizesOfPlans) {
  const Tensors in = inputs(5);
  const tn::Executable f = divided(types_of(in), 2);
  tn::Plan plan;
  EXPECT_TRUE(plan.add(f));
  EXPECT_FALSE(plan.add(f));
  const auto sizes = plan.sizes();
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[0][0].shape, (tn::Shape{3, 64}));
  EXPECT_EQ(sizes[1][0].shape, (tn::Shape{2, 64}));
  EXPECT_TRUE(plan.holds(sizes[0]));
  EXPECT_FALSE(plan.holds(types_of(in)));
}

TEST_F(PartsOfCpus, MustHaveOneBatchInAndOut) {
  const std::vector<tn::Device> two(2);
  const tn::TensorType rows{{4, 2}, tn::f32}, more{{6, 2}, tn::f32}, number{{}, tn::f32};
  EXPECT_EQ(error_of([&] {
              tn::detail::divide({rows, number, more}, two, {});
            }),
            "compile: input 0 is f32(4, 2), input 2 is f32(6, 2), need one batch, axis 0, of all "
            "inputs for several devices: name those that are no batches in whole_inputs");
  EXPECT_EQ(error_of([&] {
              tn::detail::divide({rows, more}, two, {2});
            }),
            "compile: got input 2 among whole_inputs, need one of 2, which count from 0");
  EXPECT_EQ(error_of([&] {
              tn::detail::divide({number, rows}, two, {1});
            }),
            "compile: got no input with a batch, need one to divide it among cpu and cpu: compile "
            "for one device");
  const auto outputs = [&](const tn::TensorFunction& function) {
    return error_of([&] {
      tn::detail::program_of(tn::detail::divide({rows}, two, {}), [&](const auto& piece) {
        return tn::detail::compile_until(tn::detail::Until::linked, function, piece.inputs, {},
                                         tn::detail::target_of(piece.device, 1))
            .program;
      });
    });
  };
  EXPECT_EQ(outputs([](const Tensors& x) -> Tensors {
              return {x[0], sum(x[0])};
            }),
            "compile: output 1 is f32() for 2 of 4 items, need axis 0 to count them for several "
            "devices: leave it out, or compile for one device");
}

// What users give.
TEST(SeveralDevices, AreDifferentGpus) {
  const Types rows = {{{4, 2}, tn::f32}};
  const auto error = [&](const tn::CompileOptions& options) {
    return error_of([&] {
      tn::compile([](const Tensors& x) -> Tensors { return {x[0] * 2}; }, rows, options);
    });
  };
  EXPECT_EQ(error({.devices = {"cpu", "cuda"}}),
            "compile: got devices cpu and cuda:0, need GPUs alone, such as cuda:0 and cuda:1: the "
            "CPU divides its work among threads, and is too slow beside a GPU");
  EXPECT_EQ(error({.devices = {"cuda", "cuda:1", "cuda:0"}}),
            "compile: got devices cuda:0, cuda:1 and cuda:0, need each once");
  EXPECT_EQ(error({.device = "cuda:1", .devices = {"cuda:0", "cuda:1"}}),
            "compile: got device cuda:1 and devices cuda:0 and cuda:1, need one of the two: leave "
            "device out");
  EXPECT_EQ(error({.devices = {"cpu"}}), "no error");
  EXPECT_EQ(error_of([&] {
              tn::tune([](const Tensors& x) -> Tensors { return {x[0] * 2}; }, rows,
                       {.devices = {"cuda:0", "cuda:1"}});
            }),
            "tune: got 2 devices, need one, in device: what is measured on a GPU counts for all of "
            "its model. Tune for inputs as large as the part of one");
}

TEST(Crew, RunsAllPiecesAtTheSameTime) {
  tn::detail::Crew crew;
  for (const std::size_t count : {3u, 1u, 4u}) {
    std::mutex mutex;
    std::condition_variable all_are_here;
    std::size_t here = 0;
    crew.run(count, [&](std::size_t) {
      std::unique_lock lock(mutex);
      ++here;
      all_are_here.notify_all();
      all_are_here.wait(lock, [&] { return here == count; });
    });
    EXPECT_EQ(here, count);
  }
}

TEST(Crew, ThrowsTheFirstErrorWhenAllHaveEnded) {
  tn::detail::Crew crew;
  std::atomic<int> ended = 0;
  const auto work = [&](std::size_t i) {
    ++ended;
    if (i > 0) tn::fail("piece", std::to_string(i));
  };
  EXPECT_EQ(error_of([&] { crew.run(4, work); }), "piece: 1");
  EXPECT_EQ(ended, 4);
  crew.run(4, [&](std::size_t) { ++ended; });
  EXPECT_EQ(ended, 8);
}

// A child has none of its parent's threads, and makes its own.
TEST(Crew, WorksInChildren) {
  std::optional<tn::detail::Crew> crew(std::in_place);
  std::atomic<int> ran = 0;
  const auto work = [&](std::size_t) { ++ran; };
  crew->run(3, work);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    crew->run(3, work);
    crew.reset();
    ::_exit(ran == 6 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
