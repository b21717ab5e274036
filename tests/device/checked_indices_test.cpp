// Compiled functions that look up indices which nobody knows before they run: on the GPU, where a
// flag beside the results tells of one that is out of range.
#include "tensor/compile.h"
#include "tensor/interop.h"
#include "tensor/plan.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

using check::error_of;

class CheckedIndices : public OnGpu {
 protected:
  static Tensors looked_up(const Tensors& in) {
    return {take(in[0], in[1], 0) * 2 + take(in[0], in[1] - 1, 0),
            take_along_axis(in[0], in[2], 1)};
  }
  Executable compiled(const Tensors& in) const {
    return compile(TensorFunction(looked_up), in, {.device = gpu_, .host_steps = false});
  }
  Tensors with(const Tensor& rows) const { return {table_, rows, places_}; }
  static void expect_looked_up(const Tensors& got, const Tensors& in) {
    const Tensors want = looked_up(in);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i].to("cpu"), want[i]);
  }
  static constexpr const char* kWrong = "take: an index is out of range, need -5 to 4";

  const Tensor table_ = random_.normal({5, 6});
  const Tensor good_ = array({4, -4, 0, 1}), wrong_ = array({4, -5, 0, 1});  // less 1 is taken, too
  const Tensor places_ = array({{5}, {-6}, {0}, {-1}, {2}});
};

TEST_F(CheckedIndices, AreLookedUpThereOrRefused) {
  const Executable f = compiled(with(good_));
  for (int round = 0; round < 3; ++round) {  // also as a recorded graph
    expect_looked_up(f(with(good_)), with(good_));
    EXPECT_EQ(error_of([&] { f(with(wrong_)); }), kWrong);
    EXPECT_EQ(error_of([&] {
                f({table_, good_, places_ + 1});
              }),
              "take_along_axis: an index is out of range, need -6 to 5");
  }
  EXPECT_EQ(f.output_types().size(), 2u);
  for (const GroupCheck& group : verify(f, with(good_))) EXPECT_TRUE(group.ok()) << group.kernel;
}

TEST_F(CheckedIndices, OnTheGpuAndOnStreams) {
  const Executable f = compiled(with(good_));
  const Tensors there = {table_.to(gpu_), good_.to(gpu_), places_.to(gpu_)};
  const Tensors wrong = {there[0], wrong_.to(gpu_), there[2]};
  for (int round = 0; round < 3; ++round) {
    const Tensors got = f(there);
    EXPECT_TRUE(got[0].device().is_cuda());
    expect_looked_up(got, with(good_));
    EXPECT_EQ(error_of([&] { f(wrong); }), kWrong);
    expect_looked_up(enqueue(f, there, nullptr), with(good_));
    EXPECT_EQ(error_of([&] { enqueue(f, wrong, nullptr); }), kWrong);
  }
}

TEST_F(CheckedIndices, OfAPlanFile) {
  const check::TemporaryFolder folder;
  compiled(with(good_)).save(folder / "plan");
  const Executable f = load_executable(folder / "plan", 0, gpu_);
  expect_looked_up(f(with(good_)), with(good_));
  EXPECT_EQ(error_of([&] { f(with(wrong_)); }), kWrong);
}

// A side that is not chosen may hold what would be out of range.
TEST_F(CheckedIndices, OfASideThatIsNotChosenMayBeAnything) {
  const auto chosen = [](const Tensors& in) -> Tensors {
    return {cond(
        all(in[1] < 5), [&] { return take(in[0], in[1], 0); },
        [&] { return take(in[0], in[1] * 0, 0); })};
  };
  const Tensors in = {table_, good_}, beyond = {table_, good_ + 1};
  const Executable f = compile(TensorFunction(chosen), in, {.device = gpu_});
  expect_same(f(in)[0], chosen(in)[0]);
  expect_same(f(beyond)[0], chosen(beyond)[0]);
}

}  // namespace
}  // namespace tensor
