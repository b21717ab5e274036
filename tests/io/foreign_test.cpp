// Archives of which one member is of a kind that no tensor holds: the others are there, and it says
// what it is when it is asked for.
#include <zlib.h>

#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/nn.h"
#include "tensor/ops.h"
#include "tests/io/io_testing.h"

namespace tensor {
namespace {

using check::error_of;

std::string in_bytes(std::uint64_t value, int width) {
  std::string text;
  for (int i = 0; i < width; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

// A zip archive of stored members.
std::string zip(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string text, directory;
  for (const auto& [name, content] : members) {
    const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
    const std::string common = in_bytes(20, 2) + in_bytes(0, 8) + in_bytes(crc, 4) +
                               in_bytes(content.size(), 4) + in_bytes(content.size(), 4) +
                               in_bytes(name.size(), 2) + in_bytes(0, 2);
    directory +=
        "PK\x01\x02" + in_bytes(20, 2) + common + in_bytes(0, 10) + in_bytes(text.size(), 4) + name;
    text += "PK\x03\x04" + common + name + content;
  }
  return text + directory + "PK\x05\x06" + in_bytes(0, 4) + in_bytes(members.size(), 2) +
         in_bytes(members.size(), 2) + in_bytes(directory.size(), 4) + in_bytes(text.size(), 4) +
         in_bytes(0, 2);
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  const std::string header =
      "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }\n";
  return std::string("\x93NUMPY\x02\0", 8) + in_bytes(header.size(), 4) + header + data;
}

const std::string kPlain = npy("'|u1'", "(3,)", "\x01\x02\x03");

TensorMap archive(const std::vector<std::pair<std::string, std::string>>& members) {
  return parse_npz(testing::bytes_of(zip(members)), "f");
}

struct Member {
  std::string file, content, name, why;
};

std::vector<Member> members() {
  const std::string types =
      "), which this library does not: convert it with NumPy's astype to bool, int8 to int64, "
      "uint8 to uint64 or float16 to float64 before saving";
  const std::string no_array = "is not called *.npy, so it is no array";
  return {
      {"a.npy", npy("'<U3'", "(1,)", std::string(12, 'a')), "a",
       "holds strings (descr \"<U3\"" + types},
      {"a.npy", npy("'|S2'", "(1,)", "ab"), "a", "holds byte strings (descr \"|S2\"" + types},
      {"a.npy", npy("'<c16'", "(1,)", std::string(16, 0)), "a",
       "holds complex128 (descr \"<c16\"" + types},
      {"a.npy", npy("'<u8'", "(1,)", std::string(8, '\xff')), "a",
       "holds the number 18446744073709551615, need numbers below 2^63: convert it to float64 "
       "before saving"},
      {"a.npy", npy("'|O'", "(1,)", "\x80\x04pickled."), "a",
       "holds Python objects (descr \"|O\"" + types},
      {"a.npy", npy("'<M8[ns]'", "()", std::string(8, 0)), "a",
       "holds dates (descr \"<M8[ns]\"" + types},
      {"a.npy", npy("'|V2'", "(1,)", "ab"), "a", "holds raw memory (descr \"|V2\"" + types},
      {"a.npy", npy("[('x', '<f4'), ('y', '|S1')]", "(1,)", "12345"), "a",
       "holds records of several fields, which this library does not: save each field by itself"},
      {"a.npy", npy("'|u1'", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", "1"), "a",
       "has more than 16 axes, which is the most that a tensor can have"},
      {"a.npy", npy("'<U" + std::string(70000, ' ') + "'", "(1,)", ""), "a",
       "claims a header of 70057 bytes, more than the 65536 that are read"},
      {"a.npy", std::string("\x93NUMPY\x04\0", 8) + "later", "a",
       "has version 4.0 of the npy format, need 1.0, 2.0 or 3.0"},
      {"a.npy", "", "a", "not an npy file: it has 0 bytes, need 10 at least"},
      {"__MACOSX/._x.npy", std::string("\0\5\x16\7 Mac OS X    ", 17), "__MACOSX/._x",
       "not an npy file: it does not begin with \\x93NUMPY"},
      {"README", "hello", "README", no_array},
      {"folder/", "", "folder/", no_array},
      {"x", "no array", "x", no_array},
      {".DS_Store", std::string(5000, 'q'), ".DS_Store", no_array}};
}

TEST(Foreign, TheOthersOfAnNpzAreThere) {
  for (const Member& member : members())
    for (const bool first : {false, true}) {
      std::vector<std::pair<std::string, std::string>> files = {{"plain.npy", kPlain}};
      files.insert(first ? files.begin() : files.end(), {member.file, member.content});
      const TensorMap arrays = archive(files);
      SCOPED_TRACE(member.file + ": " + member.why);
      EXPECT_EQ(arrays.size(), 1u);
      EXPECT_EQ(arrays.at("plain").to_vector<int>(), (std::vector<int>{1, 2, 3}));
      EXPECT_FALSE(arrays.contains(member.name));
      const std::string text = "f: entry \"" + member.file + "\": " + member.why;
      EXPECT_EQ(arrays.foreign, (std::map<std::string, std::string>{{member.name, text}}));
      EXPECT_EQ(error_of([&] { arrays.at(member.name); }), text);
    }
}

// An array is found beside a file that has its name.
TEST(Foreign, AnArrayComesFirst) {
  const TensorMap arrays = archive({{"x", "text"}, {"x.npy", kPlain}});
  EXPECT_EQ(arrays.at("x").size(), 3);
  EXPECT_EQ(arrays.foreign.size(), 1u);
}

// What is damaged makes all of the archive suspect, whatever it holds.
TEST(Foreign, DamageIsAnErrorOfTheFile) {
  for (const auto& [descr, data] :
       {std::pair<std::string, std::string>{"'<U1'", "abcd"}, {"'|u1'", "a"}}) {
    std::string text = zip({{"plain.npy", kPlain}, {"a.npy", npy(descr, "(1,)", data)}});
    text[text.find(data + "PK")] ^= 1;
    EXPECT_EQ(error_of([&] { parse_npz(testing::bytes_of(text), "f"); }),
              "f: entry \"a.npy\": is damaged: its checksum does not agree");
  }
  EXPECT_EQ(error_of([&] {
              archive({{"plain.npy", kPlain}, {"a.npy", npy("'|u1'", "(2,)", "a")}});
            }),
            "f: entry \"a.npy\": the shape (2,) of u8 takes 2 bytes, but 1 follow the header");
}

TEST(Foreign, ANameThatIsNotThere) {
  const TensorMap tensors = {{"weight", ones({2})}, {"bias", zeros({2})}};
  EXPECT_EQ(error_of([&] { tensors.at("weights"); }),
            "TensorMap: got the name \"weights\", which none of the 2 tensors has; did you mean "
            "\"weight\"?");
  EXPECT_EQ(error_of([&] { TensorMap().at("x"); }),
            "TensorMap: got the name \"x\", which none of the 0 tensors has");
}

// Loading a model asks for what the model needs.
TEST(Foreign, ParametersAreNeeded) {
  const std::string header =
      R"({"bias":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("seed":{"dtype":"C64","shape":[1],"data_offsets":[4,12]},)"
      R"("weight":{"dtype":"F8_E8M0","shape":[1,4],"data_offsets":[12,16]}})";
  Safetensors file = parse_safetensors(
      testing::bytes_of(in_bytes(header.size(), 8) + header + std::string(16, 0)), "f");
  nn::Linear layer{nn::parameter({1, 4}), nn::parameter({1})};
  const std::string one = "load: f does not fit the model: 1 problem:\n  ";
  EXPECT_EQ(error_of([&] { nn::load(layer, file.tensors, {.file = "f"}); }),
            one +
                "f: tensor \"weight\": has the dtype F8_E8M0, which this library does not hold: "
                "convert it to one of BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64");
  file.tensors.emplace("weight", ones({1, 4}));
  file.tensors.foreign.erase("weight");
  nn::load(layer, file.tensors, {.file = "f"});  // "seed" is not asked for
  EXPECT_EQ(layer.weight.item(0, 0), 1.0);
}

}  // namespace
}  // namespace tensor
