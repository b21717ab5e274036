// Helpers of the tests of files: a folder of their own, whole files as bytes, and the text of an
// expected error.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tensor/io.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace tensor::testing {

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  EXPECT_TRUE(file.flush()) << path;
}

/// A test with an empty folder that is removed afterwards.
class FolderTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

  const check::TemporaryFolder folder_;
};

// A file with that header, its length in front, and `data` zero bytes behind.
inline std::string safetensors_file(const std::string& header, std::size_t data = 0) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data, '\0');
}

inline Safetensors safetensors_of(const std::string& text) {
  return parse_safetensors(bytes_of(text), "f");
}
inline std::string safetensors_message(const std::string& text) {
  return check::error_of([&] { safetensors_of(text); });
}
inline std::string safetensors_header_message(const std::string& header, std::size_t data = 0) {
  return safetensors_message(safetensors_file(header, data));
}

}  // namespace tensor::testing
