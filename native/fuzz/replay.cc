// Runs a target over files without a fuzzer, one line for each: "taken" or "refused", and its name.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;

void Replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  FUZZ_CHECK(file.good());
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::cout << (deepfreeze::FuzzOne(bytes) ? "taken " : "refused ") << path.filename().string() << "\n";
  for (const bool sizes : {false, true}) {
    std::string repaired = bytes;
    deepfreeze::Repair(sizes, &repaired);
    deepfreeze::FuzzOne(repaired);
  }
}

}  // namespace

int main(int argc, char** argv) {
  size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) Replay(argv[i]), ++files;
    if (!fs::is_directory(argv[i])) continue;
    for (const auto& entry : fs::directory_iterator(argv[i])) Replay(entry.path()), ++files;
  }
  FUZZ_CHECK(files > 0);
}
