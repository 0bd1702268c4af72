// Marks note when they run and what the engine has written, each anew until somebody takes the notes.
#include "graph/step_marks.h"

#include <thread>

#include "testing/check.h"

namespace deepfreeze {
namespace {

void MarksNoteUntilTheyAreTaken() {
  StepMarks marks(Env::Posix());
  CHECK(marks.Take().empty());
  marks.Note(0);  // there is none
  CHECK_OK(marks.Set(3));
  const uint64_t before = Env::Posix()->NowMicros();
  marks.Note(0);
  marks.Note(2);
  marks.Note(3);  // there is none
  std::vector<StepMarks::Mark> noted = marks.Take();
  CHECK(noted.size() == 3);
  CHECK(noted[0].at_us >= before && noted[2].at_us >= noted[0].at_us);
  CHECK(noted[2].cpu_us >= noted[0].cpu_us);
  CHECK(noted[1].at_us == 0 && noted[1].cpu_us == 0);
  CHECK(noted[0].external_bytes == 0 && noted[0].local_bytes == 0);
  noted = marks.Take();
  CHECK(noted[0].at_us == 0);
  CHECK(marks.Set(StepMarks::kMost + 1).code() == Code::kInvalid);
  CHECK(marks.Take().size() == 3);
}

void MarksOfSeveralThreadsDoNotDisturbEachOther() {
  StepMarks marks(Env::Posix());
  CHECK_OK(marks.Set(StepMarks::kMost));
  std::vector<std::thread> threads;
  for (uint64_t first = 0; first < 4; ++first) {
    threads.emplace_back([&marks, first] {
      for (uint64_t number = first; number < StepMarks::kMost; number += 4) marks.Note(number);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const StepMarks::Mark& mark : marks.Take()) CHECK(mark.at_us > 0);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::MarksNoteUntilTheyAreTaken();
  deepfreeze::MarksOfSeveralThreadsDoNotDisturbEachOther();
  return 0;
}
