// An Env that fails, cuts short, delays, stops, throws or kills the process at chosen calls. For tests only.
//
// A plan is a list of ACTION:OP:SUBSTRING:NTH separated by commas.
//   ACTION     kill-before | kill-after | kill-half | fail=ERRNO | after=ERRNO | lose=ERRNO | short | delay=MS |
//              jump=SECONDS | late=SECONDS | sigstop | no-memory (throws std::bad_alloc)
//              after does what was asked and answers with the error all the same, as a network file system does whose
//              first reply was lost.
//              kill-half does half of a pwrite first, elsewhere it is kill-before; short does half of a pread or
//              pwrite. lose is what Linux does when a sync fails: what was written last to that file is gone, and the
//              next sync knows nothing of it. jump sets the clock of the op `clock` forth or back; late lets time pass
//              for all that measures it: bounds end there and then, and no test has to wait for them.
//   OP         * (any), or one of
//              open pread pwrite fdatasync fsync ftruncate fallocate mmap close rename mkdir unlink rmdir list stat
//              fsync_dir refresh clock
//   SUBSTRING  of the path ("FROM to TO" of a rename); empty: any
//   NTH        the call it happens at, counted from 1 over the calls that match; "N+": from there on
//
// Before a kill, stop or delay the line "ACTION OP PATH" is appended to the log file, if there is one.
#ifndef DEEPFREEZE_TESTING_FAULT_ENV_H_
#define DEEPFREEZE_TESTING_FAULT_ENV_H_

#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/env.h"

namespace deepfreeze {

struct Fault {
  enum class Action {
    kKillBefore,
    kKillAfter,
    kKillHalf,
    kFail,
    kAfter,
    kLose,
    kShort,
    kDelay,
    kJump,
    kLate,
    kStop,
    kThrow
  };
  Action action = Action::kFail;
  std::string text;       // the action as it was written
  uint64_t argument = 0;  // errno or milliseconds
  std::string op;
  std::string substring;
  uint64_t nth = 1;
  bool onwards = false;
  uint64_t seen = 0;
};

// kInvalid, quoting the entry, if the plan can't be read.
Status ParseFaults(const std::string& plan, std::vector<Fault>* faults);

class FaultEnv final : public Env {
 public:
  // base outlives this; log: a path, or empty.
  FaultEnv(Env* base, std::vector<Fault> faults, std::string log);

  Status Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) override;
  Status Stat(const std::string& path, FileInfo* info) override;
  Status List(const std::string& path, std::vector<std::string>* names, bool* exists) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status MakeDir(const std::string& path, uint32_t mode) override;
  Status Unlink(const std::string& path) override;
  Status RemoveDir(const std::string& path) override;
  Status SyncDir(const std::string& path) override;
  Status Refresh(const std::string& directory) override;
  bool InMemory(const std::string& path) override { return base_->InMemory(path); }
  char* AllocatePages(uint64_t size) override { return base_->AllocatePages(size); }
  void FreePages(char* data, uint64_t size) override { base_->FreePages(data, size); }
  uint64_t NowMicros() override { return base_->NowMicros() + late_us_; }
  int64_t WallSeconds() override { return base_->WallSeconds() + Before("clock", "").jump; }
  void SleepMillis(uint64_t ms) override { base_->SleepMillis(ms); }
  uint32_t UserId() override { return base_->UserId(); }
  int64_t ProcessId() override { return base_->ProcessId(); }

  // What is to happen around one call.
  struct Verdict {
    Status fail;
    Status after;  // the answer to a call that is made
    bool lose = false;
    int64_t jump = 0;
    bool half = false;       // do half of it
    std::string kill_after;  // the log's line, if the process is to die after the call
  };
  Verdict Before(const char* op, const std::string& path);
  // The call's answer.
  Status After(const Verdict& verdict, const Status& status);

  // From now on nothing more goes wrong.
  void Heal();
  // Calls that matched the first fault's operation and path so far.
  uint64_t seen();
  // What a sync of the file would make durable last; a File of this Env says so at each write.
  void Wrote(const std::string& path, uint64_t offset, uint64_t n);
  void Lose(File* file);

 private:
  [[noreturn]] void Kill(const std::string& line);
  void Log(const std::string& line);

  Env* const base_;
  const std::string log_;
  std::atomic<uint64_t> late_us_{0};
  std::mutex mutex_;
  std::vector<Fault> faults_;
  struct Write {
    std::string path;
    uint64_t offset, size;
  };
  std::deque<Write> last_writes_;  // newest last; a sync comes soon after, and a job of days must not remember all
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_FAULT_ENV_H_
