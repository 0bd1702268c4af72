// The engine of one rank of one attempt: a table of jobs (checkpoints on their way), and the threads of the stages,
// which take each job from the caller's memory to a committed checkpoint. deepfreeze.h says what each call promises.
// All methods may be called from any thread, except where a comment says otherwise.
#ifndef DEEPFREEZE_ENGINE_ENGINE_H_
#define DEEPFREEZE_ENGINE_ENGINE_H_

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/capture_memory.h"
#include "engine/commit.h"
#include "engine/local_write.h"
#include "engine/publish.h"
#include "engine/retention.h"
#include "engine/transfer.h"
#include "store/dir_meeting.h"

namespace deepfreeze {

class Engine {
 public:
  // The caller has checked the options; env must outlive the engine. Throws std::system_error if the system gives no
  // threads.
  Engine(const Options& options, Env* env);
  // Stops work at the next chunk, joins all threads, and deletes the slots that hold nothing worth keeping. No other
  // call may be under way.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Options& options() const { return options_; }

  // df_engine_submit. memory: the capture areas' memory that regions lie in; the engine keeps it alive while it reads
  // it.
  Status Submit(int64_t step, std::vector<Region> regions, std::string private_data, uint64_t timeout_ms,
                std::vector<std::shared_ptr<Pages>> memory = {}, std::string values = {});
  // df_engine_fail.
  Status Fail(int64_t step, const std::string& message);
  // df_engine_plan. Regions without data.
  Status Plan(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size, CapturePlan* plan);
  // df_engine_reserve. *base: the memory; the next Submit of regions in it takes it.
  Status Reserve(uint64_t timeout_ms, char** base) { return capture_memory_->Reserve(timeout_ms, base); }
  // Bytes of that memory; 0 before Plan.
  uint64_t CaptureSize() const { return capture_memory_->size(); }
  // As Reserve, but waits as long as something moves: kTimeout when nothing has moved for timeout_ms.
  Status ReserveWhileMoving(uint64_t timeout_ms, char** base);
  // df_engine_idle, in milliseconds.
  uint64_t IdleMs() const { return table_.IdleMs(); }
  // df_engine_room.
  uint32_t Room() const { return table_.Room(capture_memory_->UsesSlots()); }
  // df_engine_remove.
  Status Remove(std::vector<int64_t> steps);
  Status Wait(int64_t step, int level, uint64_t timeout_ms) { return table_.Wait(step, level, timeout_ms); }
  Status Drain(uint64_t timeout_ms) { return table_.Drain(timeout_ms); }
  std::vector<Report> Poll(size_t capacity) { return table_.Poll(capacity); }
  // Ends every wait, then waits, at most timeout_ms, until all threads have ended. False: some are still in a call to
  // the system, because the store hangs; *where names these threads. The engine must then never be destroyed: the
  // destructor would wait for them.
  bool Stop(uint64_t timeout_ms, std::string* where);

 private:
  const Options options_;
  JobTable table_;
  Progress progress_;
  std::unique_ptr<SlotStore> slots_;
  DirMeeting meeting_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<CaptureMemory> capture_memory_;
  std::vector<Region> planned_;
  uint64_t planned_private_ = 0;
  std::unique_ptr<Retention> retention_;
  std::unique_ptr<LocalWriter> local_writer_;
  std::unique_ptr<Transfer> transfer_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<Committer> committer_;
  struct Thread {
    const char* name;
    bool ended = false;
    std::thread thread;
  };
  template <typename Stage>
  void Start(const char* name, Stage* stage);

  std::mutex mutex_;  // guards Thread::ended
  std::condition_variable thread_ended_;
  std::list<Thread> threads_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_ENGINE_H_
