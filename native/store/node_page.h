// The page of a node: a small file in the memory that the ranks of one node share (/dev/shm), in which each rank notes
// how often it has looked at a step, and what it saw, and puts its record for the rank that writes the records of all.
// Each rank has a part of the page that it alone writes. Bytes: docs/format.md, "Page of a node".
//
// The page is a convenience. Nothing is lost with it, and a rank that can't open, read or write it goes on without it:
// there may be no such memory, or no room in it. Its name has the attempt's random id, so that no other job's page is
// ever met. The name goes as soon as all ranks have the page open, so that a job that is killed leaves none.
#ifndef DEEPFREEZE_STORE_NODE_PAGE_H_
#define DEEPFREEZE_STORE_NODE_PAGE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "format/identity.h"
#include "store/meeting.h"

namespace deepfreeze {

// Where a rank's record of a step is.
enum class Where : uint32_t {
  kNowhere,
  kPage,   // in the page, and perhaps in the file that another rank has written for the node
  kStore,  // on the store, in a file of the rank's own
  kAll,    // on the store, in the file that this rank has written for all ranks of the node
};

// What a rank notes of one step. A look counts from its beginning.
struct Sight {
  int64_t step = 0;
  uint32_t looks = 0;
  Verdict verdict = Verdict::kPending;
  Where record = Where::kNowhere;
  uint32_t place = 0;  // of the record in the page
  uint32_t size = 0;   // of the record
  uint32_t crc = 0;    // of its bytes
};

// One rank's view of the page. Thread-compatible.
class NodePage {
 public:
  // How many steps a rank notes, the newest ones. Of an older one that is unfinished the others hear nothing here.
  static constexpr size_t kSteps = 15;
  // How many records a rank has there at a time, and bytes of the largest.
  static constexpr uint32_t kPlaces = 8;
  static constexpr uint32_t kMaxRecord = 65536;

  // `directory`: in the node's shared memory. `ranks`: those of the node. REQUIRES: they ascend, and the identity's
  // rank is among them; env outlives this. Makes nothing; Open does.
  NodePage(Env* env, const std::string& directory, const Identity& identity, const std::vector<uint32_t>& ranks);
  ~NodePage();

  // Opens the page, which is made if it is missing, and shows the other ranks that this rank has it. To be called once.
  // Write, Read, Put and Get REQUIRE that it has returned ok.
  Status Open();
  // Notes this rank's sights, the first kSteps of them, in place of those that were noted before.
  Status Write(const std::vector<Sight>& sights);
  // The other ranks' sights, in the order of the node's ranks; of this rank, and of one that is just writing: none. The
  // page's name goes when this call finds that all ranks have the page open.
  Status Read(std::vector<std::vector<Sight>>* others);
  // Whether all ranks have the page open, as far as this rank has read.
  bool shared() const { return !named_; }

  // Puts bytes into a place of this rank's. REQUIRES: place < kPlaces; at most kMaxRecord bytes.
  Status Put(uint32_t place, const std::string& bytes);
  // The record of a sight of the rank at this place among the node's. REQUIRES: Read has given the sight. RETURNS
  // kCorrupt if it is another one by now.
  Status Get(size_t rank, const Sight& sight, std::string* bytes);

 private:
  uint64_t RecordAt(size_t rank, uint32_t place) const;

  Env* const env_;
  const std::string path_;
  const size_t ranks_;
  const size_t own_;  // this rank's place among them
  bool named_ = false;
  std::unique_ptr<File> file_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_NODE_PAGE_H_
