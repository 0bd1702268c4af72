#include "local/slot_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/crc32c.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"
#include "testing/values.h"

namespace deepfreeze {
namespace {

struct Sample {
  std::string data = std::string(5000, 'x');
  std::vector<Extent> extents{{0, 5000, Crc32c(0, data.data(), data.size())}};
  SlotLayout layout = LayOutSlot(extents, 4);
  Identity identity;
  Sample() { identity.file_size = 5000; }

  Status Write(SlotStore* store) {
    DF_RETURN_IF_ERROR(store->Begin(0, layout.file_size()));
    DF_RETURN_IF_ERROR(WriteFull(store->file(0), layout.places[0], data.data(), data.size()));
    return store->Finish(0, identity, extents, layout, "seed", UnknownValues(), layout.file_size());
  }
};

void SlotIsWholeOnlyBetweenFinishAndBegin() {
  TemporaryDir local;
  SlotStore store(Env::Posix(), local.path(), Identity{}, 1);
  Sample sample;
  WholeSlot slot;
  CHECK_OK(sample.Write(&store));
  CHECK_OK(OpenSlot(Env::Posix(), store.path(0), &slot));
  CHECK(slot.private_data == "seed" && slot.values == UnknownValues() && slot.extents[0].crc == sample.extents[0].crc);
  CHECK_OK(store.Begin(0, sample.layout.file_size()));
  CHECK(OpenSlot(Env::Posix(), store.path(0), &slot).code() == Code::kCorrupt);
}

void ShortWritesAreContinued() {
  TemporaryDir local;
  FaultEnv env(Env::Posix(), FaultsOf("short:pwrite::1+,short:pread::1+"), "");
  SlotStore store(&env, local.path(), Identity{}, 1);
  Sample sample;
  WholeSlot slot;
  CHECK_OK(sample.Write(&store));
  CHECK_OK(OpenSlot(&env, store.path(0), &slot));
}

void OnlyAPrivateFileIsWrittenTo() {
  TemporaryDir local;
  SlotStore store(Env::Posix(), local.path(), Identity{}, 2);
  Sample sample;
  const mode_t before = ::umask(0);
  CHECK_OK(sample.Write(&store));
  ::umask(before);
  struct stat info;
  CHECK(::stat(store.path(0).c_str(), &info) == 0 && (info.st_mode & 07777) == 0600);
  CHECK(::stat(store.directory().c_str(), &info) == 0 && (info.st_mode & 07777) == 0700);
  store.Close(0);
  // The second slot's name leads to the first one's file.
  CHECK(::link(store.path(0).c_str(), store.path(1).c_str()) == 0);
  CHECK(store.Begin(1, sample.layout.file_size()).code() == Code::kIo);
  WholeSlot slot;
  CHECK_OK(OpenSlot(Env::Posix(), store.path(0), &slot));
  CHECK(::unlink(store.path(1).c_str()) == 0 && ::symlink(store.path(0).c_str(), store.path(1).c_str()) == 0);
  CHECK(store.Begin(1, sample.layout.file_size()).code() == Code::kIo);
  CHECK_OK(OpenSlot(Env::Posix(), store.path(0), &slot));
}

// A local tier that fails gives its slots up, also while those of the captures to come are being touched.
void ASlotMayBeRemovedWhileItIsTouched() {
  constexpr uint64_t kBytes = uint64_t{1} << 20;
  TemporaryDir local("/dev/shm");
  for (int round = 0; round < 50; ++round) {
    SlotStore store(Env::Posix(), local.path(), Identity{}, 2);
    std::thread toucher([&] {
      for (uint32_t slot = 0; slot < 2; ++slot) CHECK_OK(store.Touch(slot, kBytes, {}));
    });
    for (int again = 0; again < 20; ++again) store.Remove(1);
    toucher.join();
    char* data = nullptr;
    CHECK_OK(store.Map(1, kBytes, {}, &data));
    data[0] = data[kBytes - 1] = 'x';
    for (uint32_t slot = 0; slot < 2; ++slot) store.Remove(slot);
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::SlotIsWholeOnlyBetweenFinishAndBegin();
  deepfreeze::ShortWritesAreContinued();
  deepfreeze::OnlyAPrivateFileIsWrittenTo();
  deepfreeze::ASlotMayBeRemovedWhileItIsTouched();
}
