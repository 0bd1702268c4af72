// The engine of one rank of one attempt: a table of jobs (checkpoints on their way), and the threads of the stages,
// which take each job from the caller's memory to a committed checkpoint. deepfreeze.h says what each call promises.
// All methods may be called from any thread, except where a comment says otherwise.
#ifndef DEEPFREEZE_ENGINE_ENGINE_H_
#define DEEPFREEZE_ENGINE_ENGINE_H_

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/counting_env.h"
#include "base/idle_cores.h"
#include "engine/capture_memory.h"
#include "engine/captured_sums.h"
#include "engine/level.h"
#include "engine/remover.h"
#include "engine/stage.h"
#include "store/store.h"

namespace deepfreeze {

class Engine {
 public:
  // REQUIRES: the options are checked; env outlives the engine. store: the run; null: the directory
  // options.run_dir. more: levels besides the local tier, if there is one, and the external store. Throws
  // std::system_error if the system gives no threads.
  Engine(const Options& options, Env* env, std::unique_ptr<Store> store = nullptr,
         const std::vector<LevelEntry>& more = {});
  // Stops work at the next chunk, joins all threads, and deletes the slots that hold nothing worth keeping. No other
  // call may be under way.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Options& options() const { return options_; }
  const Counters& counters() const { return counters_; }

  // df_engine_submit. memory: the capture areas' memory that regions lie in; the engine keeps it alive while it reads
  // it.
  Status Submit(int64_t step, std::vector<Region> regions, std::string private_data, uint64_t timeout_ms,
                std::vector<std::shared_ptr<Pages>> memory = {}, std::string values = {});
  // df_engine_fail.
  Status Fail(int64_t step, const std::string& message);
  // df_engine_plan. Regions without data.
  Status Plan(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size, CapturePlan* plan);
  // df_engine_reserve. *base: the memory; the next Submit of regions in it takes it.
  Status Reserve(uint64_t timeout_ms, char** base);
  // Bytes of that memory; 0 before Plan.
  uint64_t CaptureSize() const { return capture_memory_->size(); }
  // The checksums of what is in that memory, from whoever puts it there until Submit.
  CapturedSums* captured_sums() { return &captured_sums_; }
  // Whether the copy of a capture that begins now computes the checksums too. Training then waits a little longer for
  // the copy. Otherwise the engine's threads compute the checksums afterwards, in nearly the time of the copy.
  // Thread-safe.
  bool SumsInCopy();
  // As Reserve, for a capture that begins; waits as long as something moves. RETURNS kTimeout when nothing has moved
  // for timeout_ms.
  Status AwaitMemory(uint64_t timeout_ms, char** base);
  // To be called before a capture writes to n bytes of that memory, in any order and by several threads at once: waits,
  // as AwaitMemory does, until no older checkpoint needs the parts of the buffer that they are in. Thread-safe.
  Status AwaitParts(const char* data, uint64_t n, uint64_t timeout_ms);
  // Counts the bytes and the CPU nanoseconds of a copy of the capture that has begun. Thread-safe.
  void CountCopy(uint64_t bytes, uint64_t cpu_ns) {
    copy_ns_ += cpu_ns;
    counters_.copied_bytes.Add(bytes);
    counters_.copy_ns.Add(cpu_ns);
  }
  // df_engine_idle, in milliseconds.
  uint64_t IdleMs() const { return table_.IdleMs(); }
  // df_engine_room.
  uint32_t Room() const { return table_.Room(capture_memory_->UsesSlots() ? Home::kSlot : Home::kBuffer); }
  // df_engine_hold.
  bool Hold(int64_t step) { return table_.Hold(step); }
  // df_engine_replace.
  Status Replace(int64_t step, int64_t by);
  // df_engine_tune.
  Status Tune(const Tuning& to);
  // df_engine_supersede.
  Status Supersede(int64_t step, int64_t by);
  // df_engine_remove.
  Status Remove(const std::vector<int64_t>& steps);
  Status Wait(int64_t step, int level, uint64_t timeout_ms);
  Status Drain(uint64_t timeout_ms);
  // df_engine_poll.
  std::vector<Report> Poll(size_t capacity);
  // df_engine_progress.
  std::vector<UnderWay> Unfinished(size_t capacity) const { return table_.Unfinished(capacity); }
  // Ends every wait, then waits, at most timeout_ms, until all threads have ended. False: some are still in a call to
  // the system, because the store hangs; *where names these threads. The engine must then never be destroyed: the
  // destructor would wait for them.
  bool Stop(uint64_t timeout_ms, std::string* where);

 private:
  const Options options_;
  Counters counters_;
  Log log_;
  CountingEnv env_;
  const std::unique_ptr<Store> store_;
  const std::unique_ptr<Meeting> meeting_;
  const std::vector<LevelEntry> entries_;  // by LevelId, without kCaptured
  JobTable table_;
  UpkeepQueue upkeep_;
  Progress progress_;
  std::unique_ptr<SlotStore> slots_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<CaptureMemory> capture_memory_;
  CapturedSums captured_sums_;
  std::atomic<uint32_t> parts_wanted_{0};  // by how many threads for parts of a buffer
  std::atomic<uint64_t> copy_ns_{0};       // CPU time of the copies of the capture that has begun
  IdleCores idle_cores_;
  std::atomic<bool> local_awaited_{false};  // somebody has waited for the local tier, which needs checksums
  std::vector<Region> planned_;
  uint64_t planned_private_ = 0;
  std::unique_ptr<Remover> remover_;
  std::vector<std::unique_ptr<Level>> levels_;  // of entries_
  struct Thread {
    const char* name;
    bool ended = false;
    std::thread thread;
  };
  std::vector<LevelEntry> Entries(const std::vector<LevelEntry>& more);
  // Starts a thread.
  void Start(const char* name, std::function<void()> body);
  // The body of a stage's threads.
  void Work(LevelId id, size_t stage);
  // RETURNS whether all threads have ended within this time.
  bool AwaitThreads(uint64_t timeout_ms);
  // Repeats a wait of at most the given milliseconds until it ends otherwise than by kTimeout, or nothing has moved for
  // timeout_ms.
  template <typename Call>
  Status WhileMoving(uint64_t timeout_ms, const Call& wait);

  Mutex tuning_;  // so that the numbers of one Tune hold together
  Mutex mutex_;   // guards Thread::ended
  CondVar thread_ended_;
  std::list<Thread> threads_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_ENGINE_H_
