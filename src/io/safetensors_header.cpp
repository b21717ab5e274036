#include "src/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "src/io/bytes.h"
#include "src/io/elements.h"
#include "src/io/json_reader.h"
#include "src/io/safetensors_dtype.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor {
namespace {

// Follows the header's JSON: {"name": {"dtype": text, "shape": [...], "data_offsets": [begin,
// end]}, ...}.
class HeaderReader final : public JsonEvents {
 public:
  HeaderReader(const Source& source, SafetensorsHeader& header)
      : file_(source.name()), header_(header), data_size_(source.size() - header.data_start) {}

  void key(std::string name) override {
    if (depth_ == 1)
      entry_.name = std::move(name);
    else
      key_ = std::move(name);
    if (depth_ != 2 || in_metadata()) return;
    if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
      fail_entry("got the key ", in_quotes(key_), ", need exactly dtype, shape and data_offsets");
  }

  void scalar(JsonScalar value) override {
    if (depth_ == 1) fail_no_object();
    auto* text = std::get_if<std::string>(&value);
    if (in_metadata()) {
      if (!text) fail_entry("the value of ", in_quotes(key_), " is not a string");
      header_.metadata.emplace(std::move(key_), std::move(*text));
      check_count();
    } else if (depth_ == 3) {
      const auto* number = std::get_if<std::int64_t>(&value);
      if (!number || *number < 0)
        fail_entry(key_, " holds something other than whole numbers from 0 to 2^63 - 1");
      add_number(*number);
    } else {
      if (key_ != "dtype" || !text)
        fail_entry(key_, " is not ", key_ == "dtype" ? "a string" : "an array");
      dtype_ = std::move(*text);
    }
  }

  void begin(bool object) override {
    const bool expected =
        depth_ < 2 ? object : depth_ == 2 && !object && !in_metadata() && key_ != "dtype";
    if (!expected && depth_ == 1) fail_no_object();
    if (!expected && in_metadata())
      fail_entry("the value of ", in_quotes(key_), " is not a string");
    if (!expected && depth_ == 2)
      fail_entry(key_, " is not ", key_ == "dtype" ? "a string" : "an array");
    if (!expected) fail_entry(key_, " holds something other than whole numbers from 0 to 2^63 - 1");
    if (depth_ == 2) (key_ == "shape" ? shape_ : offsets_).emplace();
    ++depth_;
  }

  void end() override {
    --depth_;
    if (depth_ != 1) return;
    if (!in_metadata()) finish_entry();
    dtype_.reset();
    shape_.reset();
    has_more_axes_ = false;
    offsets_.reset();
  }

 private:
  bool in_metadata() const { return entry_.name == "__metadata__"; }

  template <class... Parts>
  [[noreturn]] void fail_entry(const Parts&... parts) const {
    if (in_metadata()) fail(file_, "__metadata__: ", parts...);
    fail(file_, "tensor ", in_quotes(entry_.name), ": ", parts...);
  }

  [[noreturn]] void fail_no_object() const {
    fail_entry(in_metadata() ? "need an object of strings"
                             : "need an object with dtype, shape and data_offsets");
  }

  void add_number(std::int64_t number) {
    std::vector<std::int64_t>& list = key_ == "shape" ? *shape_ : *offsets_;
    if (key_ == "shape" && list.size() == kMaxRank) {
      has_more_axes_ = true;
      return;
    }
    if (key_ == "data_offsets" && list.size() == 2)
      fail_entry("data_offsets holds more than 2 numbers");
    list.push_back(number);
  }

  void finish_entry() {
    if (!dtype_ || !shape_ || !offsets_)
      fail_entry("the key ", !dtype_ ? "dtype" : !shape_ ? "shape" : "data_offsets", " is missing");
    if (offsets_->size() != 2) fail_entry("data_offsets holds fewer than 2 numbers");
    const std::optional<DType> dtype = safetensors_dtype(*dtype_);
    entry_.narrow = narrow_safetensors_dtype(*dtype_);
    const std::optional<int> bits = dtype ? static_cast<int>(8 * item_size(*dtype))
                                    : entry_.narrow
                                        ? static_cast<int>(8 * item_size(*entry_.narrow))
                                        : foreign_safetensors_bits(*dtype_);
    if (!bits)
      fail_entry("has the unknown dtype ", in_quotes(*dtype_), ", need one of ",
                 kSafetensorsDtypes);
    entry_.dtype = entry_.narrow ? widened_dtype(*entry_.narrow) : dtype.value_or(u8);
    entry_.shape = Shape(std::span<const std::int64_t>(*shape_));
    entry_.begin = offsets_->front();
    entry_.end = offsets_->back();
    entry_.foreign = why_foreign(dtype || entry_.narrow);
    check_size(*bits);
    header_.entries.push_back(entry_);
    check_count();
  }

  std::string why_foreign(bool is_held) const {
    TextWriter text;
    text << file_ << ": tensor " << in_quotes(entry_.name) << ": ";
    if (!is_held)
      text << "has the dtype " << *dtype_
           << ", which this library does not hold: convert it to one of " << kSafetensorsDtypes;
    else if (has_more_axes_)
      text << "has more than " << kMaxRank << " axes, which is the most that a tensor can have";
    else
      return {};
    return text.str();
  }

  void check_count() const {
    const std::uint64_t most = most_safetensors_names(data_size_);
    if (header_.entries.size() + header_.metadata.size() > most)
      fail(file_, "has more than ", most, " tensors and metadata, the most for ", data_size_,
           " bytes of data");
  }

  // Elements of less than a byte lie without gaps.
  void check_size(int bits) const {
    const auto count = checked_bytes({entry_.shape, u8});
    const std::int64_t rest = count.value_or(0) % 8 * bits;
    std::int64_t bytes = 0;
    if (!count || __builtin_mul_overflow(*count / 8, bits, &bytes) ||
        __builtin_add_overflow(bytes, (rest + 7) / 8, &bytes))
      fail_entry("the shape ", entry_.shape, " takes more than 2^63 bytes");
    if (entry_.begin > entry_.end || (!has_more_axes_ && entry_.end - entry_.begin != bytes))
      fail_entry("the shape ", entry_.shape, " of ", *dtype_, " takes ", bytes,
                 " bytes, but data_offsets are ", entry_.begin, " and ", entry_.end);
    if (rest % 8 != 0)
      fail_entry("the shape ", entry_.shape, " of ", *dtype_, " does not fill its last byte");
  }

  const std::string& file_;
  SafetensorsHeader& header_;
  std::int64_t data_size_;
  int depth_ = 0;
  std::string key_;         // within an entry
  SafetensorsEntry entry_;  // the one being read
  std::optional<std::string> dtype_;
  std::optional<std::vector<std::int64_t>> shape_, offsets_;
  bool has_more_axes_ = false;  // than a tensor can have; the shape has the first ones
};

// Sorts by offset; the tensors must follow each other and end with the data.
void check_layout(const Source& source, SafetensorsHeader& header) {
  auto& entries = header.entries;
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  const std::int64_t data_size = source.size() - header.data_start;
  std::int64_t position = 0;
  const std::string* before = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < position)
      fail(source.name(), "tensor ", in_quotes(entry.name), " begins at byte ", entry.begin,
           " of the data, inside tensor ", in_quotes(*before), ", which ends at ", position);
    if (entry.begin > position)
      fail(source.name(), "tensor ", in_quotes(entry.name), " begins at byte ", entry.begin,
           " of the data, but ", position, " is expected: no bytes may lie between tensors");
    if (entry.end > data_size)
      fail(source.name(), "is cut short: tensor ", in_quotes(entry.name), " ends at byte ",
           entry.end, " of the data, of which the file has ", data_size);
    position = entry.end;
    before = &entry.name;
  }
  if (position != data_size)
    fail(source.name(), "has ", data_size - position, " bytes after the last tensor, need none");
}

// What downloads leave behind in place of a file.
void refuse_other_files(const Source& source) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  const std::string start =
      source.read_text(0, std::min(source.size(), static_cast<std::int64_t>(kPointer.size())));
  if (start == kPointer)
    fail(source.name(), "is a Git LFS pointer, not the file itself: run git lfs pull");
  if (start.starts_with('<')) fail(source.name(), "is an HTML page: the download failed");
}

}  // namespace

SafetensorsHeader read_safetensors_header(const Source& source) {
  if (source.size() < 8)
    fail(source.name(), "not a safetensors file: it has ", source.size(),
         " bytes, need 8 at least");
  std::array<std::byte, 8> prefix;
  source.read(0, prefix);
  const std::uint64_t length = little_endian(prefix, 0, 8);
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeader)) {
    refuse_other_files(source);
    fail(source.name(), "not a safetensors file: it claims a header of ", length,
         " bytes, the format allows ", kMaxSafetensorsHeader);
  }
  const auto header_size = static_cast<std::int64_t>(length);
  if (header_size > source.size() - 8)
    fail(source.name(), "is cut short: the header takes ", header_size, " bytes, the file has ",
         source.size() - 8, " after the first 8");
  const std::string text = source.read_text(8, header_size);
  if (!text.starts_with('{'))
    fail(source.name(), "not a safetensors file: the header does not begin with {");

  SafetensorsHeader header;
  header.data_start = 8 + header_size;
  HeaderReader reader(source, header);
  read_json(text, source.name() + ": header", reader);
  check_layout(source, header);
  return header;
}

}  // namespace tensor
