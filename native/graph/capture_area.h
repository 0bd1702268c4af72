// A capture area: the ops of a training's graph copy tensors into it. There is one buffer per captured step, which the
// framework's threads fill group by group. The buffer is memory of the engine. The first step is captured before the
// file's layout is known, so before there is an engine: its buffer is memory of the area's own.
//
// A group may be captured late: Capture then holds the group's tensors, and CaptureHeld copies them beside the next
// step. The framework never writes into a tensor that is held, so the bytes stay those of the captured step.
//
// Capture and CaptureHeld may be called from several threads at once, for different groups, and BeginStep beside them.
// All other methods must be called between two executions of the graph.
#ifndef DEEPFREEZE_GRAPH_CAPTURE_AREA_H_
#define DEEPFREEZE_GRAPH_CAPTURE_AREA_H_

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/pages.h"
#include "engine/engine.h"
#include "graph/step_marks.h"

namespace deepfreeze {

class CaptureArea {
 public:
  // Bytes [start, start + size) of tensor number `source` of a group are copied to byte `place` of the buffer.
  struct Piece {
    uint64_t source = 0;
    uint64_t start = 0;
    uint64_t size = 0;
    uint64_t place = 0;
  };
  // The memory of a tensor.
  struct Source {
    const char* data = nullptr;
    uint64_t size = 0;
  };

  // References to the tensors of a group. While the object lives, the framework writes to none of them.
  class Tensors {
   public:
    virtual ~Tensors() = default;
    virtual const std::vector<Source>& sources() const = 0;
    // How many bytes of the tensors are referenced by this object alone: their variables have other memory by now.
    virtual uint64_t Apart() const = 0;
  };

  // What is known of a group's last capture.
  struct Note {
    double updated = -1;  // at which part of the step its op ran: 0 at the step's beginning, 1 at its end; -1: unknown
    bool apart = false;   // to hold it has cost memory, because tensors that were held had memory of their own
  };

  // Whose memory a capture lies in.
  enum class Owner { kEngine, kArea };

  // REQUIRES: env outlives this.
  explicit CaptureArea(Env* env) : env_(env), marks_(env) {}
  CaptureArea(const CaptureArea&) = delete;
  CaptureArea& operator=(const CaptureArea&) = delete;

  // The graph knows an area by the number that Register gives it. A graph that outlives its area finds nothing under
  // the number, where a pointer would lead to freed memory. RETURNS a number that no other area of this process
  // gets. The area is kept alive until Forget. These five functions are thread-safe.
  static uint64_t Register(std::shared_ptr<CaptureArea> area);
  // *area: the area of this number; null, with an ok status, if there is none. RETURNS kInvalid in a process forked
  // from the area's; `call` names the caller in the message.
  static Status Find(const char* call, uint64_t number, std::shared_ptr<CaptureArea>* area);
  // RETURNS the areas' own memory that any of the regions begins in; it lives as long as the caller keeps it.
  static std::vector<std::shared_ptr<Pages>> MemoryOf(const std::vector<Region>& regions);
  // The engine has taken over this memory, and frees it when it has read it: areas that capture into an engine's memory
  // by now have no more use for it.
  static void Leave(const std::vector<const Pages*>& memory);
  // Takes the number back. Does nothing with an area of a process that this one was forked from.
  static void Forget(uint64_t number);

  // df_area_group. RETURNS kInvalid if a piece ends beyond kMaxFileSize; the group stays as it was then.
  Status SetGroup(size_t group, std::vector<Piece> pieces);
  // df_area_attach. Null: captures lie in the area's own memory again.
  void Attach(const std::shared_ptr<Engine>& engine, uint64_t timeout_ms);

  // df_area_capture: copies one group's pieces, each part as soon as its memory is free. Without memory for this
  // capture it copies nothing more and returns ok, so that training goes on; Collect then returns the error. REQUIRES:
  // the sources stay as they are until it returns. RETURNS kInvalid, and copies nothing, if there is no such group, or
  // a piece lies outside of its source or buffer.
  Status Capture(size_t group, const std::vector<Source>& sources);

  // As above, for tensors that the area may hold: if the group is captured late it takes them, in place of copying
  // them, and releases those that it has held of the group.
  Status CaptureTensors(size_t group, std::unique_ptr<Tensors> tensors);
  // Copies the tensors that are held of a group, and releases them. Does nothing if there are none.
  Status CaptureHeld(size_t group);
  // A step of the training begins.
  void BeginStep() { step_begun_ = env_->NowMicros(); }

  // The marks of the step that the area's graph has; none at first.
  StepMarks* marks() { return &marks_; }

  // df_area_late: whether the group is captured late, from the next capture on. RETURNS kInvalid if there is no such
  // group.
  Status SetLate(size_t group, bool late);
  // df_area_held: of how many groups tensors are held.
  uint64_t Held();
  // df_area_note.
  Status GetNote(size_t group, Note* note);
  // df_area_discard: forgets the capture that was not collected, and releases the tensors that are held.
  void Discard();

  // df_area_collect. Copies what is still held. The area's own memory lasts until DropOwn, or until the last job that
  // reads it is released. RETURNS why there is no capture: kTimeout without memory in time, kIo without room for memory
  // of the area's own, kClosed without the engine, kInvalid if nothing was captured. Each failure is returned once.
  Status Collect(char** base, Owner* owner);
  void DropOwn();

 private:
  using Pieces = std::shared_ptr<const std::vector<Piece>>;

  struct Group {
    Pieces pieces;
    bool late = false;
    std::unique_ptr<Tensors> held;
    Pieces held_pieces;  // those of `held`: the group may get others before it is copied
    uint64_t at = 0;     // when its op ran last, in microseconds; 0: never
    bool apart = false;
  };

  // The buffer of a capture.
  struct Buffer {
    char* base = nullptr;
    uint64_t size = 0;
    bool with_sums = false;          // whether the copies compute checksums
    uint64_t timeout_ms = 0;         // of a wait for a part of the engine's memory
    std::shared_ptr<Engine> engine;  // null: it is the area's own memory
  };

  // The buffer of the capture under way; begins a capture if there is none. RETURNS whether there is memory: failure_
  // says why not.
  bool Begin() REQUIRES(mutex_);
  // Gets the buffer of a capture that begins.
  Status Acquire() REQUIRES(mutex_);
  // The buffer of the capture under way. RETURNS whether it is still there: the engine may have been closed since.
  bool GetBuffer(Buffer* buffer) REQUIRES(mutex_);
  // Copies pieces of the tensors. They are checked first: an error means that nothing was copied. If the engine has no
  // memory for some of them, that is noted for Collect.
  Status Copy(size_t group, const std::vector<Piece>& pieces, const std::vector<Source>& sources, const Buffer& buffer);
  // There is no capture, for this reason: Collect returns it.
  void Lose(Status why) EXCLUDES(mutex_);
  // RETURNS kInvalid if there is no such group.
  Status CheckGroup(const char* call, size_t group) REQUIRES(mutex_);
  void ReleaseHeld() REQUIRES(mutex_);
  // own_, read under mutex_ alone: who changes it holds mutex_ too.
  const Pages* own() const REQUIRES(mutex_) {
    own_mutex_.AssertReadable();
    return own_.get();
  }
  void SetOwn(std::shared_ptr<Pages> own) REQUIRES(mutex_) EXCLUDES(own_mutex_);
  // Whether the buffer is the area's own memory.
  bool InOwn() const REQUIRES(mutex_) { return own() != nullptr && base_ == own()->data(); }

  Env* const env_;
  StepMarks marks_;
  std::atomic<uint64_t> step_begun_{0};  // when the last step began, in microseconds; 0: nobody has said so
  Mutex mutex_;
  std::vector<Group> groups_ GUARDED_BY(mutex_);
  std::weak_ptr<Engine> engine_ GUARDED_BY(mutex_);
  bool attached_ GUARDED_BY(mutex_) = false;
  uint64_t timeout_ms_ GUARDED_BY(mutex_) = 0;
  char* base_ GUARDED_BY(mutex_) = nullptr;    // buffer of the capture under way, or of one that was not collected
  uint64_t size_ GUARDED_BY(mutex_) = 0;       // bytes of that buffer
  bool with_sums_ GUARDED_BY(mutex_) = false;  // whether that capture's copies compute checksums
  Status failure_ GUARDED_BY(mutex_);          // why there is no buffer for the capture under way
  uint64_t begun_ GUARDED_BY(mutex_) = 0;      // step_begun_ of the step that was captured last
  uint64_t ended_ GUARDED_BY(mutex_) = 0;      // when the last op of that step ran
  // To change own_ takes both mutexes, to read it either: a capture may hold mutex_ for as long as it waits for memory.
  // The analysis knows no such rule. So it checks own_mutex_, and own() and SetOwn, by which alone the other methods
  // come to own_, want mutex_ besides.
  Mutex own_mutex_;
  std::shared_ptr<Pages> own_ GUARDED_BY(own_mutex_);
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_GRAPH_CAPTURE_AREA_H_
