// Ranks on a network file system, each a client of its own (testing/nfs_env.h).
#include <memory>
#include <string>
#include <vector>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "store/commit.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/nfs_env.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kPage = 4096;

std::string Model(const std::string& directory) {
  std::string bytes;
  CHECK_OK(ReadSmallFile(Env::Posix(), Join(directory, kModelName), uint64_t{1} << 20, &bytes));
  return bytes;
}

// As an older version placed them, and as whoever finishes such a checkpoint still writes them.
void TwoRanksThatWritePartsOfOnePageLoseNothing() {
  TemporaryDir run;
  Identity identity;
  identity.world = 2;
  identity.file_size = 2 * kPage;
  std::vector<std::unique_ptr<NfsEnv>> clients;
  std::vector<std::unique_ptr<PartialWriter>> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    clients.push_back(std::make_unique<NfsEnv>(Env::Posix(), run.path()));
    ranks.push_back(std::make_unique<PartialWriter>());
    CHECK_OK(ranks[rank]->Open(clients[rank].get(), run.path(), identity));
  }
  const uint64_t border = kPage + 1000;
  const std::string data = std::string(border, 'a') + std::string(2 * kPage - border, 'b');
  CHECK_OK(WriteFull(ranks[0]->file(), 0, data.data(), border));
  CHECK_OK(WriteFull(ranks[1]->file(), border, data.data() + border, data.size() - border));
  for (auto& rank : ranks) CHECK_OK(rank->Sync());
  CHECK_EQ(Model(PartialPath(run.path(), 0, Id{})), data);
}

}  // namespace
}  // namespace deepfreeze

int main() { deepfreeze::TwoRanksThatWritePartsOfOnePageLoseNothing(); }
