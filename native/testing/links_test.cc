// Whatever link somebody has put into a run, at any name that the engine writes: no byte outside of the run changes.
#include <unistd.h>

#include "store/posix_store.h"
#include "store/probe.h"
#include "testing/check.h"
#include "testing/simulated_ranks.h"

namespace deepfreeze {
namespace {

enum class Kind { kSymbolic, kDangling, kHard };
constexpr Kind kKinds[] = {Kind::kSymbolic, Kind::kDangling, Kind::kHard};
constexpr char kWork[] = "years of work";

// A directory that is nobody's run, with a file in it.
class Outside {
 public:
  explicit Outside(const char* where = "/dev/shm") : directory_(where) {
    CHECK_OK(ReplaceFile(Env::Posix(), file(), kWork, false));
  }
  const std::string& directory() const { return directory_.path(); }
  std::string file() const { return Join(directory(), "thesis.tex"); }
  void CheckUnchanged() const {
    std::string text;
    CHECK_OK(ReadSmallFile(Env::Posix(), file(), sizeof(kWork), &text));
    CHECK_EQ(text, kWork);
    std::vector<std::string> names;
    bool exists = false;
    CHECK_OK(Env::Posix()->List(directory(), &names, &exists));
    CHECK_EQ(names.size(), 1U);
  }

  // Makes a link at `path` that leads out of the run.
  void Link(Kind kind, const std::string& path) const {
    if (kind == Kind::kHard) {
      CHECK_EQ(::link(file().c_str(), path.c_str()), 0);
    } else {
      const std::string to = kind == Kind::kDangling ? Join(directory(), "new") : file();
      CHECK_EQ(::symlink(to.c_str(), path.c_str()), 0);
    }
  }

 private:
  TemporaryDir directory_;
};

// Everything that engines write in a run, whatever fails of it. Step 1 is written, committed and removed, step 2 fails,
// step 3 is given up. RETURNS whether step 1 was committed.
bool WriteAll(const Ranks& ranks, const std::string& run) {
  Env* env = Env::Posix();
  PosixStore store(env, run);
  for (uint32_t rank = 0; rank < ranks.world(); ++rank) {
    const Identity identity = Ranks::At(1, rank, ranks.world());
    PartialWriter writer(env, run, identity);
    bool kept = false;
    Seal seal = Seal::kUnseen;
    Part part = Part::kMissing;
    (void)store.FindPart(identity, &part).ok();
    if (!writer.Begin(&kept).ok() || !writer.Write(kRankPage * rank, ranks.page.data(), kRankPage).ok()) continue;
    CHECK_OK(writer.Seal());
    for (const uint64_t beat : {1, 2}) ranks.meetings[rank]->Beat(1, beat);
    (void)ranks.meetings[rank]->Sealed(ranks.RecordOf(rank, 1), &seal).ok();
    (void)ranks.meetings[rank]->Failed(2, "why").ok();
  }
  CommitRequest request;
  request.step = 1;
  request.replace = true;
  CommitOutcome outcome;
  const bool committed = store.Commit(request, &outcome).ok();
  if (committed) store.Tidy(1);
  (void)store.Finish(1, Id{}).ok();
  (void)ranks.meetings[0]->Superseded(3, 4).ok();
  MadeRoom made;
  const CleanUpRequest clean{9, Id{}, ranks.world(), 1, {}};
  (void)store.MakeRoom(clean, &made).ok();
  (void)store.CleanUp(clean).ok();
  (void)store.Remove(1, Id{}).ok();
  return committed;
}

// A name that the engine writes in a run.
struct Written {
  std::string name;
  bool is_lost = false;  // step 1 can't be committed with a link there
};

std::vector<Written> AllWritten() {
  std::vector<Written> all;
  const std::string partial = PartialName(1, Id{});
  for (const std::string& name : {RecordName(0), RecordName(1), NodeRecordName({0, 1, 1}), std::string(kRecordsName),
                                  std::string(kManifestName)}) {
    all.push_back({Join(partial, name)});
    all.push_back({Join(partial, name + ".tmp")});
  }
  for (const char* end : {"", ".tmp"}) all.push_back({Join(PartialName(2, Id{}), FailedName(1) + end)});
  for (const uint64_t beat : {1, 2}) all.push_back({Join(partial, AliveName(0, beat))});
  all.push_back({Join(partial, kModelName), true});
  for (const int64_t step : {2, 3}) {
    all.push_back({FailedStepName(step, Id{})});
    all.push_back({FailedStepName(step, Id{}) + ".tmp"});
  }
  return all;
}

void MakeParent(const std::string& run, const std::string& name) {
  const size_t slash = name.find('/');
  if (slash != std::string::npos) CHECK_OK(Env::Posix()->MakeDir(Join(run, name.substr(0, slash)), 0777));
}

void NoFileIsWrittenThroughALink() {
  for (const Written& written : AllWritten()) {
    for (const Kind kind : kKinds) {
      for (const uint32_t on_node : {1U, 2U}) {
        Ranks ranks(2, on_node, 0);
        const Outside outside;
        MakeParent(ranks.run.path(), written.name);
        outside.Link(kind, Join(ranks.run.path(), written.name));
        const bool committed = WriteAll(ranks, ranks.run.path());
        outside.CheckUnchanged();
        // A node's file that was begun already is one that another rank writes.
        if (on_node == 1) CHECK_EQ(committed, !written.is_lost);
      }
    }
  }
}

void NoDirectoryIsWrittenThroughALink() {
  for (const std::string& name : {PartialName(1, Id{}), PartialName(2, Id{}), PartialName(3, Id{}), StepName(1),
                                  TrashName(1, Id{}), TrashName(2, Id{})}) {
    for (const bool dangling : {false, true}) {
      Ranks ranks(2);
      const Outside outside;
      const std::string to = dangling ? Join(outside.directory(), "new") : outside.directory();
      CHECK_EQ(::symlink(to.c_str(), Join(ranks.run.path(), name).c_str()), 0);
      CHECK_EQ(WriteAll(ranks, ranks.run.path()), name != PartialName(1, Id{}));
      outside.CheckUnchanged();
    }
  }
}

void TheRunItselfMayBeALink() {
  Ranks ranks(2);
  TemporaryDir other{"/dev/shm"};
  const std::string link = Join(other.path(), "run");
  CHECK_EQ(::symlink(ranks.run.path().c_str(), link.c_str()), 0);
  CHECK(WriteAll(ranks, link));
}

void AProbeWritesAFileOfItsOwn() {
  for (const Kind kind : kKinds) {
    TemporaryDir both;
    const Outside outside(both.path().c_str());
    const std::string run = Join(both.path(), "run");
    CHECK_OK(Env::Posix()->MakeDir(run, 0777));
    outside.Link(kind, Join(run, ".probe-" + std::to_string(Env::Posix()->ProcessId())));
    Rates rates;
    CHECK_OK(ProbeStore(Env::Posix(), run, 1, 6 * kRankPage, kRankPage, 1000, &rates));
    outside.CheckUnchanged();
  }
}

// What is opened to be written has one name; a new file takes the name, and the other file keeps its bytes.
void AFileOfTwoNamesIsReadAlone() {
  for (const Kind kind : kKinds) {
    const Outside outside;
    TemporaryDir run{"/dev/shm"};
    const std::string path = Join(run.path(), "file");
    outside.Link(kind, path);
    std::unique_ptr<File> file;
    for (const OpenMode mode :
         {OpenMode::kUpdate, OpenMode::kTruncate, OpenMode::kDirect, OpenMode::kPrivate, OpenMode::kNew}) {
      CHECK_EQ(Env::Posix()->Open(path, mode, &file).code(), Code::kIo);
      outside.CheckUnchanged();
    }
    CHECK_EQ(Env::Posix()->Open(path, OpenMode::kRead, &file).ok(), kind == Kind::kHard);
    CHECK_OK(OpenNew(Env::Posix(), path, &file));
    CHECK_OK(WriteFull(file.get(), 0, "new", 3));
    CHECK_OK(Env::Posix()->Open(path, OpenMode::kUpdate, &file));
    outside.CheckUnchanged();
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  NoFileIsWrittenThroughALink();
  NoDirectoryIsWrittenThroughALink();
  TheRunItselfMayBeALink();
  AProbeWritesAFileOfItsOwn();
  AFileOfTwoNamesIsReadAlone();
}
