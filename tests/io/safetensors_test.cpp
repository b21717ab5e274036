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

// A file with that header, its length in front, and `data` zero bytes behind.
std::string safetensors_file(const std::string& header, std::size_t data = 0) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data, '\0');
}

Safetensors safetensors_of(const std::string& text) {
  return parse_safetensors(testing::bytes_of(text), "f");
}
std::string safetensors_message(const std::string& text) {
  return error_of([&] { safetensors_of(text); });
}
std::string safetensors_header_message(const std::string& header, std::size_t data = 0) {
  return safetensors_message(safetensors_file(header, data));
}

TEST(Safetensors, ReadsEveryElementType) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},)"
      R"("u8":{"dtype":"U8","shape":[],"data_offsets":[2,3]},"i8":{"dtype":"I8","shape":[1],"data_offsets":[3,4]},)"
      R"("i16":{"dtype":"I16","shape":[1],"data_offsets":[4,6]},"f16":{"dtype":"F16","shape":[1],"data_offsets":[6,8]},)"
      R"("bf16":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]},"i32":{"dtype":"I32","shape":[1],"data_offsets":[10,14]},)"
      R"("f32":{"dtype":"F32","shape":[1],"data_offsets":[14,18]},"i64":{"dtype":"I64","shape":[1],"data_offsets":[18,26]},)"
      R"("f64":{"dtype":"F64","shape":[1,1],"data_offsets":[26,34]},"none":{"dtype":"F32","shape":[3,0],"data_offsets":[34,34]}}  )";
  std::string text = safetensors_file(header);
  const auto add = [&](auto value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  add(true), add(false), add(std::uint8_t{200}), add(std::int8_t{-5}), add(std::int16_t{-300}),
      add(Float16(0.5f));
  add(BFloat16(-2.f)), add(std::int32_t{1 << 20}), add(3.25f), add(std::int64_t{1} << 40),
      add(1e-3);
  const Safetensors file = safetensors_of(text);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.tensors.size(), 11u);
  EXPECT_EQ(file.tensors.at("b").to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(file.tensors.at("u8").type(), (TensorType{{}, u8}));
  EXPECT_EQ(file.tensors.at("u8").item<int>(), 200);
  EXPECT_EQ(file.tensors.at("i8").item<int>(), -5);
  EXPECT_EQ(file.tensors.at("i16").item<int>(), -300);
  EXPECT_EQ(file.tensors.at("f16").item(), 0.5);
  EXPECT_EQ(file.tensors.at("bf16").item(), -2.0);
  EXPECT_EQ(file.tensors.at("i32").item<int>(), 1 << 20);
  EXPECT_EQ(file.tensors.at("f32").item(), 3.25);
  EXPECT_EQ(file.tensors.at("i64").item<std::int64_t>(), std::int64_t{1} << 40);
  EXPECT_EQ(file.tensors.at("f64").item(), 1e-3);
  EXPECT_EQ(file.tensors.at("none").type(), (TensorType{{3, 0}, f32}));
}

TEST(Safetensors, AcceptsAFileWithoutTensors) {
  EXPECT_TRUE(safetensors_of(safetensors_file("{}")).tensors.empty());
}

TEST(Safetensors, RefusesABadLength) {
  EXPECT_EQ(safetensors_message("1234567"),
            "f: not a safetensors file: it has 7 bytes, need 8 at least");
  EXPECT_EQ(safetensors_message(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)),
            "f: not a safetensors file: it claims a header of 100000001 bytes, the format allows "
            "100000000");
  EXPECT_EQ(safetensors_message(std::string(8, '\xff') + "{}"),
            "f: not a safetensors file: it claims a header of 18446744073709551615 bytes, the "
            "format allows "
            "100000000");
  EXPECT_EQ(
      safetensors_message("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
      "f: is a Git LFS pointer, not the file itself: run git lfs pull");
  EXPECT_EQ(safetensors_message("<!DOCTYPE html><html></html>"),
            "f: is an HTML page: the download failed");
  EXPECT_EQ(safetensors_message(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
            "f: is cut short: the header takes 3 bytes, the file has 2 after the first 8");
  EXPECT_EQ(safetensors_message(std::string(8, '\0')),
            "f: not a safetensors file: the header does not begin with {");
  EXPECT_EQ(safetensors_header_message(" {}"),
            "f: not a safetensors file: the header does not begin with {");
  EXPECT_EQ(safetensors_header_message("[]"),
            "f: not a safetensors file: the header does not begin with {");
}

TEST(Safetensors, RefusesABadHeader) {
  EXPECT_EQ(safetensors_header_message("{} x").substr(0, 31), "f: header: not valid JSON: line");
  EXPECT_EQ(safetensors_header_message("{\"\xff\":1}").substr(0, 31),
            "f: header: not valid JSON: line");
  EXPECT_EQ(safetensors_header_message(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                       R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
            "f: header: line 1: the key \"a\" appears twice in one object");
  EXPECT_EQ(safetensors_header_message(
                R"({"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})"),
            "f: header: line 1: the key \"dtype\" appears twice in one object");
}

TEST(Safetensors, RefusesABadEntry) {
  const auto entry = [](const std::string& body) {
    return safetensors_header_message("{\"a\":" + body + "}", 4);
  };
  const std::string shape = R"("shape":[4],"data_offsets":[0,4])";
  EXPECT_EQ(entry("1"), "f: tensor \"a\": need an object with dtype, shape and data_offsets");
  EXPECT_EQ(entry("[]"), "f: tensor \"a\": need an object with dtype, shape and data_offsets");
  EXPECT_EQ(entry("{" + shape + "}"), "f: tensor \"a\": the key dtype is missing");
  EXPECT_EQ(entry(R"({"dtype":"U8","data_offsets":[0,4]})"),
            "f: tensor \"a\": the key shape is missing");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[4]})"),
            "f: tensor \"a\": the key data_offsets is missing");
  EXPECT_EQ(entry(R"({"dtype":"U8","more":1,)" + shape + "}"),
            "f: tensor \"a\": got the key \"more\", need exactly dtype, shape and data_offsets");
  EXPECT_EQ(entry(R"({"dtype":5,)" + shape + "}"), "f: tensor \"a\": dtype is not a string");
  EXPECT_EQ(entry(R"({"dtype":["U8"],)" + shape + "}"), "f: tensor \"a\": dtype is not a string");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})"),
            "f: tensor \"a\": shape is not an array");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":{},"data_offsets":[0,4]})"),
            "f: tensor \"a\": shape is not an array");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[4],"data_offsets":"0,4"})"),
            "f: tensor \"a\": data_offsets is not an array");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0]})"),
            "f: tensor \"a\": data_offsets holds fewer than 2 numbers");
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4,4]})"),
            "f: tensor \"a\": data_offsets holds more than 2 numbers");
}

TEST(Safetensors, RefusesNumbersThatAreNoSizes) {
  for (const char* number : {"-1", "4.0", "4e0", "18446744073709551615", "9223372036854775808",
                             "\"4\"", "null", "true", "[4]", "{}"}) {
    EXPECT_EQ(safetensors_header_message(std::string(R"({"a":{"dtype":"U8","shape":[)") + number +
                                             R"(],"data_offsets":[0,4]}})",
                                         4),
              "f: tensor \"a\": shape holds something other than whole numbers from 0 to 2^63 - 1")
        << number;
    EXPECT_EQ(
        safetensors_header_message(
            std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,)") + number + "]}}",
            4),
        "f: tensor \"a\": data_offsets holds something other than whole numbers from 0 to 2^63 - 1")
        << number;
  }
}

TEST(Safetensors, NamesElementTypesThatItDoesNotHold) {
  const std::pair<const char*, int> types[] = {
      {"F4", 2},      {"F6_E2M3", 3}, {"F6_E3M2", 3},     {"F8_E5M2", 4},
      {"F8_E4M3", 4}, {"F8_E8M0", 4}, {"F8_E4M3FNUZ", 4}, {"F8_E5M2FNUZ", 4},
      {"U16", 8},     {"U32", 16},    {"U64", 32},        {"C64", 32}};
  for (const auto& [dtype, bytes] : types) {
    const auto header = [&, dtype = dtype](int size) {
      const std::string end = std::to_string(size);
      return std::string(R"({"a":{"dtype":")") + dtype + R"(","shape":[4],"data_offsets":[0,)" +
             end + R"(]},"x":{"dtype":"U8","shape":[1],"data_offsets":[)" + end + "," +
             std::to_string(size + 1) + "]}}";
    };
    const Safetensors file =
        safetensors_of(safetensors_file(header(bytes), static_cast<std::size_t>(bytes) + 1));
    EXPECT_EQ(file.tensors.size(), 1u);
    EXPECT_EQ(file.tensors.at("x").type(), (TensorType{{1}, u8}));
    EXPECT_EQ(error_of([&] { file.tensors.at("a"); }),
              std::string("f: tensor \"a\": has the dtype ") + dtype +
                  ", which this library does not hold: convert it to one of BOOL U8 I8 I16 I32 I64 "
                  "F16 BF16 F32 F64");
    EXPECT_EQ(safetensors_header_message(header(bytes + 1), static_cast<std::size_t>(bytes) + 2),
              std::string("f: tensor \"a\": the shape (4,) of ") + dtype + " takes " +
                  std::to_string(bytes) + " bytes, but data_offsets are 0 and " +
                  std::to_string(bytes + 1));
  }
  EXPECT_EQ(safetensors_header_message(
                R"({"a":{"dtype":"F6_E2M3","shape":[3],"data_offsets":[0,3]}})", 3),
            "f: tensor \"a\": the shape (3,) of F6_E2M3 does not fill its last byte");
  EXPECT_EQ(safetensors_header_message(
                R"({"a":{"dtype":"F4","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"),
            "f: tensor \"a\": the shape (4611686018427387904, 4) takes more than 2^63 bytes");
  EXPECT_EQ(
      safetensors_header_message(R"({"a":{"dtype":"Q4\n","shape":[4],"data_offsets":[0,4]}})", 4),
      "f: tensor \"a\": has the unknown dtype \"Q4\\x0a\", need one of BOOL U8 I8 I16 I32 "
      "I64 F16 BF16 F32 F64");
}

TEST(Safetensors, RefusesShapesThatDoNotFit) {
  EXPECT_EQ(
      safetensors_header_message(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
      "f: tensor \"a\": the shape (2,) of F32 takes 8 bytes, but data_offsets are 0 and 4");
  EXPECT_EQ(
      safetensors_header_message(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4),
      "f: tensor \"a\": the shape (4,) of U8 takes 4 bytes, but data_offsets are 4 and 0");
  EXPECT_EQ(safetensors_header_message(
                R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
            "f: tensor \"a\": the shape (4294967296, 4294967296) takes more than 2^63 bytes");
  EXPECT_EQ(safetensors_header_message(
                R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})"),
            "f: tensor \"a\": the shape (2305843009213693952,) takes more than 2^63 bytes");
  EXPECT_EQ(safetensors_header_message(
                R"({"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})"),
            "f: tensor \"a\": the shape (0, 4294967296, 4294967296) takes more than 2^63 bytes");
  const Safetensors deep = safetensors_of(safetensors_file(
      R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
      1));
  EXPECT_TRUE(deep.tensors.empty());
  EXPECT_EQ(error_of([&] { deep.tensors.at("a"); }),
            "f: tensor \"a\": has more than 16 axes, which is the most that a tensor can have");
}

std::string two(const std::string& a, const std::string& b, std::size_t data) {
  return safetensors_header_message(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                                        R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b +
                                        "}}",
                                    data);
}

TEST(Safetensors, RefusesGapsAndOverlaps) {
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "no error");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "no error");
  EXPECT_EQ(two("[0,4]", "[2,6]", 6),
            "f: tensor \"b\" begins at byte 2 of the data, inside tensor \"a\", which ends at 4");
  EXPECT_EQ(two("[0,4]", "[0,4]", 4),
            "f: tensor \"b\" begins at byte 0 of the data, inside tensor \"a\", which ends at 4");
  EXPECT_EQ(two("[0,4]", "[5,9]", 9),
            "f: tensor \"b\" begins at byte 5 of the data, but 4 is expected: no bytes may lie "
            "between tensors");
  EXPECT_EQ(two("[1,5]", "[5,9]", 9),
            "f: tensor \"a\" begins at byte 1 of the data, but 0 is expected: no bytes may lie "
            "between tensors");
  EXPECT_EQ(two("[0,4]", "[4,8]", 7),
            "f: is cut short: tensor \"b\" ends at byte 8 of the data, of which the file has 7");
  EXPECT_EQ(two("[0,4]", "[4,8]", 9), "f: has 1 bytes after the last tensor, need none");
  EXPECT_EQ(safetensors_header_message("{}", 3), "f: has 3 bytes after the last tensor, need none");
}

TEST(Safetensors, RefusesMetadataOtherThanStrings) {
  EXPECT_EQ(safetensors_header_message(R"({"__metadata__":1})"),
            "f: __metadata__: need an object of strings");
  EXPECT_EQ(safetensors_header_message(R"({"__metadata__":["a"]})"),
            "f: __metadata__: need an object of strings");
  EXPECT_EQ(safetensors_header_message(R"({"__metadata__":{"a":1}})"),
            "f: __metadata__: the value of \"a\" is not a string");
  EXPECT_EQ(safetensors_header_message(R"({"__metadata__":{"a":{"b":"c"}}})"),
            "f: __metadata__: the value of \"a\" is not a string");
  EXPECT_EQ(safetensors_header_message(R"({"__metadata__":{"a":["c"]}})"),
            "f: __metadata__: the value of \"a\" is not a string");
}

TEST(Safetensors, RefusesBoolsOtherThan0And1) {
  const std::string text =
      safetensors_file(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})") +
      std::string("\x01\x02\x00", 3);
  EXPECT_EQ(safetensors_message(text), "f: tensor \"a\": element 1 of bool is 2, need 0 or 1");
}

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
