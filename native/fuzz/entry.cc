// libFuzzer's side of a target.
#include <cstddef>
#include <cstring>

#include "fuzz/fuzz.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  deepfreeze::FuzzOne(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

// One in four inputs keeps its wrong checksums, one in four its wrong sizes too.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 4 == 0) return size;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  deepfreeze::Repair(seed % 4 > 1, &bytes);
  if (bytes.size() > max_size) return size;
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
