// Where a test has its run: in a directory, or in a store that has no directories and no rename. For tests of what the
// engine does whatever the store is.
#ifndef DEEPFREEZE_TESTING_PLACE_H_
#define DEEPFREEZE_TESTING_PLACE_H_

#include <memory>
#include <string>

#include "base/env.h"
#include "format/names.h"
#include "store/commit.h"
#include "store/posix_store.h"
#include "testing/check.h"
#include "testing/memory_store.h"

namespace deepfreeze {

class Place {
 public:
  virtual ~Place() = default;
  // The store of one rank, whose calls to the system go through env. This must outlive it.
  virtual std::unique_ptr<Store> OpenOn(Env* env) = 0;
  // The committed checkpoint of a step. False if there is none.
  virtual bool Find(int64_t step, Manifest* manifest) = 0;
  // The bytes of its file.
  virtual std::string Model(int64_t step) = 0;

  std::unique_ptr<Store> Open() { return OpenOn(Env::Posix()); }
  bool Has(int64_t step) {
    Manifest manifest;
    return Find(step, &manifest);
  }
};

class DirectoryPlace final : public Place {
 public:
  std::unique_ptr<Store> OpenOn(Env* env) override { return std::make_unique<PosixStore>(env, run_.path()); }
  bool Find(int64_t step, Manifest* manifest) override {
    bool counts = false;
    CHECK_OK(ReadCommitted(Env::Posix(), run_.path(), step, manifest, &counts));
    return counts;
  }
  std::string Model(int64_t step) override {
    std::string bytes;
    const std::string path = Join(Join(run_.path(), StepName(step)), kModelName);
    CHECK_OK(ReadSmallFile(Env::Posix(), path, uint64_t{1} << 30, &bytes));
    return bytes;
  }

 private:
  TemporaryDir run_;
};

class MemoryPlace final : public Place {
 public:
  Blobs* blobs() { return &blobs_; }
  std::unique_ptr<Store> OpenOn(Env*) override { return std::make_unique<MemoryStore>(&blobs_); }
  bool Find(int64_t step, Manifest* manifest) override { return MemoryStore(&blobs_).Find(step, manifest); }
  std::string Model(int64_t step) override {
    Manifest manifest;
    CHECK(Find(step, &manifest));
    return MemoryStore(&blobs_).Model(manifest);
  }

 private:
  Blobs blobs_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_PLACE_H_
