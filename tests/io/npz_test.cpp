// npz archives; tests/data/npy holds some that NumPy wrote. Hostile ones are made by changing bytes
// of a sound one.
#include <sys/mman.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <random>

#include "src/io/atomic_file.h"
#include "src/io/zip.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tests/io/io_testing.h"
#include "tests/seed.h"

namespace tensor {
namespace {

using check::error_of;

const std::string kNpzData = TENSOR_TEST_DATA "/npy/";

std::string npz_message(const std::string& text, std::int64_t max_bytes = 1 << 20) {
  return error_of([&] { parse_npz(testing::bytes_of(text), "f", max_bytes); });
}

std::string number(std::uint64_t value, int width) {
  std::string text;
  for (int i = 0; i < width; ++i) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  return text;
}
// `text` with a little-endian number written at `at`.
std::string with(std::string text, std::size_t at, std::uint64_t value, int width) {
  return text.replace(at, static_cast<std::size_t>(width), number(value, width));
}

void expect_numpys_values(const std::map<std::string, Tensor>& arrays) {
  ASSERT_EQ(arrays.size(), 9u);
  EXPECT_EQ(arrays.at("bool").to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(arrays.at("uint8").to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 1, 255}));
  EXPECT_EQ(arrays.at("int8").to_vector<std::int8_t>(), (std::vector<std::int8_t>{-128, 0, 127}));
  EXPECT_EQ(arrays.at("int16").to_vector<std::int16_t>(),
            (std::vector<std::int16_t>{-32768, 7, 32767}));
  EXPECT_EQ(arrays.at("int32").to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{INT32_MIN, 7, INT32_MAX}));
  EXPECT_EQ(arrays.at("int64").to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{INT64_MIN, 7, INT64_MAX}));
  EXPECT_EQ(arrays.at("float16").dtype(), f16);
  EXPECT_EQ(arrays.at("float16").to_vector<float>(),
            (std::vector<float>{-1.5f, 65504, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(arrays.at("float32").item<float>(0), -1.5f);
  EXPECT_EQ(arrays.at("float32").item<float>(1), 1e30f);
  EXPECT_TRUE(std::isnan(arrays.at("float32").item<float>(2)));
  EXPECT_EQ(arrays.at("float64").to_vector<double>(), (std::vector<double>{-1.5, 1e300, 5e-324}));
}

TEST(Npz, ReadsWhatNumpyWrote) {
  expect_numpys_values(load_npz(kNpzData + "types.npz"));
  expect_numpys_values(load_npz(kNpzData + "types_big_endian.npz"));
  const auto layers = load_npz(kNpzData + "layers.npz");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers.at("block.0/weight").type(), (TensorType{{2, 3, 4}, f32}));
  EXPECT_EQ(layers.at("block.0/weight").to_vector<int>(), arange(24).to_vector<int>());
  EXPECT_EQ(layers.at("bias").to_vector<double>(), std::vector<double>(1000, 0.0));
  EXPECT_EQ(load_npz(kNpzData + "streamed.npz").at("cube").to_vector<int>(),
            arange(24).to_vector<int>());
}

class NpzFile : public testing::FolderTest {
 protected:
  // The bytes of an archive with these arrays.
  std::string archive(const std::map<std::string, Tensor>& tensors, bool compressed = false) {
    save_npz(path("made.npz"), tensors, compressed);
    return testing::read_bytes(path("made.npz"));
  }
};

TEST_F(NpzFile, WritesAndReadsBack) {
  Generator random(check::seed());
  const Tensor x = random.normal({30, 40});
  const std::map<std::string, Tensor> tensors = {
      {"x", x},
      {"turned", x.transpose()},
      {"a/b.c \xc3\xa9", random.randint(0, 9, {1000}, u8)},
      {"none", zeros({0, 2})},
      {"one", Tensor(true)}};
  for (const bool compressed : {false, true}) {
    save_npz(path("x.npz"), tensors, compressed);
    const auto back = load_npz(path("x.npz"));
    ASSERT_EQ(back.size(), tensors.size());
    for (const auto& [name, y] : tensors) {
      EXPECT_EQ(back.at(name).type(), y.type()) << name;
      EXPECT_EQ(back.at(name).to_vector<double>(), y.to_vector<double>()) << name;
    }
  }
  EXPECT_LT(archive({{"x", zeros({1000})}}, true).size(), 400u);
  EXPECT_TRUE(parse_npz(testing::bytes_of(archive({})), "f").empty());
}

TEST_F(NpzFile, RefusesWhatCannotBeWritten) {
  EXPECT_EQ(error_of([&] {
              save_npz(path("x.npz"), {{"a", ones({2}, bf16)}});
            }),
            path("x.npz") +
                ": tensor \"a\": NumPy has no bf16: convert the tensor with astype(f32) first");
  EXPECT_EQ(
      error_of([&] {
        save_npz(path("x.npz"), {{"a", Tensor()}});
      }),
      path("x.npz") + ": tensor \"a\": is undefined (default constructed): give it a value first");
  EXPECT_EQ(error_of([&] {
              save_npz(path("x.npz"), {{std::string(65532, 'a'), ones({2})}});
            }),
            path("x.npz") +
                ": cannot be written: an npz file takes 4 GB in all and names of 65535 bytes; save "
                "as safetensors");
  EXPECT_EQ(error_of([&] {
              save_npz(path("x.npz"), {{"\xff", ones({2})}});
            }),
            path("x.npz") + ": cannot be written: the name or metadata \"\\xff\" is not UTF-8");
  std::map<std::string, Tensor> many;
  for (int i = 0; i < 65535; ++i) many.emplace(std::to_string(i), Tensor(true));
  EXPECT_EQ(
      error_of([&] { save_npz(path("x.npz"), many); }),
      path("x.npz") + ": cannot be written: an npz file takes 65534 tensors; save as safetensors");
  EXPECT_EQ(files(), 0u);
}

// 4 GB less one byte, which read as zeros and take no memory, do not fit behind a header, and what
// fits leaves no room for the directory.
TEST_F(NpzFile, RefusesArchivesOf4GB) {
  constexpr std::size_t kLargest = 0xfffffffe, kHeader = 31;  // with a name of one byte
  void* const memory =
      ::mmap(nullptr, kLargest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::span body(static_cast<const std::byte*>(memory), kLargest);
  const std::string expected =
      "f: cannot be written: an npz file takes 4 GB in all and names of 65535 bytes; save as "
      "safetensors";
  std::filesystem::create_symlink("/dev/null", path("null"));
  AtomicFile file(path("null"));
  ZipWriter zip(file, "f");
  EXPECT_EQ(error_of([&] { zip.add("a", "", body.first(kLargest - kHeader + 1), false); }),
            expected);
  zip.add("a", "", body.first(kLargest - kHeader), false);
  EXPECT_EQ(error_of([&] { zip.finish(); }), expected);
  ::munmap(memory, kLargest);
}

// One stored array of 3 bytes: local header at 0, content at 35, directory at 166, end record at
// 217.
class HostileNpz : public NpzFile {
 protected:
  void SetUp() override {
    sound_ = archive({{"a", ones({3}, u8)}});
    ASSERT_EQ(sound_.size(), 239u);
  }
  static constexpr std::size_t kDirectory = 166, kEnd = 217;
  std::string sound_;
};

TEST_F(HostileNpz, End) {
  EXPECT_EQ(npz_message(sound_), "no error");
  EXPECT_EQ(npz_message("PK"), "f: not an npz file: it has 2 bytes, need 22 at least");
  EXPECT_EQ(npz_message(sound_.substr(0, 238)),
            "f: not an npz file: it does not end as a zip archive does");
  EXPECT_EQ(npz_message(sound_ + "x"), "f: not an npz file: it does not end as a zip archive does");
  EXPECT_EQ(npz_message(std::string(70000, 'x')),
            "f: not an npz file: it does not end as a zip archive does");
  EXPECT_EQ(npz_message(with(sound_, kEnd + 20, 4, 2) + "note"), "no error");
  EXPECT_EQ(npz_message(with(sound_, kEnd + 4, 1, 2)),
            "f: is one part of an archive in several parts");
  EXPECT_EQ(npz_message(with(sound_, kEnd + 8, 2, 2)),
            "f: is one part of an archive in several parts");
  EXPECT_EQ(npz_message(with(sound_, kEnd + 16, 1000, 4)),
            "f: the archive's directory is damaged: it claims 51 bytes from byte 1000 on, but ends "
            "at byte 217");
  EXPECT_EQ(npz_message(with(sound_, kEnd + 12, 50, 4)),
            "f: the archive's directory is damaged: it claims 50 bytes from byte 166 on, but ends "
            "at byte 217");
  EXPECT_EQ(npz_message(with(with(sound_, kEnd + 8, 2, 2), kEnd + 10, 2, 2)),
            "f: the archive's directory is damaged: it claims 2 entries in 51 bytes");
  EXPECT_EQ(npz_message(with(with(sound_, kEnd + 8, 0, 2), kEnd + 10, 0, 2)),
            "f: the archive's directory holds more than its entries");
}

TEST_F(HostileNpz, Directory) {
  const auto entry = [&](std::size_t at, std::uint64_t value, int width) {
    return npz_message(with(sound_, kDirectory + at, value, width));
  };
  EXPECT_EQ(entry(0, 0, 4), "f: the archive's directory is damaged at byte 166");
  EXPECT_EQ(entry(28, 6, 2), "f: the archive's directory is damaged at byte 166");
  EXPECT_EQ(entry(32, 1, 2), "f: the archive's directory is damaged at byte 166");
  EXPECT_EQ(entry(10, 12, 2),
            "f: entry \"a.npy\": its header differs from the archive's directory");
  EXPECT_EQ(entry(10, 8, 2), "f: entry \"a.npy\": its header differs from the archive's directory");
  EXPECT_EQ(entry(16, 0, 4), "f: entry \"a.npy\": is damaged: its checksum does not agree");
  EXPECT_EQ(
      entry(20, 1000, 4),
      "f: entry \"a.npy\": claims to unpack 1000 bytes from byte 0 on to 131, which cannot be");
  EXPECT_EQ(
      entry(24, 130, 4),
      "f: entry \"a.npy\": claims to unpack 131 bytes from byte 0 on to 130, which cannot be");
  EXPECT_EQ(
      entry(42, 1000, 4),
      "f: entry \"a.npy\": claims to unpack 131 bytes from byte 1000 on to 131, which cannot be");
  EXPECT_EQ(entry(42, 150, 4), "f: entry \"a.npy\": begins behind the archive's directory");
  EXPECT_EQ(entry(42, 1, 4), "f: entry \"a.npy\": its header differs from the archive's directory");
  EXPECT_EQ(entry(46, 'b', 1),
            "f: entry \"b.npy\": its header differs from the archive's directory");
  EXPECT_EQ(npz_message(with(with(sound_, kDirectory + 20, 132, 4), kDirectory + 24, 132, 4)),
            "f: entry \"a.npy\": reaches into the archive's directory");
  // Content shorter than the npy header says: here, too.
  EXPECT_EQ(npz_message(with(with(sound_, kDirectory + 20, 130, 4), kDirectory + 24, 130, 4)),
            "f: entry \"a.npy\": the shape (3,) of u8 takes 3 bytes, but 2 follow the header");
}

TEST_F(HostileNpz, WhatCannotBeUnpackedIsForeign) {
  const auto foreign = [](const std::string& text, const std::string& name) {
    const TensorMap arrays = parse_npz(testing::bytes_of(text), "f");
    EXPECT_TRUE(arrays.empty());
    return error_of([&] { arrays.at(name); });
  };
  EXPECT_EQ(foreign(with(sound_, kDirectory + 8, 1, 2), "a"),
            "f: entry \"a.npy\": is encrypted, which this library does not read");
  EXPECT_EQ(foreign(with(with(sound_, kDirectory + 10, 12, 2), 8, 12, 2), "a"),
            "f: entry \"a.npy\": is packed by the method 12, need 0 (stored) or 8 (deflated)");
  EXPECT_EQ(foreign(with(with(sound_, kDirectory + 50, 'z', 1), 34, 'z', 1), "a.npz"),
            "f: entry \"a.npz\": is not called *.npy, so it is no array");
}

TEST_F(HostileNpz, EntriesThatRepeatOrOverlap) {
  const std::string two = archive({{"a", ones({3}, u8)}, {"b", ones({3}, u8)}});
  const std::size_t directory = 2 * 166;
  EXPECT_EQ(npz_message(with(two, directory + 51 + 42, 0, 4)),
            "f: entry \"b.npy\": its header differs from the archive's directory");
  EXPECT_EQ(
      npz_message(with(with(with(two, directory + 51 + 42, 0, 4), directory + 51 + 46, 'a', 1),
                       166 + 30, 'a', 1)),
      "f: entry \"a.npy\": appears twice");
  // The first entry claims the bytes of the second as well.
  EXPECT_EQ(npz_message(with(with(two, directory + 20, 140, 4), directory + 24, 140, 4)),
            "f: entry \"b.npy\": shares bytes with the entry \"a.npy\"");
  EXPECT_EQ(npz_message(with(two, directory + 30, 60, 2)),
            "f: the archive's directory is damaged at byte 332");
}

// An archive of one deflated entry with that packed content and claimed size.
std::string deflated_archive(const std::string& packed, std::uint64_t size, std::uint64_t crc) {
  const std::string common = number(20, 2) + number(0, 2) + number(8, 2) + number(0, 4) +
                             number(crc, 4) + number(packed.size(), 4) + number(size, 4) +
                             number(5, 2) + number(0, 2);
  const std::string local = "PK\x03\x04" + common + "a.npy" + packed;
  const std::string entry = "PK\x01\x02" + number(20, 2) + common + number(0, 14) + "a.npy";
  return local + entry + "PK\x05\x06" + number(0, 4) + number(1, 2) + number(1, 2) +
         number(entry.size(), 4) + number(local.size(), 4) + number(0, 2);
}

std::string deflate_raw(const std::string& text) {
  std::string packed(text.size() + 100, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string copy = text;
  stream.next_in = reinterpret_cast<Bytef*>(copy.data());
  stream.avail_in = static_cast<uInt>(copy.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class DeflatedNpz : public NpzFile {
 protected:
  void SetUp() override {
    save_npy(path("a.npy"), zeros({5000}, u8));
    content_ = testing::read_bytes(path("a.npy"));
    packed_ = deflate_raw(content_);
    crc_ = crc32_z(0, reinterpret_cast<const Bytef*>(content_.data()), content_.size());
  }
  std::string content_, packed_;
  std::uint64_t crc_ = 0;
};

TEST_F(DeflatedNpz, RefusesDamage) {
  EXPECT_EQ(npz_message(deflated_archive(packed_, content_.size(), crc_)), "no error");
  EXPECT_EQ(npz_message(deflated_archive(packed_, content_.size(), crc_ ^ 1)),
            "f: entry \"a.npy\": is damaged: its checksum does not agree");
  EXPECT_EQ(npz_message(deflated_archive(packed_ + "x", content_.size(), crc_)),
            "f: entry \"a.npy\": is damaged: bytes follow the end of the packed data");
  EXPECT_EQ(
      npz_message(deflated_archive(packed_.substr(0, packed_.size() - 2), content_.size(), crc_)),
      "f: entry \"a.npy\": is damaged: the packed data end too early");
  EXPECT_EQ(npz_message(deflated_archive("\xff\xff\xff\xff", 200, crc_)),
            "f: entry \"a.npy\": is damaged: invalid block type");
}

TEST_F(DeflatedNpz, RefusesBombs) {
  // A claim that deflate cannot keep.
  EXPECT_EQ(npz_message(deflated_archive(packed_, 4'000'000'000, crc_), std::int64_t{1} << 40),
            "f: entry \"a.npy\": claims to unpack " + std::to_string(packed_.size()) +
                " bytes from byte 0 on to 4000000000, which cannot be");
  EXPECT_EQ(
      npz_message(deflated_archive(packed_, content_.size(), crc_), 5127),
      "f: entry \"a.npy\": unpacks to 5128 bytes, more than the 5127 that are left to unpack");
  // More content than the npy header promises, claimed or not.
  const std::string more = deflate_raw(content_ + std::string(50, '\0'));
  EXPECT_EQ(
      npz_message(deflated_archive(more, content_.size() + 50, crc_)),
      "f: entry \"a.npy\": the shape (5000,) of u8 takes 5000 bytes, but 5050 follow the header");
  EXPECT_EQ(npz_message(deflated_archive(more, content_.size(), crc_)),
            "f: entry \"a.npy\": is damaged: it unpacks to more bytes than it claims");
  const std::string less = deflate_raw(content_.substr(0, 4000));
  EXPECT_EQ(npz_message(deflated_archive(less, content_.size(), crc_)),
            "f: entry \"a.npy\": is damaged: it unpacks to fewer bytes than it claims");
  EXPECT_EQ(npz_message(deflated_archive(deflate_raw("\x93NUMPY"), 6, crc_)),
            "f: entry \"a.npy\": is damaged: its checksum does not agree");
}

// The same entry with its sizes and place in a zip64 field, and the directory's place in a zip64
// end record.
class Npz64 : public HostileNpz {
 protected:
  std::string archive64(const std::string& extra,
                        const std::string& locator_offset = number(166 + 51 + 28, 8)) const {
    const std::string entry =
        with(with(with(with(sound_.substr(kDirectory, 51), 20, 0xffffffff, 4), 24, 0xffffffff, 4),
                  42, 0xffffffff, 4),
             30, extra.size(), 2) +
        extra;
    const std::string record = "PK\x06\x06" + number(44, 8) + number(45, 2) + number(45, 2) +
                               number(0, 4) + number(0, 4) + number(1, 8) + number(1, 8) +
                               number(entry.size(), 8) + number(kDirectory, 8);
    const std::string locator = "PK\x06\x07" + number(0, 4) + locator_offset + number(1, 4);
    const std::string end = "PK\x05\x06" + number(0, 4) + number(0xffff, 2) + number(0xffff, 2) +
                            number(0xffffffff, 4) + number(0xffffffff, 4) + number(0, 2);
    return sound_.substr(0, kDirectory) + entry + record + locator + end;
  }
};

TEST_F(Npz64, ReadsZip64) {
  const std::string field =
      number(1, 2) + number(24, 2) + number(131, 8) + number(131, 8) + number(0, 8);
  EXPECT_EQ(npz_message(archive64(field)), "no error");
  EXPECT_EQ(parse_npz(testing::bytes_of(archive64(field)), "f").at("a").to_vector<int>(),
            (std::vector<int>{1, 1, 1}));
  // Behind a field of another kind.
  const std::string other = number(0x5455, 2) + number(4, 2) + "time";
  EXPECT_EQ(npz_message(archive64(other + field, number(166 + 51 + 36, 8))), "no error");
  EXPECT_EQ(npz_message(archive64(field, number(5, 8))),
            "f: the zip64 record at the end is damaged");
}

TEST_F(Npz64, RefusesBadFields) {
  const auto field_message = [&](const std::string& field) {
    return npz_message(archive64(field, number(166 + 51 + field.size(), 8)));
  };
  EXPECT_EQ(field_message(""), "f: entry \"a.npy\": has no zip64 field, which its sizes need");
  EXPECT_EQ(field_message(number(1, 2) + number(8, 2) + number(131, 8)),
            "f: entry \"a.npy\": has a damaged zip64 field");
  EXPECT_EQ(field_message(number(1, 2) + number(30, 2) + number(131, 8)),
            "f: entry \"a.npy\": has a damaged extra field");
  EXPECT_EQ(field_message(number(1, 2) + number(24, 2) + number(~0ull, 8) + number(131, 8) +
                          number(0, 8)),
            "f: entry \"a.npy\": claims to unpack 131 bytes from byte 0 on to "
            "18446744073709551615, which cannot be");
}

}  // namespace
}  // namespace tensor
