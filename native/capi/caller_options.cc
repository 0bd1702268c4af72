#include "capi/caller_options.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace deepfreeze {
namespace {

// Every caller has the fields before this one.
constexpr size_t kRequired = offsetof(df_options, local_dir);
// A caller's struct grows in such multiples, so that its end never cuts a field.
constexpr size_t kUnit = 8;
constexpr uint64_t kMostTransfers = 64;
constexpr size_t kMost = 4096;  // so large a struct_size was not set
static_assert(kRequired % kUnit == 0 && sizeof(df_options) % kUnit == 0);

df_options Defaults() {
  df_options defaults = {};
  defaults.in_flight = 2;
  defaults.slots = 2;
  defaults.writers = 8;
  defaults.nice = 10;
  defaults.refuse_diverged = DF_REFUSE_NONE;
  defaults.backend = DF_EMBEDDED;
  defaults.chunk_bytes = uint64_t{4} << 20;
  defaults.commit_timeout_ms = 600000;
  return defaults;
}

Status Invalid(const std::string& what) { return Status(Code::kInvalid, "options: " + what); }

// Reads no more bytes than the caller's struct has.
Status Complete(const df_options* given, df_options* o) {
  if (given == nullptr) return Invalid("a pointer is missing");
  const size_t size = given->struct_size;
  if (size < kRequired || size > kMost || size % kUnit != 0) {
    return Status::FourPart(Code::kInvalid, "options.struct_size",
                            "sizeof(df_options), which is " + std::to_string(sizeof(df_options)) + " here",
                            std::to_string(size), "Set struct_size");
  }
  *o = Defaults();
  std::memcpy(o, given, std::min(size, sizeof(df_options)));
  const char* bytes = reinterpret_cast<const char*>(given);
  if (size > sizeof(df_options) &&
      std::any_of(bytes + sizeof(df_options), bytes + size, [](char byte) { return byte != 0; })) {
    return Status::FourPart(Code::kInvalid, "options",
                            "options of " + std::to_string(sizeof(df_options)) + " bytes, which this library has",
                            "one more that is set, in " + std::to_string(size) + " bytes",
                            "Leave that option out, or use a library of the caller's version");
  }
  return {};
}

Status CheckNode(const df_options& o) {
  if (o.node_ranks == 0) return {};
  bool ok = o.node != nullptr && o.node_ranks <= o.world && std::count(o.node, o.node + o.node_ranks, o.rank) == 1;
  for (uint64_t i = 0; ok && i < o.node_ranks; ++i) ok = o.node[i] < o.world && (i == 0 || o.node[i - 1] < o.node[i]);
  return ok ? Status() : Invalid("node must be ranks below world, ascending, with this rank among them");
}

Status CheckNumbers(const df_options& o) {
  if (o.world < 1 || o.rank >= o.world) {
    return Invalid("rank " + std::to_string(o.rank) + " is not below world " + std::to_string(o.world));
  }
  if (o.in_flight < 1) return Invalid("in_flight must be 1 or more");
  if (o.slots < 1) return Invalid("slots must be 1 or more");
  if (o.writers < 1) return Invalid("writers must be 1 or more");
  if (o.refuse_diverged > DF_REFUSE_FIRST) return Invalid("refuse_diverged must be one of df_refusal");
  if (o.backend != DF_EMBEDDED) {
    return Invalid("no backend " + std::to_string(o.backend) + ": this library has DF_EMBEDDED, " +
                   std::to_string(DF_EMBEDDED));
  }
  if (o.nice > 19) return Invalid("nice must be 0 to 19");
  if (o.chunk_bytes < 4096 || o.chunk_bytes % 4096 != 0) {
    return Invalid("chunk_bytes must be a multiple of 4096, not " + std::to_string(o.chunk_bytes));
  }
  if (o.file_size == 0 || o.file_size > kMaxFileSize) {
    return Status::FourPart(Code::kInvalid, "options.file_size", "1 to " + std::to_string(kMaxFileSize) + " bytes",
                            std::to_string(o.file_size), "Correct file_size");
  }
  if (o.transfers > kMostTransfers) {
    return Invalid("transfers must be at most " + std::to_string(kMostTransfers) + ", not " +
                   std::to_string(o.transfers));
  }
  if (o.rate > kMaxFileSize) return Invalid("rate must be below 2^63");
  return CheckNode(o);
}

Status CheckDirectories(const df_options& o, Env* env) {
  if (o.run_dir == nullptr || *o.run_dir == '\0') return Invalid("run_dir is missing");
  if (o.local_dir != nullptr && *o.local_dir == '\0') return Invalid("local_dir is empty");
  for (const char* directory : {o.run_dir, o.local_dir}) {
    FileInfo info;
    if (directory == nullptr) continue;
    // With the slash at the end, Stat follows a symbolic link to a directory.
    DF_RETURN_IF_ERROR(env->Stat(std::string(directory) + "/", &info));
    if (!info.is_directory) {
      return Status::FourPart(Code::kInvalid, directory, "an existing directory",
                              info.exists ? "something else" : "nothing", "Make the directory");
    }
  }
  return {};
}

}  // namespace

Status ReadOptions(const df_options* given, Env* env, Options* options) {
  df_options o;
  DF_RETURN_IF_ERROR(Complete(given, &o));
  DF_RETURN_IF_ERROR(CheckNumbers(o));
  DF_RETURN_IF_ERROR(CheckDirectories(o, env));
  std::memcpy(options->identity.run_id.data(), o.run_id, sizeof(o.run_id));
  std::memcpy(options->identity.attempt.data(), o.attempt, sizeof(o.attempt));
  std::memcpy(options->identity.structure.data(), o.structure, sizeof(o.structure));
  options->identity.rank = o.rank;
  options->identity.world = o.world;
  options->identity.file_size = o.file_size;
  options->identity.hashes = o.hashes;
  options->refuse_diverged = static_cast<Refuse>(o.refuse_diverged);
  options->in_flight = o.in_flight;
  options->slots = o.slots;
  options->writers = o.writers;
  options->nice = static_cast<int>(o.nice);
  options->chunk_bytes = o.chunk_bytes;
  options->commit_timeout_ms = o.commit_timeout_ms;
  options->rate = o.rate;
  options->uncommitted = o.uncommitted;
  options->transfers = std::max(1U, static_cast<uint32_t>(o.transfers));
  options->bounded = o.bounded != 0;
  options->one_memory = o.one_memory != 0;
  options->cached = o.cached != 0;
  options->run_dir = o.run_dir;
  options->local_dir = o.local_dir != nullptr ? o.local_dir : "";
  if (o.node_ranks > 0) options->node.assign(o.node, o.node + o.node_ranks);
  options->node_dir = o.node_dir != nullptr ? o.node_dir : "";
  return {};
}

}  // namespace deepfreeze
