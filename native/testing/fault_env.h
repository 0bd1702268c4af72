// An Env that fails, cuts short, delays, stops, throws or kills the process at chosen calls. For tests only.
//
// A plan is a list of ACTION:OP:SUBSTRING:NTH separated by commas.
//   ACTION     kill-before, kill-after: SIGKILL of this process before or after the call.
//              kill-half: does half of a pread or pwrite, then SIGKILL; with other calls the same as kill-before.
//              fail=ERRNO: the call is not made and returns this error.
//              after=ERRNO: the call is made and returns this error all the same, as on a network file system that has
//              lost the first reply.
//              lose=ERRNO: a sync fails as on Linux: the bytes written last to that file are gone, and the next sync
//              succeeds without them.
//              short: does half of a pread or pwrite.
//              delay=MS: the call is made after so many milliseconds.
//              jitter=MS: one call of eight, at random, is made after a random time of at most MS milliseconds.
//              jump=SECONDS: sets the wall clock (the op `clock`) forwards or backwards.
//              late=SECONDS: sets the monotonic clock forwards, so that every bound of at most so many seconds is over
//              and no test has to wait for it.
//              sigstop: SIGSTOP of this process.
//              no-memory: throws std::bad_alloc.
//   OP         * (any), or one of
//              open pread pwrite fdatasync fsync ftruncate fallocate mmap close rename mkdir unlink rmdir list stat
//              fsync_dir refresh clock
//   SUBSTRING  what the path has in it (of a rename "FROM to TO"); empty: any path
//   NTH        which of the calls that match, counted from 1; "N+": the N-th and all after it
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
    kJitter,
    kJump,
    kLate,
    kStop,
    kThrow
  };
  Action action = Action::kFail;
  std::string text;       // the action as the plan has it
  uint64_t argument = 0;  // an errno, milliseconds or seconds
  std::string op;
  std::string substring;
  uint64_t nth = 1;
  bool onwards = false;  // "N+"
  uint64_t seen = 0;     // calls that matched so far
};

// Reads a plan. kInvalid, with the entry in the message, if it can't be read.
Status ParseFaults(const std::string& plan, std::vector<Fault>* faults);

class FaultEnv final : public Env {
 public:
  // base must outlive this. log: the log file's path, or empty.
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
  Status Populate(char* data, uint64_t n) override { return base_->Populate(data, n); }
  Status JoinPages(char* data, uint64_t n) override { return base_->JoinPages(data, n); }
  void FreePages(char* data, uint64_t size) override { base_->FreePages(data, size); }
  uint64_t NowMicros() override { return base_->NowMicros() + late_us_; }
  uint64_t CpuMicros() override { return base_->CpuMicros(); }
  uint64_t ThreadCpuNanos() override { return base_->ThreadCpuNanos(); }
  CoreCount Cores() override { return base_->Cores(); }
  int64_t WallSeconds() override { return base_->WallSeconds() + Before("clock", "").jump; }
  void SleepMillis(uint64_t ms) override { base_->SleepMillis(ms); }
  uint32_t UserId() override { return base_->UserId(); }
  int64_t ProcessId() override { return base_->ProcessId(); }

  // What is to happen at one call, for FaultEnv's files.
  struct Verdict {
    Status fail;             // not ok: the call is not made and returns this
    Status after;            // not ok: the call is made and returns this
    bool lose = false;       // a sync that fails and loses bytes
    int64_t jump = 0;        // seconds by which the wall clock is off
    bool half = false;       // do half of it
    std::string kill_after;  // the log's line, if the process is to die after the call
  };
  // To be called before each call to the system: counts it, and carries out actions that come before it.
  Verdict Before(const char* op, const std::string& path);
  // To be called after it with its status; returns the status that the caller gets.
  Status After(const Verdict& verdict, const Status& status);

  // Forgets the plan: from now on nothing more goes wrong.
  void Heal();
  // How many calls have matched the first fault's operation and path so far.
  uint64_t seen();
  // Notes a write; the files of this Env call it. Lose puts zeros over the write that was noted last for the file.
  void Wrote(const std::string& path, uint64_t offset, uint64_t n);
  void Lose(File* file);

 private:
  [[noreturn]] void Kill(const std::string& line);
  void Log(const std::string& line);

  Env* const base_;
  const std::string log_;
  std::atomic<uint64_t> late_us_{0};
  std::mutex log_mutex_;  // two calls that are delayed at once have a line each
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
