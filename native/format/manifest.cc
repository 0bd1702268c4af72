#include "format/manifest.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "base/crc32c.h"
#include "format/named_values.h"
#include "format/record.h"

namespace deepfreeze {
namespace {

// The named value of rank 0's record with the manifest's named values: docs/format.md, "Named values".
constexpr char kManifestValues[] = "manifest";

std::string Time(int64_t seconds) {
  const time_t time = static_cast<time_t>(seconds);
  struct tm utc = {};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string Body(const Manifest& manifest) {
  const Identity& id = manifest.identity;
  const bool first = manifest.version == kFirstVersion;
  std::string text = "{\n  \"format\": " + std::to_string(manifest.version) +
                     ",\n  \"step\": " + std::to_string(id.step) + ",\n  \"attempt\": \"" + Hex(id.attempt) +
                     "\",\n  \"run_id\": \"" + Hex(id.run_id) + "\",\n  \"structure\": \"" + Hex(id.structure) +
                     "\",\n  \"world_size\": " + std::to_string(id.world) +
                     ",\n  \"file_size\": " + std::to_string(id.file_size) + ",\n  \"created\": \"" +
                     Time(manifest.created) + "\",\n  \"diverged\": " + std::to_string(manifest.diverged) +
                     (first ? "" : ",\n  \"values\": " + manifest.values) + ",\n  \"records\": [\n";
  for (size_t i = 0; i < manifest.records.size(); ++i) {
    const ManifestRecord& r = manifest.records[i];
    text += "    {\"rank\": " + std::to_string(r.rank) + ", \"bytes\": " + std::to_string(r.bytes) +
            ", \"extents\": " + std::to_string(r.extents) + ", \"private\": " + std::to_string(r.private_size) +
            (first ? "" : ", \"values\": " + std::to_string(r.values_size)) + ", \"size\": " + std::to_string(r.size) +
            ", \"crc32c\": \"" + Hex32(r.crc) + (i + 1 < manifest.records.size() ? "\"},\n" : "\"}\n");
  }
  return text + "  ],\n";
}

// Whether the numbers fit together: each record has a size that a record can have, and the extents of all records add
// up to the size of the file.
bool Consistent(const Manifest& manifest) {
  const uint64_t file_size = manifest.identity.file_size;
  uint64_t left = file_size;
  const uint64_t less = manifest.version == kFirstVersion ? kRecordHeader - kRecordHeader1 : 0;
  for (const ManifestRecord& r : manifest.records) {
    uint64_t size = 0;
    if (r.bytes > left || !RecordSize(r.extents, r.private_size, r.values_size, &size)) return false;
    if (size - less != r.size) return false;
    left -= r.bytes;
  }
  return left == 0 && file_size > 0 && file_size <= kMaxFileSize && manifest.records.size() == manifest.identity.world;
}

// Reads the text token by token. `ok` is false after the first token that was not there.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}
  bool ok() const { return ok_; }

  void Literal(std::string_view literal) {
    ok_ = ok_ && rest_.substr(0, literal.size()) == literal;
    if (ok_) rest_.remove_prefix(literal.size());
  }
  bool At(std::string_view literal) const { return ok_ && rest_.substr(0, literal.size()) == literal; }
  uint64_t Number() {
    uint64_t value = 0;
    size_t n = 0;
    while (n < rest_.size() && n < 19 && rest_[n] >= '0' && rest_[n] <= '9')
      value = value * 10 + uint64_t(rest_[n++] - '0');
    ok_ = ok_ && n > 0;
    if (ok_) rest_.remove_prefix(n);
    return value;
  }
  // The object that the line holds, without the comma at its end.
  std::string Object() {
    const size_t end = rest_.substr(0, rest_.find('\n')).rfind('}');
    ok_ = ok_ && At("{") && end != std::string_view::npos;
    if (!ok_) return "";
    const std::string object(rest_.substr(0, end + 1));
    rest_.remove_prefix(end + 1);
    return object;
  }
  void Bytes(uint8_t* to, size_t n) {
    ok_ = ok_ && Unhex(rest_.substr(0, 2 * n), to, n);
    if (ok_) rest_.remove_prefix(2 * n);
  }
  uint32_t Crc() {
    uint8_t b[4] = {};
    Bytes(b, 4);
    return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
  }
  int64_t Timestamp() {
    struct tm utc = {};
    const std::string text(rest_.substr(0, 20));
    ok_ = ok_ && text.size() == 20 &&
          std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour,
                      &utc.tm_min, &utc.tm_sec) == 6;
    if (!ok_) return 0;
    rest_.remove_prefix(20);
    utc.tm_year -= 1900;
    utc.tm_mon -= 1;
    return static_cast<int64_t>(timegm(&utc));
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

std::string EncodeManifest(const Manifest& manifest) {
  const std::string body = Body(manifest);
  return body + "  \"crc32c\": \"" + Hex32(Crc32c(0, body.data(), body.size())) + "\"\n}\n";
}

Status TakeManifestValues(const std::string& section, const std::string& where, std::string* values) {
  std::string_view text;
  if (!FindNamedValue(section, kManifestValues, &text)) return {};
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  const bool object = text.size() >= 2 && text.front() == '{' && text.back() == '}';
  if (!object || !std::all_of(text.begin(), text.end(), printable)) {
    return Malformed(where, "a JSON object on one line, for the manifest",
                     std::to_string(text.size()) + " other bytes");
  }
  *values = text;
  return {};
}

Status DecodeManifest(const std::string& bytes, const std::string& where, Manifest* manifest) {
  *manifest = Manifest();
  Identity& id = manifest->identity;
  Scanner scan(bytes);
  scan.Literal("{\n  \"format\": ");
  manifest->version = static_cast<uint32_t>(scan.Number());
  const bool first = manifest->version == kFirstVersion;
  if (scan.ok()) DF_RETURN_IF_ERROR(CheckVersion(manifest->version, where));
  scan.Literal(",\n  \"step\": ");
  id.step = static_cast<int64_t>(scan.Number());
  scan.Literal(",\n  \"attempt\": \"");
  scan.Bytes(id.attempt.data(), 16);
  scan.Literal("\",\n  \"run_id\": \"");
  scan.Bytes(id.run_id.data(), 16);
  scan.Literal("\",\n  \"structure\": \"");
  scan.Bytes(id.structure.data(), 32);
  scan.Literal("\",\n  \"world_size\": ");
  id.world = static_cast<uint32_t>(scan.Number());
  scan.Literal(",\n  \"file_size\": ");
  id.file_size = scan.Number();
  scan.Literal(",\n  \"created\": \"");
  manifest->created = scan.Timestamp();
  scan.Literal("\",\n  \"diverged\": ");
  manifest->diverged = static_cast<uint32_t>(scan.Number());
  if (!first) {
    scan.Literal(",\n  \"values\": ");
    manifest->values = scan.Object();
  }
  scan.Literal(",\n  \"records\": [\n");
  while (scan.At("    {\"rank\": ")) {
    ManifestRecord r;
    scan.Literal("    {\"rank\": ");
    r.rank = static_cast<uint32_t>(scan.Number());
    scan.Literal(", \"bytes\": ");
    r.bytes = scan.Number();
    scan.Literal(", \"extents\": ");
    r.extents = scan.Number();
    scan.Literal(", \"private\": ");
    r.private_size = scan.Number();
    if (!first) {
      scan.Literal(", \"values\": ");
      r.values_size = scan.Number();
    }
    scan.Literal(", \"size\": ");
    r.size = scan.Number();
    scan.Literal(", \"crc32c\": \"");
    r.crc = scan.Crc();
    scan.Literal("\"}");
    if (scan.At(",")) scan.Literal(",");
    scan.Literal("\n");
    if (!scan.ok() || r.rank != manifest->records.size()) break;
    manifest->records.push_back(r);
  }
  // The manifest is encoded again and compared. This checks all that was not checked above, the checksum too.
  if (!scan.ok() || !Consistent(*manifest) || EncodeManifest(*manifest) != bytes) {
    return Malformed(where, "a manifest of format version 1 or 2 with a right checksum", "other bytes");
  }
  return {};
}

}  // namespace deepfreeze
