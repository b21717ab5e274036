// Safetensors as bytes: what is read, and what is refused with which text.
#include "src/io/safetensors_header.h"
#include "tensor/io.h"
#include "tests/io/io_testing.h"

namespace tensor {
namespace {

using check::error_of;
using testing::safetensors_file;
using testing::safetensors_header_message;
using testing::safetensors_message;
using testing::safetensors_of;

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

// All patterns of eight bits beside what their fields mean.
TEST(Safetensors, WidensEightBitFloats) {
  std::string data(512, '\0');
  for (int i = 0; i < 512; ++i) data[static_cast<std::size_t>(i)] = static_cast<char>(i & 255);
  const Safetensors file = safetensors_of(
      safetensors_file(R"({"a":{"dtype":"F8_E4M3","shape":[256],"data_offsets":[0,256]},)"
                       R"("b":{"dtype":"F8_E5M2","shape":[2,128],"data_offsets":[256,512]}})") +
      data);
  EXPECT_EQ(file.tensors.at("a").type(), (TensorType{{256}, f16}));
  EXPECT_EQ(file.tensors.at("b").type(), (TensorType{{2, 128}, f16}));
  const auto value = [](int bits, int mantissa_bits, int bias) {
    const int exponent = (bits & 127) >> mantissa_bits,
              mantissa = bits & ((1 << mantissa_bits) - 1);
    const double fraction = mantissa / static_cast<double>(1 << mantissa_bits);
    const double size =
        exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    return bits < 128 ? size : -size;
  };
  const auto a = file.tensors.at("a").to_vector<double>(),
             b = file.tensors.at("b").to_vector<double>();
  for (int bits = 0; bits < 256; ++bits) {
    const auto i = static_cast<std::size_t>(bits);
    if ((bits & 127) == 127)
      EXPECT_TRUE(std::isnan(a[i])) << bits;
    else
      EXPECT_EQ(a[i], value(bits, 3, 7)) << bits;
    if ((bits & 124) != 124)
      EXPECT_EQ(b[i], value(bits, 2, 15)) << bits;
    else if ((bits & 3) == 0)
      EXPECT_EQ(b[i], bits < 128 ? INFINITY : -INFINITY) << bits;
    else
      EXPECT_TRUE(std::isnan(b[i])) << bits;
  }
}

TEST(Safetensors, WidensUnsignedNumbers) {
  const std::string header = R"({"a":{"dtype":"U16","shape":[1],"data_offsets":[0,2]},)"
                             R"("b":{"dtype":"U32","shape":[1],"data_offsets":[2,6]},)"
                             R"("c":{"dtype":"U64","shape":[1],"data_offsets":[6,14]},)"
                             R"("d":{"dtype":"U64","shape":[1],"data_offsets":[14,22]}})";
  const std::string seven(7, '\xff');
  const Safetensors file = safetensors_of(safetensors_file(header) + "\xfe\xff" +
                                          "\xfd\xff\xff\xff" + seven + '\x7f' + seven + '\xff');
  EXPECT_EQ(file.tensors.at("a").type(), (TensorType{{1}, i32}));
  EXPECT_EQ(file.tensors.at("a").item<int>(), 65534);
  EXPECT_EQ(file.tensors.at("b").item<std::int64_t>(), (1ll << 32) - 3);
  EXPECT_EQ(file.tensors.at("c").item<std::int64_t>(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(error_of([&] { file.tensors.at("d"); }),
            "f: tensor \"d\": holds the number 18446744073709551615, need numbers below 2^63: "
            "convert it to float64 before saving");
}

TEST(Safetensors, NamesElementTypesThatItDoesNotHold) {
  const std::pair<const char*, int> types[] = {
      {"F4", 2},          {"F6_E2M3", 3},     {"F6_E3M2", 3}, {"F8_E8M0", 4},
      {"F8_E4M3FNUZ", 4}, {"F8_E5M2FNUZ", 4}, {"C64", 32}};
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

TEST(Safetensors, MayBeReadWhereItLies) {
  const std::string text =
      safetensors_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )") +
      std::string("\x00\x00\x80\x3f\x00\x00\x00\x40", 8);
  ASSERT_EQ((text.size() - 8) % 4, 0u);
  std::vector<float> room(text.size() / 4 + 1);
  for (const std::size_t shift : {0, 1}) {
    const auto bytes = std::as_writable_bytes(std::span(room)).subspan(shift, text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    const Tensor seen = parse_safetensors(bytes, "f", FileAccess::map).tensors.at("a"),
                 copied = parse_safetensors(bytes, "f").tensors.at("a");
    EXPECT_TRUE(seen.is_read_only() || shift == 1);
    std::memset(&bytes[text.size() - 4], 0, 4);
    EXPECT_EQ(copied.to_vector<float>(), (std::vector<float>{1, 2}));
    EXPECT_EQ(seen.to_vector<float>(), (std::vector<float>{1, shift == 0 ? 0.f : 2.f})) << shift;
  }
}

TEST(Safetensors, RefusesBoolsOtherThan0And1) {
  const std::string text =
      safetensors_file(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})") +
      std::string("\x01\x02\x00", 3);
  EXPECT_EQ(safetensors_message(text), "f: tensor \"a\": element 1 of bool is 2, need 0 or 1");
}

}  // namespace
}  // namespace tensor
