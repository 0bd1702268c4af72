// A second implementation of Store: blobs in memory, as an object store has them. A blob is put whole and deleted, and
// never renamed. A checkpoint's name is a small blob of its own, its manifest, which says in which attempt's folder the
// other blobs are; it is put last and goes first. For tests only.
#ifndef DEEPFREEZE_TESTING_MEMORY_STORE_H_
#define DEEPFREEZE_TESTING_MEMORY_STORE_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/store.h"

namespace deepfreeze {

// What the stores of all ranks have in common. Thread-safe.
class Blobs {
 public:
  // Called before and after each put with the blob's key; a failure is returned by the put. May be null. Set before
  // the blobs are used.
  std::function<Status(const std::string& key)> before_put;
  std::function<Status(const std::string& key)> after_put;

  Status Put(const std::string& key, const std::string& bytes);
  bool Get(const std::string& key, std::string* bytes) const;  // false if there is none
  bool Has(const std::string& key) const;
  void Delete(const std::string& key);
  // The rest of the keys that begin so, in order.
  std::vector<std::string> List(const std::string& prefix) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> blobs_;
};

class MemoryStore final : public Store {
 public:
  // blobs must outlive this.
  explicit MemoryStore(Blobs* blobs) : Store("memory:/run"), blobs_(blobs) {}

  std::unique_ptr<ShardWriter> OpenShard(const Identity& identity) override;
  std::unique_ptr<Meeting> Meet(const Identity& identity) override;
  Status Commit(const CommitRequest& request, CommitOutcome* outcome) override;
  Status Settle(int64_t step, const Id& attempt, Fate* fate) override;
  Status Remove(int64_t step, const Id& attempt) override;
  void Tidy(int64_t step) override;
  Status CleanUp(const CleanUpRequest& request) override;
  Status MakeRoom(const CleanUpRequest& request, MadeRoom* made) override;
  Status FindPart(const Identity& identity, Part* part) override;
  Status Finish(int64_t step, const Id& attempt) override;
  Status Newest(Manifest* manifest, bool* found) override;

  // The committed checkpoint of a step. False if there is none.
  bool Find(int64_t step, Manifest* manifest) const;
  // The bytes of its file, as far as they were written.
  std::string Model(const Manifest& manifest) const;

 private:
  Status CheckOwner(const Id& attempt) const;
  Status Gather(const CommitRequest& request, std::string* gathered, Manifest* manifest, CommitOutcome* outcome) const;

  Blobs* const blobs_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_MEMORY_STORE_H_
