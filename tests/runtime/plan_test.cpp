// Plans of many sizes: weights once, in the file and in memory; from memory; and files that grow,
// also where several processes write, are killed, or have no room.
#include "tensor/plan.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "src/runtime/program.h"
#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/runtime/many_sizes.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;
using tn::Tensor;
using tn::check::error_of;
using tn::check::TemporaryFolder;
using namespace many_sizes;

namespace {

constexpr std::int64_t kWidth = 512;

// Products side by side, weights as they are and transposed, what is folded, and numbers of the
// size's own.
struct Layer {
  Tensor query, key, value, wide, scale;
  explicit Layer(std::uint64_t seed = 3) {
    tn::Generator random(seed);
    for (Tensor* x : {&query, &key, &value}) *x = random.normal({kWidth, 256}) * 0.05;
    wide = random.normal({768, 256}) * 0.05;
    scale = random.uniform({256}, 0.5, 2);
  }
  Tensors operator()(const Tensors& in) const {
    const Tensor& x = in[0];
    const Tensor place = tn::arange(x.shape(0)).astype(tn::f32).expand_dims(1) * 0.01;
    const Tensor q = tn::matmul(x, query), k = tn::matmul(x, key) * scale, v = tn::matmul(x, value);
    return {tn::gelu(tn::linear(q + k + v + place, wide))};
  }
};

tn::Executable compiled(const Layer& layer, std::int64_t count,
                        const tn::CompileOptions& options = {}) {
  return tn::compile([&](const Tensors& in) { return layer(in); }, rows(count), options);
}

std::int64_t bytes_of(const tn::Plan& plan) { return std::ssize(plan.bytes()); }

// ---- Many sizes

TEST(Plan, HoldsManySizesAndTheirWeightsOnce) {
  const Layer layer;
  for (const tn::DType dtype : {tn::f32, tn::bf16}) {
    const tn::Compiled f([&](const Tensors& in) { return layer(in); }, {.dtype = dtype});
    std::int64_t largest = 0;
    for (const std::int64_t count : {1, 2, 5, 64}) {
      tn::Plan single;
      single.add(f.executable(random_rows(count)));
      largest = std::max(largest, bytes_of(single));
    }
    const tn::Plan plan = f.plan();
    EXPECT_EQ(plan.sizes(), (std::vector<tn::Plan::Size>{rows(1), rows(2), rows(5), rows(64)}));
    EXPECT_LE(bytes_of(plan), largest + largest / 10);
    const TemporaryFolder folder;
    plan.save(folder / "plan");
    const tn::Compiled loaded(tn::Plan::load(folder / "plan"));
    for (const std::int64_t count : {5, 64, 1, 2}) {
      const Tensors in = random_rows(count), got = loaded(in);
      EXPECT_TRUE(same_bits(got, f(in))) << count;
      EXPECT_TRUE(same_bits(got, compiled(layer, count, {.dtype = dtype})(in))) << count;
    }
  }
}

TEST(Plan, SizesShareWeightsInMemoryLoadedAndCompiled) {
  const Layer layer;
  const auto function = [&](const Tensors& in) { return layer(in); };
  const TemporaryFolder folder;
  const tn::Compiled first(function);
  for (const std::int64_t count : {16, 24}) first.executable(random_rows(count));
  first.plan().save(folder / "plan");

  const tn::Compiled f(tn::Plan::load(folder / "plan"), function);
  const tn::Executable loaded = f.executable(random_rows(16));
  const auto there = derived_of(loaded);
  EXPECT_GE(there.size(), 2u);
  const std::int64_t alone = loaded.device_memory().own();
  for (const std::int64_t count : {24, 20}) {  // loaded, compiled
    const tn::Executable other = f.executable(random_rows(count));
    for (const auto* storage : derived_of(other)) EXPECT_TRUE(there.contains(storage)) << count;
    EXPECT_LT(other.device_memory().own(), alone / 2) << count;
    EXPECT_TRUE(same_bits(other(random_rows(count)), layer(random_rows(count))) ||
                tn::all(tn::abs(other(random_rows(count))[0] - layer(random_rows(count))[0]) < 1e-4)
                    .item<bool>());
  }
  EXPECT_EQ(f.plan().sizes().size(), 3u);
  // Another mapping of the same file, and what was compiled before it was loaded.
  const tn::Sharing sharing;
  const tn::Executable before = compiled(layer, 16, {.sharing = sharing});
  tn::Plan plan;
  plan.add(before);
  const auto made = derived_of(before);
  const tn::Plan again = tn::Plan::load(folder / "plan");
  const tn::Executable after = again.executable(rows(24), {.sharing = sharing});
  for (const auto* storage : derived_of(after)) EXPECT_TRUE(made.contains(storage));
}

TEST(Plan, ACompiledFunctionOfTensorsIsLoadedToo) {
  const Tensor weight = tn::Generator(1).normal({8, 8});
  const auto function = [=](const Tensor& x) { return tn::matmul(x, weight); };
  const auto f = tn::compile(function);
  const Tensor x = tn::ones({2, 8}), y = tn::ones({3, 8});
  const Tensor expected = f(x);
  const tn::CompiledFunction<Tensor, Tensor> loaded(f.plan());
  EXPECT_TRUE(tn::all(loaded(x) == expected).item<bool>());
  EXPECT_EQ(error_of([&] { loaded(y); }),
            "plan: has no executable for f32(3, 8), only for f32(2, 8): use one of these sizes, or "
            "compile the model for this one");
  const tn::CompiledFunction<Tensor, Tensor> both(f.plan(), function);
  EXPECT_TRUE(tn::all(tn::abs(both(y) - function(y)) < 1e-5).item<bool>());
  EXPECT_EQ(both.plan().sizes().size(), 2u);
}

TEST(Plan, LacksASize) {
  const Layer layer;
  const TemporaryFolder folder;
  const std::string path = folder / "plan";
  tn::Plan plan = tn::Plan::of({{"model", "mine"}});
  const std::string nothing = error_of([&] { plan.executable(rows(3)); });
  EXPECT_EQ(nothing,
            "plan: has no executable for f32(3, 512), only for nothing: use one of these sizes, or "
            "compile the model for this one");
  EXPECT_TRUE(plan.add(compiled(layer, 1), {{"name", "one"}}));
  EXPECT_TRUE(plan.add(compiled(layer, 2)));
  EXPECT_FALSE(plan.add(compiled(layer, 2)));
  plan.save(path);
  const tn::Plan loaded = tn::Plan::load(path);
  EXPECT_EQ(loaded.about(), (tn::Plan::About{{"model", "mine"}}));
  EXPECT_EQ(loaded.about(rows(1)), (tn::Plan::About{{"name", "one"}}));
  EXPECT_TRUE(loaded.about(rows(2)).empty());
  EXPECT_TRUE(loaded.holds(rows(2)));
  EXPECT_FALSE(loaded.holds(rows(3)));
  const std::string lacks = path +
                            ": has no executable for f32(3, 512), only for f32(1, 512); "
                            "f32(2, 512): use one of these sizes, or compile the model for "
                            "this one";
  const tn::Compiled f(loaded);
  EXPECT_EQ(error_of([&] { f(random_rows(3)); }), lacks);
  EXPECT_EQ(error_of([&] { loaded.about(rows(3)); }), lacks);
  EXPECT_EQ(error_of([&] { f.prepare({rows(3)}); }), lacks);
  EXPECT_EQ(error_of([&] { tn::load_executable(path); }),
            path +
                ": has 2 executables, for f32(1, 512); f32(2, 512), need one: take it from "
                "Plan::load(path), or give that to Compiled");
  tn::Plan().save(path);
  EXPECT_EQ(error_of([&] { tn::load_executable(path); }),
            path +
                ": has 0 executables, for nothing, need one: take it from Plan::load(path), or "
                "give that to Compiled");
}

TEST(Plan, IsOfOneKindAndAboutOneThing) {
  const Layer layer;
  for (const std::string entry : {"plan", "plan.0", "plan.x"}) {
    const std::string error = error_of([&] { tn::Plan::of({{entry, ""}}); });
    EXPECT_EQ(error,
              "Plan: the entry \"" + entry + "\" is the plan's own: give yours another name");
    EXPECT_EQ(error_of([&] { compiled(layer, 1).save("/nowhere", {{entry, ""}}); }), error);
  }
  tn::Plan plan;
  EXPECT_EQ(error_of([&] {
              plan.add(compiled(layer, 1), {{"name", "\xff"}});
            }),
            "plan: cannot be written: the name or metadata \"name\\xff\" is not UTF-8");
  plan.add(compiled(layer, 1));
  EXPECT_EQ(error_of([&] { plan.add(compiled(layer, 2, {.dtype = tn::bf16})); }),
            "plan: has executables that compute f32 on cpu, got one for bf16 on cpu: put it into "
            "another plan");
  EXPECT_EQ(
      error_of(
          [&] { plan.add(compiled(layer, 2, {.dtype = tn::bf16, .narrow_residuals = true})); }),
      "plan: has executables that compute f32 on cpu, got one for bf16 with narrow residuals on "
      "cpu: put it into another plan");
  EXPECT_EQ(error_of([&] {
              tn::Compiled(plan, [&](const Tensors& in) { return layer(in); }, {.dtype = tn::bf16});
            }),
            "Compiled: got options that compute bf16, but plan has executables that compute f32: "
            "give both the same dtype, tf32 and narrow_residuals");
  const TemporaryFolder folder;
  const std::string path = folder / "plan";
  EXPECT_TRUE(tn::Plan::grow(path, {{"model", "a"}}, compiled(layer, 1)));
  EXPECT_FALSE(tn::Plan::grow(path, {{"model", "a"}}, compiled(layer, 1)));
  const std::string before = path + ": is a plan whose \"model\" is \"a\", the new size's is \"";
  EXPECT_EQ(error_of([&] {
              tn::Plan::grow(path, {{"model", "b"}}, compiled(layer, 2));
            }),
            before + "b\": name another file");
  EXPECT_EQ(error_of([&] { tn::Plan::grow(path, {}, compiled(layer, 2)); }),
            before + "\": name another file");
  EXPECT_EQ(tn::Plan::load(path).sizes().size(), 1u);
}

// A broadcast lies in fewer bytes than it has; parts of unlike widths; and equal numbers.
TEST(Plan, ConstantsLieInAnyWay) {
  tn::Generator random(11);
  const Tensor wide = random.normal({600, kWidth}), narrow = random.normal({kWidth, 300}),
               row = tn::broadcast_to(tn::full({}, 0.5, tn::f32), {600}), zeros = tn::zeros({600});
  const auto whole = [&](const Tensors& in) -> Tensors {
    return {tn::linear(in[0], wide, row), tn::linear(in[0], wide, zeros),
            tn::matmul(in[0], narrow)};
  };
  const auto parts = [&](const Tensors& in) -> Tensors {
    const Tensor columns = narrow(tn::all_of_axis, tn::slice(100, 300));
    return {tn::linear(in[0], wide(tn::slice(200, 600)).copy(), row(tn::slice(0, 400))),
            tn::linear(in[0], wide(tn::slice(0, 200)), zeros(tn::slice(0, 200)).copy()),
            tn::matmul(in[0], columns.copy())};
  };
  for (const bool parts_first : {false, true}) {
    const tn::Executable a = tn::compile(whole, rows(2)), b = tn::compile(parts, rows(3));
    tn::Plan plan, single;
    single.add(a);
    plan.add(parts_first ? b : a);
    plan.add(parts_first ? a : b);
    EXPECT_LE(bytes_of(plan), bytes_of(single) * 11 / 10) << parts_first;
    const auto bytes = plan.bytes();
    const tn::Compiled loaded(tn::Plan::parse(bytes));
    EXPECT_TRUE(same_bits(loaded(random_rows(2)), a(random_rows(2))));
    EXPECT_TRUE(same_bits(loaded(random_rows(3)), b(random_rows(3))));
    EXPECT_EQ(loaded.plan().bytes(), bytes);
  }
}

// ---- From memory

TEST(Plan, IsReadWhereItLies) {
  const Tensor weight = tn::Generator(1).normal({300, kWidth});
  const tn::Compiled f([&](const Tensors& in) -> Tensors {
    return {tn::gelu(tn::linear(in[0], weight)) + tn::matmul(in[0], weight.transpose())};
  });
  for (const std::int64_t count : {1, 3}) f.executable(random_rows(count));
  const std::vector<std::byte> bytes = f.plan().bytes();
  const std::byte *begin = bytes.data(), *end = begin + bytes.size();
  const tn::Compiled loaded(tn::Plan::parse(bytes));
  std::int64_t inside = 0;
  for (const std::int64_t count : {1, 3}) {
    EXPECT_TRUE(same_bits(loaded(random_rows(count)), f(random_rows(count))));
    for (const tn::Node& node : loaded.executable(random_rows(count)).program().laid.graph.nodes())
      if (node.kind == tn::NodeKind::constant) {
        const std::byte* at = tn::detail::impl(node.constant).first();
        inside += at >= begin && at < end;
        EXPECT_TRUE(at >= begin && at < end);
        EXPECT_TRUE(node.constant.is_read_only());
      }
  }
  EXPECT_GE(inside, 2);
  // At an odd address it is copied.
  std::vector<std::byte> shifted(bytes.size() + 1);
  std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
  const tn::Compiled copied(tn::Plan::parse(std::span(shifted).subspan(1)));
  EXPECT_TRUE(same_bits(copied(random_rows(3)), f(random_rows(3))));

  const Layer layer;
  const TemporaryFolder folder;
  compiled(layer, 2).save(folder / "plan");
  tn::Plan one;
  one.add(compiled(layer, 2));
  const auto single = one.bytes();
  EXPECT_TRUE(same_bits(tn::load_executable(single)(random_rows(2)),
                        tn::load_executable(folder / "plan")(random_rows(2))));
  EXPECT_EQ(error_of([&] { tn::load_executable(bytes); }).substr(0, 23), "plan: has 2 executables");
  EXPECT_EQ(error_of([&] {
              tn::Plan::parse(std::span(bytes).first(bytes.size() - 1), "the embedded plan");
            }).find("the embedded plan: is cut short"),
            0u);
  EXPECT_EQ(error_of([&] { tn::Plan::parse({}, "nothing"); }),
            "nothing: not a safetensors file: it has 0 bytes, need 8 at least");
}

// ---- Files that grow

// Ends with the function, without what the test's process would do at its end.
template <class F>
pid_t in_child(const F& f) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    f();
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

int end_of(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

std::size_t files_in(const TemporaryFolder& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

TEST(PlanGrow, SeveralProcessesAndThreadsLoseNothing) {
  const Layer layer;
  constexpr int kProcesses = 4, kEach = 5;
  std::vector<tn::Executable> sizes;
  for (int i = 0; i < kProcesses * kEach; ++i) sizes.push_back(compiled(layer, i + 1));
  const TemporaryFolder folder;
  const std::string path = folder / "plan";
  const auto grow = [&](int first) {
    for (int i = 0; i < kEach; ++i)
      tn::Plan::grow(path, {}, sizes[static_cast<std::size_t>(first + i)]);
  };
  std::vector<pid_t> children;
  for (int p = 0; p + 1 < kProcesses; ++p) children.push_back(in_child([&] { grow(p * kEach); }));
  std::thread one([&] { grow((kProcesses - 1) * kEach); }), same([&] { grow(0); });
  one.join(), same.join();
  for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
  const tn::Plan plan = tn::Plan::load(path);
  EXPECT_EQ(plan.sizes().size(), sizes.size());
  for (const tn::Executable& size : sizes) EXPECT_TRUE(plan.holds(size.input_types()));
  EXPECT_TRUE(same_bits(plan.executable(rows(7))(random_rows(7)), sizes[6](random_rows(7))));
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(PlanGrow, KilledAtAnyMomentLeavesAPlan) {
  const Layer layer;
  std::vector<tn::Executable> sizes;
  for (int i = 0; i < 30; ++i) sizes.push_back(compiled(layer, i + 1));
  const TemporaryFolder folder;
  const std::string path = folder / "plan";
  tn::Plan::grow(path, {}, sizes[0]);
  std::size_t held = 1;
  for (int round = 0; round < 20 && held < sizes.size(); ++round) {
    const pid_t child = in_child([&] {
      for (const tn::Executable& size : sizes) tn::Plan::grow(path, {}, size);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2 + 3 * round));
    ::kill(child, SIGKILL);
    end_of(child);
    const tn::Plan plan = tn::Plan::load(path);
    EXPECT_GE(plan.sizes().size(), held);
    held = plan.sizes().size();
    EXPECT_TRUE(same_bits(plan.executable(rows(1))(random_rows(1)), sizes[0](random_rows(1))));
  }
  // The turn of those who were killed is free.
  EXPECT_EQ(tn::Plan::grow(path, {}, sizes.back()), held < sizes.size());
}

TEST(PlanGrow, AFullDiskLosesNothing) {
  const Layer layer;
  const tn::Executable one = compiled(layer, 1), two = compiled(layer, 2);
  const TemporaryFolder folder;
  const std::string path = folder / "plan";
  ASSERT_TRUE(tn::Plan::grow(path, {}, one));
  const auto size = std::filesystem::file_size(path);
  const pid_t child = in_child([&] {
    const rlimit limit{size / 2, size / 2};
    if (::signal(SIGXFSZ, SIG_IGN) == SIG_ERR || ::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const std::string error = error_of([&] { tn::Plan::grow(path, {}, two); });
    if (error != path + ": cannot be written: File too large") ::_exit(3);
    const std::string begun = error_of([&] { tn::Plan::grow(folder / "new", {}, two); });
    if (begun != folder / "new" + ": cannot be written: File too large") ::_exit(4);
  });
  EXPECT_EQ(end_of(child), 0);
  EXPECT_EQ(std::filesystem::file_size(path), size);
  EXPECT_EQ(tn::Plan::load(path).sizes(), (std::vector<tn::Plan::Size>{rows(1)}));
  EXPECT_EQ(files_in(folder), 1u);
  EXPECT_TRUE(tn::Plan::grow(path, {}, two));
}

TEST(PlanGrow, FollowsLinksAndSaysWhatIsWrong) {
  const Layer layer;
  const tn::Executable one = compiled(layer, 1), two = compiled(layer, 2);
  const TemporaryFolder folder;
  std::filesystem::create_symlink(folder / "real", folder / "link");
  tn::Plan::grow(folder / "link", {}, one);
  tn::Plan::grow(folder / "link", {}, two);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(tn::Plan::load(folder / "real").sizes().size(), 2u);
  const auto error = [&](const std::string& path) {
    return error_of([&] { tn::Plan::grow(path, {}, one); });
  };
  EXPECT_EQ(error(folder / "no/plan"), folder / "no/plan" + ": cannot be written: the folder " +
                                           folder.path() + "/no: No such file or directory");
  EXPECT_EQ(error(folder.path()), folder.path() + ": is a folder, need a file");
  folder.write("text", "no plan at all");
  EXPECT_EQ(error(folder / "text").find(folder / "text" + ": "), 0u);
  EXPECT_EQ(error("/dev/null"), "/dev/null: is not a regular file");
}

}  // namespace
