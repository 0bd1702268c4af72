"""The mutants of a C++ module: each kind of change, and nothing that is no code."""

import importlib.util
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SOURCE = """\
// if (a) b();
#include <vector>
namespace deepfreeze {
struct Kept {
  bool on = true;
  int Size() const { return 3; }
};
Status Table::Take(const std::vector<int>& all, bool* found) {
  const MutexLock lock(&mutex_);
  *found = all.size() < 3 && !all.empty();
  DF_RETURN_IF_ERROR(env_->SyncDir("a < b"));
  if (found) changed_.NotifyAll();
  Run([&] { ++count_; });
  return {};
}
bool Table::Any() const {
  for (const int one : all_) {
    if (std::max(one, 2) == 2) continue;
  }
  return any_;
}
}  // namespace deepfreeze
"""


def mutations():
    spec = importlib.util.spec_from_file_location("native_mutations", TOOLS / "native_mutations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mutations("table.cc", SOURCE)


def test_each_change_has_a_name_that_says_where_and_what():
    take, some = "table.cc: Table::Take: ", "*found = all.size() < 3 && !all.empty()"
    sync, every = 'DF_RETURN_IF_ERROR(env_->SyncDir("a < b"))', "if (std::max(one, 2) == 2) continue;"
    assert list(mutations()) == [
        "table.cc: Kept.Size: return 3 => return {}",
        f"{take}{some}; => *found = all.size() <= 3 && !all.empty();",
        f"{take}{some}; => *found = all.size() < 3 || !all.empty();",
        f"{take}{some}; => *found = all.size() < 3 && all.empty();",
        f"{take}{some} => left out",
        f"{take}{sync} => left out",
        f'{take}{sync} => (void)(env_->SyncDir("a < b"))',
        f"{take}if (found) changed_.NotifyAll(); => if (!(found)) changed_.NotifyAll();",
        f"{take}changed_.NotifyAll() => left out",
        f"{take}++count_ => left out",
        f"{take}Run([&] {{ ++count_; }}) => left out",
        f"table.cc: Table::Any: {every} => if (std::min(one, 2) == 2) continue;",
        f"table.cc: Table::Any: {every} => if (std::max(one, 2) != 2) continue;",
        "table.cc: Table::Any: continue => left out",
        "table.cc: Table::Any: return any_ => return !(any_)",
    ]


def test_a_mutant_is_the_source_with_one_line_changed():
    before = SOURCE.splitlines()
    for name, text in mutations().items():
        assert sum(old != new for old, new in zip(before, text.splitlines(), strict=True)) == 1, name
