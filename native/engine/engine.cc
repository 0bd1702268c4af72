#include "engine/engine.h"

#include <pthread.h>
#include <signal.h>

namespace deepfreeze {
namespace {

// While it lives, new threads are born with all signals blocked: the host's handlers belong to the host's threads.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Engine::Engine(const Options& options, Env* env)
    : options_(options),
      table_(env, options.in_flight, options.slots, !options.local_dir.empty()),
      slots_(options.local_dir.empty() ? nullptr
                                       : std::make_unique<SlotStore>(env, options.local_dir, options.identity.run_id,
                                                                     options.identity.rank, options.slots)) {
  const BlockSignals block_signals;
  pool_ = std::make_unique<WorkerPool>(options.writers);
  const StageContext context{options_, env, &table_, slots_.get(), pool_.get()};
  retention_ = std::make_unique<Retention>(context);
  local_writer_ = std::make_unique<LocalWriter>(context);
  transfer_ = std::make_unique<Transfer>(context, retention_.get());
  committer_ = std::make_unique<Committer>(context, retention_.get());
  try {
    threads_.reserve(3);
    if (slots_ != nullptr) {
      threads_.emplace_back([this] {
        NameThisThread("df-local");
        local_writer_->Run();
      });
    }
    threads_.emplace_back([this] {
      NameThisThread("df-transfer");
      transfer_->Run();
    });
    threads_.emplace_back([this] {
      NameThisThread("df-commit");
      committer_->Run();
    });
  } catch (...) {  // the system gives no more threads
    Stop();
    throw;
  }
}

Engine::~Engine() {
  Stop();
  if (slots_ == nullptr) return;
  for (const uint32_t slot : table_.IdleSlots()) slots_->Remove(slot);
}

void Engine::Stop() {
  table_.Stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Status Engine::Submit(int64_t step, std::vector<Region> regions, std::string private_data, uint64_t timeout_ms) {
  const uint64_t file_size = options_.identity.file_size;
  if (step < 0) return Status(Code::kInvalid, "step " + std::to_string(step) + ": steps are 0 or more");
  uint64_t end = 0;
  uint64_t nbytes = 0;
  for (const Region& region : regions) {
    if (region.file_offset < end || region.file_offset > file_size || region.size > file_size - region.file_offset ||
        (region.data == nullptr && region.size > 0)) {
      return Status::FourPart(Code::kInvalid, "step " + std::to_string(step),
                              "sorted regions inside a file of " + std::to_string(file_size) + " bytes",
                              std::to_string(region.size) + " bytes at " + std::to_string(region.file_offset) +
                                  " after byte " + std::to_string(end),
                              "Correct the regions");
    }
    end = region.file_offset + region.size;
    nbytes += region.size;
  }
  auto job = std::make_shared<Job>();
  job->step = step;
  job->nbytes = nbytes;
  job->regions = std::move(regions);
  job->private_data = std::move(private_data);
  return table_.Submit(std::move(job), timeout_ms);
}

}  // namespace deepfreeze
