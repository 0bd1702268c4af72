// Measures how long a new file takes until its bytes are durable, written in one of three ways. benchmarks/io_paths.py
// compiles this program and chooses the cases.
//
//   io_paths DIRECTORY PATH,BYTES,WRITERS,ALIGNED ...
//
// PATH is one of
//   direct    past the page cache (O_DIRECT); a source that is not aligned goes through one aligned block per writer
//   buffered  through the page cache, and each chunk is pushed to the disk at once
//   mmap      copied into the mapped file past the processor's caches, and synced at the end
// BYTES is a multiple of 4096. WRITERS is a number of threads. ALIGNED is 1 if the source begins a page, and 0 if it
// begins 64 bytes later. Cases run one after the other, each on a new DIRECTORY/io_paths.bin; the last file stays. Each
// case prints one line of JSON: its seconds, the CPU seconds of this process meanwhile, and the bytes of the file.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/copy.h"

namespace {

constexpr size_t kChunk = size_t{4} << 20;  // as in the engine: the bytes of the largest extent
constexpr size_t kUnit = 4096;              // what offsets, sizes and memory of direct writes are multiples of
constexpr size_t kShift = 64;
constexpr size_t kMostWriters = 64;
constexpr size_t kMostBytes = size_t{1} << 40;

struct Case {
  std::string path;
  size_t bytes = 0;
  size_t writers = 0;
  bool aligned = true;
};

[[noreturn]] void Exit(const std::string& message) {
  std::fprintf(stderr, "io_paths: %s\n", message.c_str());
  std::_Exit(1);  // other writers may be at work, so what they use must not be destroyed
}

[[noreturn]] void Fail(const std::string& what) { Exit(what + ": " + std::strerror(errno)); }

// Memory in huge pages, as captures have it where the system allows that. All of it is touched, so that no case pays
// for finding it. It stays until the program ends.
char* Allocate(size_t size) {
  constexpr size_t kHugePage = size_t{2} << 20;
  size = (size + kHugePage - 1) / kHugePage * kHugePage;
  void* data = std::aligned_alloc(kHugePage, size);
  if (data == nullptr) Fail("memory of " + std::to_string(size) + " bytes");
  ::madvise(data, size, MADV_HUGEPAGE);
  return static_cast<char*>(std::memset(data, 1, size));
}

// Word n is n times an odd number, so no two words are equal: a file with a chunk in the wrong place is found, and no
// storage can save space. The tests compute the same words.
char* Source(size_t size) {
  char* data = Allocate(size);
  for (uint64_t n = 0; n < size / sizeof(n); ++n) {
    const uint64_t word = n * 0x9E3779B97F4A7C15;
    std::memcpy(data + n * sizeof(word), &word, sizeof(word));
  }
  return data;
}

Case Parse(const std::string& text) {
  Case one;
  char path[16];
  int aligned = 0;
  char rest = 0;
  const int found =
      std::sscanf(text.c_str(), "%15[a-z],%zu,%zu,%1d%c", path, &one.bytes, &one.writers, &aligned, &rest);
  const std::string known[] = {"direct", "buffered", "mmap"};
  if (found != 4 || std::find(std::begin(known), std::end(known), path) == std::end(known) || one.bytes == 0 ||
      one.bytes > kMostBytes || one.bytes % kUnit != 0 || one.writers == 0 || one.writers > kMostWriters ||
      aligned < 0 || aligned > 1) {
    Exit("expected direct|buffered|mmap,BYTES,WRITERS,0|1, with BYTES a multiple of " + std::to_string(kUnit) +
         " and 1 to " + std::to_string(kMostWriters) + " writers; found " + text);
  }
  one.path = path;
  one.aligned = aligned == 1;
  return one;
}

// Calls work(writer, offset, size) for each chunk. Whichever writer is free takes the next one.
void EachChunk(const Case& one, const std::function<void(size_t, size_t, size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto write = [&](size_t writer) {
    for (size_t at = next.fetch_add(kChunk); at < one.bytes; at = next.fetch_add(kChunk)) {
      work(writer, at, std::min(kChunk, one.bytes - at));
    }
  };
  std::vector<std::thread> threads;
  for (size_t writer = 1; writer < one.writers; ++writer) threads.emplace_back(write, writer);
  write(0);
  for (std::thread& thread : threads) thread.join();
}

void Write(int fd, const char* from, size_t size, size_t at) {
  while (size > 0) {
    const ssize_t written = ::pwrite(fd, from, size, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) Fail("pwrite");
    from += written;
    size -= static_cast<size_t>(written);
    at += static_cast<size_t>(written);
  }
}

void WriteDirect(int fd, const char* source, const Case& one, const std::vector<char*>& blocks) {
  EachChunk(one, [&](size_t writer, size_t at, size_t size) {
    const char* from = source + at;
    if (!one.aligned) from = static_cast<const char*>(std::memcpy(blocks[writer], from, size));
    Write(fd, from, size, at);
  });
  if (::fdatasync(fd) != 0) Fail("fdatasync");
}

void WriteBuffered(int fd, const char* source, const Case& one) {
  EachChunk(one, [&](size_t, size_t at, size_t size) {
    Write(fd, source + at, size, at);
    // As the engine does: the disk begins with this chunk while the next one is being copied. It is a request and
    // no promise, so what a file system says to it does not matter.
    ::sync_file_range(fd, static_cast<off_t>(at), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE);
  });
  if (::fdatasync(fd) != 0) Fail("fdatasync");
}

void WriteMapped(int fd, const char* source, const Case& one) {
  void* mapped = ::mmap(nullptr, one.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) Fail("mmap");
  EachChunk(one, [&](size_t, size_t at, size_t size) {
    deepfreeze::CopyPastCache(static_cast<char*>(mapped) + at, source + at, size);
  });
  if (::msync(mapped, one.bytes, MS_SYNC) != 0) Fail("msync");
  if (::munmap(mapped, one.bytes) != 0) Fail("munmap");
}

// Makes the file, writes it in the way of the case, and closes it. Its blocks are reserved first, as the engine
// reserves them where the file system can: a store into a mapped page that has no block ends the program (SIGBUS) when
// the disk is full.
void WriteFile(const std::string& name, const char* source, const Case& one, const std::vector<char*>& blocks) {
  const bool direct = one.path == "direct";
  const int access = one.path == "mmap" ? O_RDWR : O_WRONLY;  // a shared mapping also needs to read
  const int fd = ::open(name.c_str(), O_CREAT | O_EXCL | O_CLOEXEC | access | (direct ? O_DIRECT : 0), 0600);
  if (fd < 0) Fail((direct ? "open for direct writes, " : "open, ") + name);
  const auto size = static_cast<off_t>(one.bytes);
  if (::fallocate(fd, 0, 0, size) != 0) {
    if (errno != EOPNOTSUPP) Fail("fallocate");
    if (::ftruncate(fd, size) != 0) Fail("ftruncate");
  }
  if (direct) {
    WriteDirect(fd, source, one, blocks);
  } else if (one.path == "buffered") {
    WriteBuffered(fd, source, one);
  } else {
    WriteMapped(fd, source, one);
  }
  if (::close(fd) != 0) Fail("close");
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double CpuSeconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return Seconds(used.ru_utime) + Seconds(used.ru_stime);
}

void Run(const std::string& directory, const std::vector<Case>& cases) {
  size_t most = 0;
  size_t writers = 0;
  for (const Case& one : cases) {
    most = std::max(most, one.bytes);
    writers = std::max(writers, one.writers);
  }
  const int folder = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) Fail(directory);
  const char* source = Source(most + kUnit);
  std::vector<char*> blocks(writers);
  for (char*& block : blocks) block = Allocate(kChunk);
  const std::string name = directory + "/io_paths.bin";
  for (const Case& one : cases) {
    if (::unlink(name.c_str()) != 0 && errno != ENOENT) Fail("unlink " + name);
    if (::syncfs(folder) != 0) Fail("syncfs " + directory);  // what others left is not written in this case's time
    const double cpu = CpuSeconds();
    const auto begun = std::chrono::steady_clock::now();
    WriteFile(name, source + (one.aligned ? 0 : kShift), one, blocks);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
    std::printf("{\"seconds\": %.6f, \"cpu\": %.6f, \"bytes\": %zu}\n", seconds.count(), CpuSeconds() - cpu, one.bytes);
  }
  ::close(folder);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) Exit("expected DIRECTORY PATH,BYTES,WRITERS,ALIGNED ...");
  std::vector<Case> cases;
  for (int n = 2; n < argc; ++n) cases.push_back(Parse(argv[n]));
  Run(argv[1], cases);
}
