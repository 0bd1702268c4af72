#include "testing/nfs_env.h"

#include <cerrno>
#include <cstring>

#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kPage = 4096;

// Two clients of one directory.
struct Clients {
  TemporaryDir server;
  NfsEnv first{Env::Posix(), server.path()};
  NfsEnv second{Env::Posix(), server.path()};

  std::string Path(const std::string& name) const { return server.path() + "/" + name; }
  std::string OnServer(const std::string& name) const {
    std::string bytes;
    CHECK_OK(ReadSmallFile(Env::Posix(), Path(name), 1 << 20, &bytes));
    return bytes;
  }
  void MakeOnServer(const std::string& name, const std::string& bytes) const {
    CHECK_OK(ReplaceFile(Env::Posix(), Path(name), bytes, false));
  }
};

int OpenError(Env* env, const std::string& path) {
  std::unique_ptr<File> file;
  return env->Open(path, OpenMode::kRead, &file).error();
}

void APartOfAPageThatMayBeReadIsWrittenBackWithAllOfThePage() {
  Clients clients;
  clients.MakeOnServer("file", std::string(2 * kPage, '.'));
  std::unique_ptr<File> one;
  std::unique_ptr<File> other;
  // The mode that reads and writes.
  CHECK_OK(clients.first.Open(clients.Path("file"), OpenMode::kPrivate, &one));
  CHECK_OK(clients.second.Open(clients.Path("file"), OpenMode::kPrivate, &other));
  const std::string mine(100, 'm');
  const std::string yours(kPage + 100, 'y');
  CHECK_OK(WriteFull(one.get(), 0, mine.data(), mine.size()));
  CHECK_OK(WriteFull(other.get(), kPage - 100, yours.data(), yours.size()));
  CHECK_EQ(clients.OnServer("file"), std::string(2 * kPage, '.'));  // both have it in their caches
  CHECK_OK(other->DataSync());
  CHECK_EQ(clients.OnServer("file").substr(kPage - 100, 100), std::string(100, 'y'));
  CHECK_OK(one->DataSync());
  CHECK_EQ(clients.OnServer("file"), mine + std::string(kPage - 100, '.') + std::string(kPage, 'y'));
}

void ADescriptorThatMayOnlyWriteSendsRangesOfBytes() {
  Clients clients;
  clients.MakeOnServer("file", std::string(kPage, '.'));
  std::unique_ptr<File> one;
  std::unique_ptr<File> other;
  CHECK_OK(clients.first.Open(clients.Path("file"), OpenMode::kUpdate, &one));
  CHECK_OK(clients.second.Open(clients.Path("file"), OpenMode::kUpdate, &other));
  CHECK_OK(WriteFull(one.get(), 10, "one", 3));
  CHECK_OK(WriteFull(other.get(), 20, "other", 5));
  CHECK_OK(other->DataSync());
  CHECK_OK(one->DataSync());
  CHECK_EQ(clients.OnServer("file").substr(0, 26), "..........one.......other.");
}

void APageThatIsWrittenWholeIsNotReadAndADirectWriteGoesToTheServer() {
  Clients clients;
  std::unique_ptr<File> file;
  CHECK_OK(clients.first.Open(clients.Path("file"), OpenMode::kPrivate, &file));
  CHECK_OK(file->Allocate(2 * kPage));
  const std::string page(kPage, 'p');
  CHECK_OK(WriteFull(file.get(), kPage, page.data(), kPage));
  CHECK_EQ(clients.OnServer("file"), std::string(2 * kPage, '\0'));
  CHECK_OK(file->Close());
  CHECK_EQ(clients.OnServer("file"), std::string(kPage, '\0') + page);
  std::unique_ptr<File> direct;
  if (!clients.second.Open(clients.Path("file"), OpenMode::kDirect, &direct).ok()) return;  // not on this file system
  void* aligned = nullptr;
  CHECK_EQ(posix_memalign(&aligned, kPage, kPage), 0);
  std::memset(aligned, 'd', kPage);
  CHECK_OK(WriteFull(direct.get(), 0, aligned, kPage));
  CHECK_EQ(clients.OnServer("file"), std::string(kPage, 'd') + page);
  std::free(aligned);
}

void ThatANameIsNotThereIsRememberedForAMinute() {
  for (const bool waits : {true, false}) {
    Clients clients;
    CHECK_EQ(OpenError(&clients.first, clients.Path("name")), ENOENT);
    clients.MakeOnServer("name", "x");
    CHECK_EQ(OpenError(&clients.first, clients.Path("name")), ENOENT);
    FileInfo info;
    CHECK_OK(clients.first.Stat(clients.Path("name"), &info));
    CHECK(!info.exists);
    CHECK_EQ(OpenError(&clients.second, clients.Path("name")), 0);
    if (waits) {
      clients.first.Advance(NfsEnv::kRemembersSeconds);
    } else {
      CHECK_OK(clients.first.Refresh(clients.server.path()));
    }
    CHECK_EQ(OpenError(&clients.first, clients.Path("name")), 0);
  }
}

void ADirectoryIsTheSameOneUnderAnotherNameAndStaleOnceItIsRemoved() {
  Clients clients;
  CHECK_OK(clients.second.MakeDir(clients.Path("old"), 0777));
  clients.MakeOnServer("old/file", "x");
  CHECK_EQ(OpenError(&clients.first, clients.Path("old/file")), 0);
  CHECK_OK(clients.second.Rename(clients.Path("old"), clients.Path("new")));
  std::vector<std::string> names;
  bool exists = false;
  CHECK_OK(clients.first.List(clients.Path("old"), &names, &exists));
  CHECK(exists && names.size() == 1);
  CHECK_OK(clients.first.SyncDir(clients.Path("old")));
  CHECK_OK(RemoveTree(&clients.second, clients.Path("new")));
  CHECK_EQ(clients.first.SyncDir(clients.Path("old")).error(), ESTALE);
  CHECK_EQ(clients.first.SyncDir(clients.Path("old")).error(), ENOENT);
  CHECK_OK(clients.first.List(clients.Path("old"), &names, &exists));
  CHECK(!exists);
}

void AFileThatAnotherClientRemovedIsStale() {
  Clients clients;
  std::unique_ptr<File> file;
  CHECK_OK(clients.first.Open(clients.Path("file"), OpenMode::kTruncate, &file));
  CHECK_OK(WriteFull(file.get(), 0, "x", 1));
  CHECK_OK(clients.second.Unlink(clients.Path("file")));
  CHECK_EQ(file->Sync().error(), ESTALE);
}

void WhereRepliesAreLostARepeatedRenameFindsNothing() {
  Clients clients;
  CHECK_EQ(OpenError(&clients.first, clients.Path("new/file")), ENOENT);  // remembered as not there
  clients.first.LoseReplies(true);
  CHECK_OK(clients.first.MakeDir(clients.Path("old"), 0777));
  clients.MakeOnServer("old/file", "x");
  CHECK_EQ(clients.first.Rename(clients.Path("old"), clients.Path("new")).error(), ENOENT);
  CHECK_EQ(OpenError(&clients.second, clients.Path("new/file")), 0);
  CHECK_EQ(OpenError(&clients.first, clients.Path("new/file")), ENOENT);
  CHECK_OK(clients.first.SyncDir(clients.server.path()));
  CHECK_EQ(OpenError(&clients.first, clients.Path("new/file")), 0);
  CHECK_OK(clients.first.Unlink(clients.Path("new/file")));
  CHECK_OK(clients.first.RemoveDir(clients.Path("new")));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::APartOfAPageThatMayBeReadIsWrittenBackWithAllOfThePage();
  deepfreeze::ADescriptorThatMayOnlyWriteSendsRangesOfBytes();
  deepfreeze::APageThatIsWrittenWholeIsNotReadAndADirectWriteGoesToTheServer();
  deepfreeze::ThatANameIsNotThereIsRememberedForAMinute();
  deepfreeze::ADirectoryIsTheSameOneUnderAnotherNameAndStaleOnceItIsRemoved();
  deepfreeze::AFileThatAnotherClientRemovedIsStale();
  deepfreeze::WhereRepliesAreLostARepeatedRenameFindsNothing();
}
