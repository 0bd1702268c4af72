#include "testing/fault_env.h"

#include <cerrno>

#include "testing/check.h"
#include "testing/faults_of.h"

namespace deepfreeze {
namespace {

void PlansAreParsedOrRefused() {
  std::vector<Fault> faults;
  const char* plan = "kill-half:pwrite:.slot:3,fail=ENOSPC:fallocate::1+,delay=20:fdatasync:model:1,jitter=50:*::1+";
  CHECK_OK(ParseFaults(plan, &faults));
  CHECK(faults.size() == 4 && faults[0].nth == 3 && faults[1].onwards && faults[2].argument == 20);
  CHECK(faults[3].argument == 50 && faults[3].action == Fault::Action::kJitter);
  for (const char* bad : {"x", "kill:pwrite::1", "fail=EFOO:pwrite::1", "short:pwrite:1", "short:pwrite::0"}) {
    CHECK(ParseFaults(bad, &faults).code() == Code::kInvalid);
  }
}

void TheNthMatchingCallFails() {
  TemporaryDir directory;
  FaultEnv env(Env::Posix(), FaultsOf("fail=ENOSPC:pwrite:second.file:2"), "");
  std::unique_ptr<File> a;
  std::unique_ptr<File> b;
  CHECK_OK(env.Open(directory.path() + "/first.file", OpenMode::kUpdate, &a));
  CHECK_OK(env.Open(directory.path() + "/second.file", OpenMode::kUpdate, &b));
  CHECK_OK(WriteFull(a.get(), 0, "x", 1));
  CHECK_OK(WriteFull(b.get(), 0, "x", 1));
  CHECK_OK(WriteFull(a.get(), 0, "x", 1));
  CHECK(WriteFull(b.get(), 0, "x", 1).code() == Code::kNoSpace);
  CHECK_OK(WriteFull(b.get(), 0, "x", 1));
}

void ACallMayBeMadeAndAnswerWithAnErrorAllTheSame() {
  TemporaryDir directory;
  FaultEnv env(Env::Posix(), FaultsOf("after=ENOENT:rename:old:1"), "");
  CHECK_OK(env.MakeDir(directory.path() + "/old", 0777));
  CHECK_EQ(env.Rename(directory.path() + "/old", directory.path() + "/new").error(), ENOENT);
  FileInfo info;
  CHECK_OK(env.Stat(directory.path() + "/new", &info));
  CHECK(info.is_directory);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::PlansAreParsedOrRefused();
  deepfreeze::TheNthMatchingCallFails();
  deepfreeze::ACallMayBeMadeAndAnswerWithAnErrorAllTheSame();
}
