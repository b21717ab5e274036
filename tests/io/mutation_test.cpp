// Hostile files without a fuzzer: every seed is changed some thousand times, in the ways that break
// parsers, and each result must be read or refused with a UserError. The sanitizers watch when this
// runs in their build.
#include <algorithm>
#include <random>

#include "tests/fuzz/onnx_seeds.h"
#include "tests/fuzz/onnx_target.h"
#include "tests/fuzz/plan_seeds.h"
#include "tests/fuzz/targets.h"
#include "tests/io/io_testing.h"

namespace tensor {
namespace {

using File = std::vector<std::byte>;

std::vector<File> seeds_of(const std::vector<std::string>& folders) {
  std::vector<std::string> paths;
  for (const std::string& folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(TENSOR_TEST_DATA "/" + folder))
      if (!entry.path().string().ends_with(".py") && entry.path().filename() != "expected.npz")
        paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());  // the same run on every machine
  std::vector<File> seeds;
  for (const std::string& path : paths)
    seeds.push_back(testing::bytes_of(testing::read_bytes(path)));
  return seeds;
}

class Mutator {
 public:
  Mutator(std::uint64_t seed, const std::vector<File>& seeds) : random_(seed), seeds_(seeds) {}

  File mutated(File file) {
    for (std::size_t i = 0, count = 1 + below(4); i < count; ++i) change(file);
    return file;
  }
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

 private:
  void change(File& file) {
    if (file.empty()) file.push_back(std::byte{0});
    const std::size_t at = below(file.size()), length = std::min(1 + below(16), file.size() - at);
    const auto first = file.begin() + static_cast<std::ptrdiff_t>(at);
    const auto last = first + static_cast<std::ptrdiff_t>(length);
    switch (below(8)) {
      case 0:
        *first ^= std::byte{1} << static_cast<int>(below(8));
        break;
      case 1:
        *first = static_cast<std::byte>(random_() & 0xff);
        break;
      case 2:
        write_number(file, at);
        break;
      case 3:
        file.erase(first, last);
        break;
      case 4: {
        const File part(first, last);
        file.insert(first, part.begin(), part.end());
        break;
      }
      case 5:
        file.resize(at);
        break;
      case 6:
        write_digits(file, at);
        break;
      default:
        splice(file, at);
    }
  }

  // A number on the edge of some type, in either byte order.
  void write_number(File& file, std::size_t at) {
    static constexpr std::uint64_t kEdges[] = {0,
                                               1,
                                               0x7f,
                                               0x80,
                                               0xff,
                                               0x7fff,
                                               0xffff,
                                               0x7fffffff,
                                               0x80000000,
                                               0xffffffff,
                                               0x7fffffffffffffff,
                                               0xffffffffffffffff};
    const std::uint64_t number = kEdges[below(std::size(kEdges))];
    const std::size_t width = std::size_t{1} << below(4);
    const bool big = below(2) == 0;
    for (std::size_t i = 0; i < width && at + i < file.size(); ++i)
      file[at + i] = static_cast<std::byte>(number >> (8 * (big ? width - 1 - i : i)) & 0xff);
  }

  // A number on the edge, in place of digits.
  void write_digits(File& file, std::size_t at) {
    static const std::string kNumbers[] = {
        "-1", "0", "4294967296", "9223372036854775807", "18446744073709551616", "1e9"};
    const auto digit = [](std::byte b) { return b >= std::byte{'0'} && b <= std::byte{'9'}; };
    const auto first =
        std::find_if(file.begin() + static_cast<std::ptrdiff_t>(at), file.end(), digit);
    const auto rest = file.erase(first, std::find_if_not(first, file.end(), digit));
    const File number = testing::bytes_of(kNumbers[below(std::size(kNumbers))]);
    file.insert(rest, number.begin(), number.end());
  }

  // The end of another seed instead of this one's.
  void splice(File& file, std::size_t at) {
    const File& other = seeds_[below(seeds_.size())];
    file.resize(at);
    file.insert(file.end(), other.begin() + static_cast<std::ptrdiff_t>(std::min(at, other.size())),
                other.end());
  }

  std::mt19937_64 random_;
  const std::vector<File>& seeds_;
};

// The count is per seed. An exception other than UserError fails the test.
void read_mutations(const std::vector<File>& seeds, int count, void (*target)(fuzzing::Bytes)) {
  ASSERT_GE(seeds.size(), 5u);
  Mutator mutator(2024, seeds);
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    target(seeds[i]);
    for (int k = 0; k < count; ++k) {
      File file = mutator.mutated(seeds[i]);
      if (mutator.below(8) > 0) fuzzing::mend_png(file);
      try {
        target(file);
      } catch (const std::exception& error) {
        FAIL() << "seed " << i << ", mutation " << k << ": " << error.what();
      }
    }
  }
}

TEST(Mutation, Safetensors) {
  read_mutations(seeds_of({"fuzz/safetensors"}), 4000, fuzzing::safetensors);
}
TEST(Mutation, Npy) { read_mutations(seeds_of({"fuzz/npy", "npy"}), 3000, fuzzing::npy); }
TEST(Mutation, Image) { read_mutations(seeds_of({"images"}), 2000, fuzzing::image); }
TEST(Mutation, Json) { read_mutations(seeds_of({"fuzz/json"}), 4000, fuzzing::json); }

TEST(Mutation, Plan) {
  std::vector<File> seeds;
  for (const std::string& seed : fuzzing::plan_seeds()) seeds.push_back(testing::bytes_of(seed));
  read_mutations(seeds, 1500, fuzzing::plan);
}

TEST(Mutation, PlanBytes) {
  std::vector<File> seeds;
  for (int width = 1; width <= 5; ++width) {
    const Compiled f([=](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {matmul(in[0], ones({8, width})) + in[0](all_of_axis, slice(0, 1))};
    });
    for (const std::int64_t rows : {1, 3}) f.executable({ones({rows, 8})});
    seeds.push_back(f.plan().bytes());
  }
  read_mutations(seeds, 2000, fuzzing::plan_bytes);
}

TEST(Mutation, Onnx) {
  std::vector<File> seeds;
  for (const std::string& seed : fuzzing::onnx_seeds()) seeds.push_back(testing::bytes_of(seed));
  read_mutations(seeds, 2000, fuzzing::onnx_model);
}

}  // namespace
}  // namespace tensor
