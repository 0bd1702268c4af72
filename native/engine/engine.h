// The engine of one rank of one attempt: a table of jobs and the threads of the stages that take them from the caller's
// memory to a committed checkpoint. deepfreeze.h is the contract.
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
#include "engine/transfer.h"

namespace deepfreeze {

class Engine {
 public:
  // options are checked by the caller; env outlives the engine. Throws std::system_error if the system gives no
  // threads.
  Engine(const Options& options, Env* env);
  // Stops at the next chunk, joins all threads, removes the slots that nobody needs.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Options& options() const { return options_; }

  // Checks the regions against each other and the file; takes nothing if they are wrong. memory: what regions lie in,
  // to be kept while it is read.
  Status Submit(int64_t step, std::vector<Region> regions, std::string private_data, uint64_t timeout_ms,
                std::vector<std::shared_ptr<Pages>> memory = {});
  // Once: fixes the regions (all but their data) of every capture into the engine's own memory.
  Status Plan(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size, CapturePlan* plan);
  // Memory for the next capture; a Submit of regions in it takes it. Bounded wait while all of it is in use.
  Status Reserve(uint64_t timeout_ms, char** base) { return capture_memory_->Reserve(timeout_ms, base); }
  // How large that memory is, as planned.
  uint64_t CaptureSize() const { return capture_memory_->size(); }
  // The same for as long as bytes move: the bound begins anew whenever they do.
  Status ReserveWhileMoving(uint64_t timeout_ms, char** base);
  // How long nothing has moved: no bytes of this rank's, and no sign of another rank that it waits for.
  uint64_t IdleMs() const { return table_.IdleMs(); }
  // How many more captures there would be memory for now, what is reserved not counted.
  uint32_t Room() const { return table_.Room(capture_memory_->UsesSlots()); }
  Status Wait(int64_t step, int level, uint64_t timeout_ms) { return table_.Wait(step, level, timeout_ms); }
  Status Drain(uint64_t timeout_ms) { return table_.Drain(timeout_ms); }
  std::vector<Report> Poll(size_t capacity) { return table_.Poll(capacity); }
  // Ends every wait, and waits until all threads have noticed. False: after timeout_ms some are still in a call to the
  // system, on a store that hangs, and *where says which. The engine must not be destroyed then: the destructor would
  // wait for them.
  bool Stop(uint64_t timeout_ms, std::string* where);

 private:
  const Options options_;
  JobTable table_;
  Progress progress_;
  std::unique_ptr<SlotStore> slots_;
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
