// Safetensors files on disk: written, mapped, and what disks, links and limits do to them.
#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <random>
#include <thread>

#include "src/core/storage.h"
#include "src/io/safetensors_header.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tests/io/io_testing.h"
#include "tests/seed.h"

namespace tensor {
namespace {

using check::error_of;
using testing::safetensors_file;
using testing::safetensors_header_message;

class SafetensorsFile : public testing::FolderTest {};

TEST_F(SafetensorsFile, WritesAndReadsBack) {
  Generator random(check::seed());
  std::map<std::string, Tensor> tensors;
  for (const DType dtype : {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64})
    tensors.emplace("t." + std::string(name(dtype)), random.randint(0, 2, {2, 3, 5}, dtype));
  tensors.emplace("weights", random.normal({7, 3}));
  tensors.emplace("turned \"\xc3\xa9\"", tensors.at("weights").transpose());
  tensors.emplace("backwards", flip(tensors.at("weights"), 0));
  tensors.emplace("stretched", broadcast_to(random.normal({1, 4}), {3, 4}));
  tensors.emplace("scalar", Tensor(2.5));
  tensors.emplace("empty", zeros({0, 4}, i16));
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"a\n", "\"b\""}};
  save_safetensors(path("x.safetensors"), tensors, metadata);
  EXPECT_EQ(files(), 1u);
  for (const FileAccess access : {FileAccess::map, FileAccess::read}) {
    const Safetensors file = load_safetensors(path("x.safetensors"), access);
    EXPECT_EQ(file.metadata, metadata);
    ASSERT_EQ(file.tensors.size(), tensors.size());
    for (const auto& [name, x] : tensors) {
      ASSERT_TRUE(file.tensors.contains(name)) << name;
      const Tensor& y = file.tensors.at(name);
      EXPECT_EQ(y.type(), x.type()) << name;
      EXPECT_EQ(y.to_vector<double>(), x.to_vector<double>()) << name;
    }
    EXPECT_EQ(file.tensors.at("weights").is_read_only(), access == FileAccess::map);
  }
}

TEST_F(SafetensorsFile, ForgottenPagesAreReadAgain) {
  const Tensor x = Generator(3).normal({300, 70});  // begins and ends inside a page
  save_safetensors(path("x"), {{"x", x}, {"y", x + 1}});
  const auto mapped = load_safetensors(path("x"), FileAccess::map).tensors;
  const Tensor& weights = mapped.at("x");
  for (const Tensor& view : {weights, weights.transpose(), Tensor(weights["::3, 5:"]),
                             flip(weights, 0), Tensor(weights["0:0"])})
    forget_pages(view);
  EXPECT_TRUE(all(weights == x).item<bool>());
  EXPECT_TRUE(all(mapped.at("y") == x + 1).item<bool>());
  // Memory that is nobody's file keeps what it holds.
  const Tensor copied = load_safetensors(path("x"), FileAccess::read).tensors.at("x");
  forget_pages(copied);
  EXPECT_TRUE(all(copied == x).item<bool>());
}

TEST_F(SafetensorsFile, SortsBySizeThenName) {
  save_safetensors(
      path("x"),
      {{"a", ones({3}, u8)}, {"b", ones({1}, f64)}, {"c", ones({1}, f32)}, {"d", ones({1}, i32)}},
      {{"k", "v"}});
  const std::string text = testing::read_bytes(path("x"));
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
      R"("c":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"d":{"dtype":"I32","shape":[1],"data_offsets":[12,16]},)"
      R"("a":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";
  EXPECT_EQ(text.substr(8, header.size()), header);
  EXPECT_EQ(text.substr(8 + header.size(), length - header.size()),
            std::string(length - header.size(), ' '));
}

TEST_F(SafetensorsFile, MapsWhatIsAlignedAndCopiesTheRest) {
  // The header takes 74 + 6 bytes, so "a" is aligned and "b" is not.
  std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("c":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},)"
                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[5,13]}})";
  header.append(8 - header.size() % 8, ' ');
  const float values[] = {1.5f, -2.f, 1e30f};
  std::string data(13, '\x07');
  std::memcpy(data.data(), values, 4);
  std::memcpy(data.data() + 5, values + 1, 8);
  testing::write_bytes(path("x"), safetensors_file(header) + data);
  const Safetensors file = load_safetensors(path("x"));
  EXPECT_TRUE(file.tensors.at("a").is_read_only());
  EXPECT_TRUE(file.tensors.at("c").is_read_only());
  EXPECT_FALSE(file.tensors.at("b").is_read_only());
  EXPECT_EQ(file.tensors.at("a").item<float>(), 1.5f);
  EXPECT_EQ(file.tensors.at("b").to_vector<float>(), (std::vector<float>{-2.f, 1e30f}));
  Tensor a = file.tensors.at("a");
  EXPECT_EQ(error_of([&] { a.mutable_data<float>(); }),
            "mutable_data: the memory of this tensor is read-only: write into a copy() instead, or "
            "read through item() or a const Tensor");
}

TEST_F(SafetensorsFile, AMappedTensorSurvivesAnOverwrite) {
  save_safetensors(path("x"), {{"a", full({1000}, 1.f)}});
  const Tensor old = load_safetensors(path("x")).tensors.at("a");
  save_safetensors(path("x"), {{"a", full({1}, 2.f)}});
  EXPECT_EQ(old.to_vector<float>(), std::vector<float>(1000, 1.f));
  EXPECT_EQ(load_safetensors(path("x")).tensors.at("a").item(), 2.0);
}

TEST_F(SafetensorsFile, RefusesFilesThatCannotBeRead) {
  EXPECT_EQ(error_of([&] { load_safetensors(path("x")); }),
            path("x") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(error_of([&] { load_safetensors(folder_.path()); }),
            folder_.path() + ": is a folder, need a file");
  testing::write_bytes(path("x"), "");
  EXPECT_EQ(error_of([&] { load_safetensors(path("x")); }),
            path("x") + ": not a safetensors file: it has 0 bytes, need 8 at least");
}

TEST_F(SafetensorsFile, RefusesNamesThatTheFormatCannotHold) {
  const Tensor x = ones({1});
  EXPECT_EQ(
      error_of([&] {
        save_safetensors(path("x"), {{"__metadata__", x}});
      }),
      path("x") + ": cannot be written: a tensor cannot be called __metadata__ in this format");
  EXPECT_EQ(error_of([&] {
              save_safetensors(path("x"), {{"\xff", x}});
            }),
            path("x") + ": cannot be written: the name or metadata \"\\xff\" is not UTF-8");
  EXPECT_EQ(error_of([&] {
              save_safetensors(path("x"), {{"a", x}}, {{"k", "\xc3"}});
            }),
            path("x") + ": cannot be written: the name or metadata \"\\xc3\" is not UTF-8");
  EXPECT_EQ(
      error_of([&] {
        save_safetensors(path("x"), {{"a", Tensor()}});
      }),
      path("x") + ": tensor \"a\": is undefined (default constructed): give it a value first");
  EXPECT_EQ(error_of([&] {
              save_safetensors(path("x"), {}, {{"k", std::string(100'000'000, 'v')}});
            }),
            path("x") +
                ": cannot be written: the names and metadata take 100000032 bytes, the format "
                "allows 100000000");
  EXPECT_EQ(files(), 0u);
}

TEST_F(SafetensorsFile, RefusesPlacesThatCannotBeWritten) {
  const Tensor x = ones({1});
  EXPECT_EQ(error_of([&] {
              save_safetensors(path("no/x"), {{"a", x}});
            }),
            path("no/x") + ": cannot be written: the folder " + path("no") +
                ": No such file or directory");
  EXPECT_EQ(error_of([&] {
              save_safetensors(folder_.path(), {{"a", x}});
            }),
            folder_.path() + ": cannot be written: it is a folder, need the name of a file");
  testing::write_bytes(path("file"), "");
  EXPECT_EQ(error_of([&] {
              save_safetensors(path("file/x"), {{"a", x}});
            }),
            path("file/x") + ": cannot be written: Not a directory");
  const std::string long_name = path(std::string(300, 'x'));
  EXPECT_EQ(error_of([&] {
              save_safetensors(long_name, {{"a", x}});
            }),
            long_name + ": cannot be written: File name too long");
}

TEST_F(SafetensorsFile, WritesThroughLinksAndKeepsTheMode) {
  save_safetensors(path("x"), {{"a", full({1}, 1.f)}});
  ASSERT_EQ(::chmod(path("x").c_str(), 0600), 0);
  std::filesystem::create_symlink("x", path("link"));
  std::filesystem::create_symlink("new", path("dangling"));
  for (const char* name : {"x", "link"}) {
    save_safetensors(path(name), {{"a", full({1}, 2.f)}});
    EXPECT_EQ(load_safetensors(path("x")).tensors.at("a").item(), 2.0);
    EXPECT_EQ(std::filesystem::status(path("x")).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  save_safetensors(path("dangling"), {{"a", full({1}, 3.f)}});
  EXPECT_EQ(load_safetensors(path("new")).tensors.at("a").item(), 3.0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_TRUE(std::filesystem::is_symlink(path("dangling")));
  EXPECT_EQ(files(), 4u);
  std::filesystem::create_symlink("loop", path("loop"));
  EXPECT_EQ(error_of([&] { save_safetensors(path("loop"), {}); }),
            path("loop") + ": cannot be written: Too many levels of symbolic links");
}

// As --output /dev/null, a named pipe and /dev/stdout, which leads to /proc/self/fd/1.
TEST_F(SafetensorsFile, WritesStraightToWhatIsNoFile) {
  const std::map<std::string, Tensor> tensors = {{"a", full({1}, 2.f)}};
  save_safetensors(path("x"), tensors);
  const std::string expected = testing::read_bytes(path("x"));

  std::filesystem::create_symlink("/dev/null", path("null"));
  save_safetensors(path("null"), tensors);
  EXPECT_TRUE(std::filesystem::is_character_file(path("null")));

  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = testing::read_bytes(path("pipe")); });
  save_safetensors(path("pipe"), tensors);
  if (!std::filesystem::is_fifo(path("pipe"))) {  // let the reader go
    ADD_FAILURE() << "the pipe was replaced";
    reader.detach();
    return;
  }
  reader.join();
  EXPECT_EQ(got, expected);

  const int open = ::open(path("log").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::write(open, "before ", 7), 7);
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(open), path("stdout"));
  save_safetensors(path("stdout"), tensors);
  ASSERT_EQ(::write(open, " behind", 7), 7);
  ::close(open);
  EXPECT_EQ(testing::read_bytes(path("log")), "before " + expected + " behind");
  EXPECT_EQ(files(), 5u);
}

// Empty tensors take no data, but memory here.
TEST_F(SafetensorsFile, LimitsTheNumberOfTensors) {
  const std::uint64_t most = most_safetensors_names(0);
  std::string tensor_header, metadata_header;
  for (std::uint64_t i = 0; i <= most; ++i) {
    const std::string name = "\"" + std::to_string(i) + '"';
    tensor_header +=
        (i > 0 ? "," : "{") + name + R"(:{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    metadata_header += (i > 0 ? "," : R"({"__metadata__":{)") + name + R"(:"")";
  }
  EXPECT_EQ(safetensors_header_message(tensor_header + '}'),
            "f: has more than 131072 tensors and metadata, the most for 0 bytes of data");
  EXPECT_EQ(safetensors_header_message(metadata_header + "}}"),
            "f: has more than 131072 tensors and metadata, the most for 0 bytes of data");
  std::map<std::string, std::string> metadata;
  for (std::uint64_t i = 0; i <= most; ++i) metadata.emplace(std::to_string(i), "");
  EXPECT_EQ(error_of([&] { save_safetensors(path("x"), {}, metadata); }),
            path("x") +
                ": cannot be written: 131073 tensors and metadata are more than the 131072 that "
                "this library reads back from 0 bytes of data");
  metadata.erase("0");
  save_safetensors(path("x"), {}, metadata);
  EXPECT_EQ(load_safetensors(path("x")).metadata.size(), most);
}

// A limit on the size of files stands for a full disk: both let `write` fail half way.
TEST_F(SafetensorsFile, AFullDiskLeavesTheOldFile) {
  save_safetensors(path("x"), {{"a", full({1}, 5.f)}});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string got = error_of([&] { save_safetensors(path("x"), {{"a", zeros({5000})}}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(got, path("x") + ": cannot be written: File too large");
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(load_safetensors(path("x")).tensors.at("a").item(), 5.0);
}

}  // namespace
}  // namespace tensor
