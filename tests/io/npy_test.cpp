// npy files; tests/data/npy holds some that NumPy wrote.

#include <random>

#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tests/io/io_testing.h"
#include "tests/seed.h"

namespace tensor {
namespace {

using check::error_of;

const std::string kNpyData = TENSOR_TEST_DATA "/npy/";

std::vector<int> counted(int count) { return arange(count).to_vector<int>(); }

// A file of that version, with the header's text as it is.
std::string npy_file(const std::string& header, const std::string& data = "", int major = 1) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(major);
  text += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i)
    text += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text + header + data;
}

Tensor npy_of(const std::string& text) { return parse_npy(testing::bytes_of(text), "f"); }
std::string npy_message(const std::string& text) {
  return error_of([&] { npy_of(text); });
}
std::string npy_header_message(const std::string& header, const std::string& data = "") {
  return npy_message(npy_file(header, data));
}
std::string descr_message(const std::string& descr) {
  return npy_header_message("{'descr': " + descr + ", 'fortran_order': False, 'shape': (3,), }");
}

TEST(Npy, ReadsWhatNumpyWrote) {
  for (const char* name : {"c_order.npy", "fortran_order.npy", "version2.npy", "version3.npy"}) {
    const Tensor cube = load_npy(kNpyData + name);
    EXPECT_EQ(cube.type(), (TensorType{{2, 3, 4}, i16})) << name;
    EXPECT_EQ(cube.to_vector<int>(), counted(24)) << name;
    EXPECT_FALSE(cube.is_read_only());
  }
  EXPECT_EQ(load_npy(kNpyData + "fortran_order.npy").strides(), (Strides{1, 2, 6}));
  EXPECT_EQ(load_npy(kNpyData + "scalar.npy").type(), (TensorType{{}, f32}));
  EXPECT_EQ(load_npy(kNpyData + "scalar.npy").item(), 2.5);
  EXPECT_EQ(load_npy(kNpyData + "empty.npy").type(), (TensorType{{3, 0, 2}, f64}));
}

TEST(Npy, AcceptsEverySpellingOfTheHeader) {
  const std::string data("\x01\x02\x03\x04", 4);
  EXPECT_EQ(npy_of(npy_file("{\"shape\":(2,2),\"fortran_order\":True,\"descr\":\"|u1\"}", data))
                .to_vector<int>(),
            (std::vector<int>{1, 3, 2, 4}));
  EXPECT_EQ(
      npy_of(npy_file("{ 'descr' : '=u1' , 'fortran_order' : False , 'shape' : (4L,) , } \n", data))
          .to_vector<int>(),
      (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(npy_of(npy_file("{'descr':'>i2','fortran_order':False,'shape':(1,2)}", data))
                .to_vector<int>(),
            (std::vector<int>{0x0102, 0x0304}));
}

TEST(Npy, RefusesABadStart) {
  EXPECT_EQ(npy_message("\x93NUMPY\x01"), "f: not an npy file: it has 7 bytes, need 10 at least");
  EXPECT_EQ(npy_message("\x93NUMPZ\x01 abcdef"),
            "f: not an npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(npy_message(npy_file("{}", "", 4)),
            "f: has version 4.0 of the npy format, need 1.0, 2.0 or 3.0");
  EXPECT_EQ(npy_message(npy_file("{}", "", 0)),
            "f: has version 0.0 of the npy format, need 1.0, 2.0 or 3.0");
  EXPECT_EQ(npy_message("\x93NUMPY\x01\x01 abcdef"),
            "f: has version 1.1 of the npy format, need 1.0, 2.0 or 3.0");
  EXPECT_EQ(npy_message(npy_file("{}", "", 2).substr(0, 10)), "f: ends within the header");
  EXPECT_EQ(npy_message(npy_file("{}").substr(0, 11)), "f: ends within the header");
  EXPECT_EQ(npy_message(npy_file("{}", "", 2).substr(0, 8) + "\xff\xff\xff\xff{}"),
            "f: claims a header of 4294967295 bytes, more than the 65536 that are read");
  EXPECT_EQ(npy_message(npy_file(std::string(65537, ' '), "", 2)),
            "f: claims a header of 65537 bytes, more than the 65536 that are read");
}

TEST(Npy, RefusesABadHeader) {
  EXPECT_EQ(npy_header_message(""), "f: the header: got its end, need '{'");
  EXPECT_EQ(npy_header_message("[]"), "f: the header: got \"[]\", need '{'");
  EXPECT_EQ(npy_header_message("{}"), "f: the header: the key descr is missing");
  EXPECT_EQ(npy_header_message("{'descr': '<f4'}"),
            "f: the header: the key fortran_order is missing");
  EXPECT_EQ(npy_header_message("{'descr': '<f4', 'fortran_order': True}"),
            "f: the header: the key shape is missing");
  EXPECT_EQ(npy_header_message("{'descr': '<f4', 'descr': '<f8'}"),
            "f: the header: the key descr appears twice");
  EXPECT_EQ(npy_header_message("{'more': 1}"),
            "f: the header: got the key \"more\", need exactly descr, fortran_order and shape");
  EXPECT_EQ(npy_header_message("{'descr': '<f4'} x"), "f: the header: got \"x\", need its end");
  EXPECT_EQ(npy_header_message("{'descr' '<f4'}"), "f: the header: got \"'<f4'}\", need ':'");
  EXPECT_EQ(npy_header_message("{'descr': '<f4' 'shape'}"),
            "f: the header: got \"'shape'}\", need '}'");
  EXPECT_EQ(npy_header_message("{descr: '<f4'}"),
            "f: the header: got \"descr: '<f4'}\", need a string");
  EXPECT_EQ(npy_header_message("{'descr"),
            "f: the header: got \"descr\", need the end of a string");
  EXPECT_EQ(npy_header_message("{'descr': 4}"), "f: the header: got \"4}\", need a string");
  EXPECT_EQ(npy_header_message("{'fortran_order': 1}"),
            "f: the header: got \"1}\", need True or False");
  EXPECT_EQ(npy_header_message("{'fortran_order': __import__('os')}"),
            "f: the header: got \"__import__('os')}\", need True or False");
  EXPECT_EQ(npy_header_message(std::string("{\0}", 3)),
            "f: the header: got \"\\x00}\", need a string");
}

TEST(Npy, RefusesABadShape) {
  const auto shape = [](const std::string& text, const std::string& data = "") {
    return npy_header_message("{'descr': '<f4', 'fortran_order': False, 'shape': " + text + "}",
                              data);
  };
  EXPECT_EQ(shape("3"), "f: the header: got \"3}\", need '('");
  EXPECT_EQ(shape("(3)"), "f: the header: got a shape that is no tuple");
  EXPECT_EQ(shape("(-1,)"), "f: the header: got \"-1,)}\", need a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(shape("(1.5,)"), "f: the header: got \".5,)}\", need ')'");
  EXPECT_EQ(shape("(,)"), "f: the header: got \",)}\", need a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(shape("(9223372036854775808,)"),
            "f: the header: got \"9223372036854775808,\", need a whole number from 0 to 2^63 - 1");
  EXPECT_EQ(shape("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"),
            "f: has more than 16 axes, which is the most that a tensor can have");
  EXPECT_EQ(shape("(4294967296, 4294967296)"),
            "f: the shape (4294967296, 4294967296) takes more than 2^63 bytes");
  EXPECT_EQ(shape("(0, 4294967296, 4294967296)"),
            "f: the shape (0, 4294967296, 4294967296) takes more than 2^63 bytes");
  EXPECT_EQ(
      shape("(1000000000000,)", "1234"),
      "f: the shape (1000000000000,) of f32 takes 4000000000000 bytes, but 4 follow the header");
  EXPECT_EQ(shape("(2,)", "1234"),
            "f: the shape (2,) of f32 takes 8 bytes, but 4 follow the header");
  EXPECT_EQ(shape("(1,)", "12345"),
            "f: the shape (1,) of f32 takes 4 bytes, but 5 follow the header");
}

TEST(Npy, NamesElementTypesThatItDoesNotHold) {
  const std::string rest =
      "), which this library does not: convert it with NumPy's astype to bool, int8 to int64, "
      "uint8 to uint64 or float16 to float64 before saving";
  const std::pair<const char*, const char*> cases[] = {
      {"<u16", "uint128"},       {"<c8", "complex64"},     {"<c16", "complex128"},
      {"<f16", "float128"},      {"|O", "Python objects"}, {"|S5", "byte strings"},
      {"<U7", "strings"},        {"|V2", "raw memory"},    {"<M8[ns]", "dates"},
      {"<m8[s]", "time spans"},  {"<i16", "int128"},       {"<q9", "an unknown type"},
      {"|b2", "an unknown type"}};
  for (const auto& [descr, name] : cases)
    EXPECT_EQ(descr_message("'" + std::string(descr) + "'"),
              "f: holds " + std::string(name) + " (descr \"" + descr + "\"" + rest);
  EXPECT_EQ(
      descr_message("[('x', '<f4'), ('y', '<f4')]"),
      "f: holds records of several fields, which this library does not: save each field by itself");
  EXPECT_EQ(descr_message("''"), "f: the header: got the descr \"\", need one such as '<f4'");
  EXPECT_EQ(descr_message("'f4'"), "f: the header: got the descr \"f4\", need one such as '<f4'");
}

// Unsigned numbers of either order of bytes become the next wider signed ones.
TEST(Npy, WidensUnsignedNumbers) {
  const auto read = [](const char* descr, const std::string& bytes) {
    return npy_of(npy_file(
        "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (2,), }", bytes));
  };
  using Numbers = std::vector<std::int64_t>;
  const Tensor u16 = read("<u2", std::string("\x01\x00\xff\xff", 4));
  EXPECT_EQ(u16.type(), (TensorType{{2}, i32}));
  EXPECT_EQ(u16.to_vector<std::int64_t>(), (Numbers{1, 65535}));
  EXPECT_EQ(read(">u2", std::string("\x01\x00\xff\xfe", 4)).to_vector<std::int64_t>(),
            (Numbers{256, 65534}));
  const Tensor u32 = read("<u4", std::string("\x00\x00\x00\x80\xff\xff\xff\xff", 8));
  EXPECT_EQ(u32.type(), (TensorType{{2}, i64}));
  EXPECT_EQ(u32.to_vector<std::int64_t>(), (Numbers{1ll << 31, (1ll << 32) - 1}));
  const std::string most = std::string(7, '\xff') + '\x7f';
  EXPECT_EQ(read("<u8", most + std::string(8, '\0')).to_vector<std::int64_t>(),
            (Numbers{std::numeric_limits<std::int64_t>::max(), 0}));
  EXPECT_EQ(error_of([&] { read("<u8", most + std::string(7, '\0') + '\x80'); }),
            "f: holds the number 9223372036854775808, need numbers below 2^63: convert it to "
            "float64 before saving");
  EXPECT_EQ(error_of([&] { read("<u2", "12345"); }),
            "f: the shape (2,) of u16 takes 4 bytes, but 5 follow the header");
  const Tensor turned =
      npy_of(npy_file("{'descr': '<u2', 'fortran_order': True, 'shape': (2, 2), }",
                      std::string("1\0002\0003\0004\0", 8)));
  EXPECT_EQ(turned.to_vector<int>(), (std::vector<int>{'1', '3', '2', '4'}));
}

TEST(Npy, RefusesBoolsOtherThan0And1) {
  EXPECT_EQ(npy_header_message("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }",
                               "\x01\x01\xff"),
            "f: element 2 of bool is 255, need 0 or 1");
}

class NpyFile : public testing::FolderTest {};

TEST_F(NpyFile, WritesAndReadsBack) {
  Generator random(check::seed());
  const Tensor x = random.normal({3, 4, 5}, 0, 1, f64);
  for (const DType dtype : {boolean, u8, i8, i16, i32, i64, f16, f32, f64}) {
    const Tensor whole = random.randint(0, 2, {2, 3}, dtype);
    save_npy(path("x.npy"), whole);
    const Tensor back = load_npy(path("x.npy"));
    EXPECT_EQ(back.type(), whole.type());
    EXPECT_EQ(back.to_vector<double>(), whole.to_vector<double>());
  }
  for (const Tensor& view : std::vector<Tensor>{x, x.transpose(), flip(x, 1), x(slice(0, 3, 2)),
                                                x(1, 2, 3), x(slice(0, 0))}) {
    save_npy(path("x.npy"), view);
    const Tensor back = load_npy(path("x.npy"));
    EXPECT_EQ(back.type(), view.type());
    EXPECT_EQ(back.to_vector<double>(), view.to_vector<double>());
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(NpyFile, WritesTheVersionAndAlignmentThatNumpyWrites) {
  save_npy(path("x.npy"), arange(24).reshape({2, 3, 4}).astype(i16));
  const std::string text = testing::read_bytes(path("x.npy"));
  EXPECT_EQ(text.substr(0, 10), std::string("\x93NUMPY\x01\0v\0", 10));
  EXPECT_EQ(text[127], '\n');
  // NumPy's own file differs in nothing.
  EXPECT_EQ(text, testing::read_bytes(kNpyData + "c_order.npy"));
}

TEST_F(NpyFile, RefusesWhatCannotBeWritten) {
  EXPECT_EQ(error_of([&] { save_npy(path("x.npy"), ones({2}, bf16)); }),
            path("x.npy") + ": NumPy has no bf16: convert the tensor with astype(f32) first");
  EXPECT_EQ(
      error_of([&] { save_npy(path("x.npy"), Tensor()); }),
      path("x.npy") + ": the tensor: is undefined (default constructed): give it a value first");
  EXPECT_EQ(error_of([&] { save_npy(path("no/x.npy"), ones({2})); }),
            path("no/x.npy") + ": cannot be written: the folder " + path("no") +
                ": No such file or directory");
  EXPECT_EQ(error_of([&] { load_npy(path("x.npy")); }),
            path("x.npy") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace tensor
