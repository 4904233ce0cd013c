// SPDX-License-Identifier: Apache-2.0
//
// A main() for the fuzz targets where the compiler brings no libFuzzer (g++): it changes inputs of
// the corpus at random, without looking at coverage. It takes libFuzzer's arguments that we use:
//   target [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-max_len=BYTES] [FILE_OR_FOLDER…]
// Other arguments that start with '-' are ignored. An input that ends the process is left in the
// file 'crash-input' of the working folder; give that file as the argument to see it again.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz/fuzz.h"

extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

namespace fs = std::filesystem;
using Input = std::vector<uint8_t>;

struct Options {
  uint64_t runs = UINT64_MAX;
  uint64_t seconds = UINT64_MAX;
  uint64_t seed = 1;
  size_t max_len = 4096;
  std::vector<std::string> paths;
};

Input current;

// Async-signal-safe: nothing but system calls.
void SaveCurrent() {
  const int file = open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  if (write(file, current.data(), current.size()) < 0) unlink("crash-input");
  close(file);
}

void OnSignal(int number) {
  SaveCurrent();
  signal(number, SIG_DFL);
  raise(number);
}

bool Value(const std::string& argument, const char* name, uint64_t* value) {
  const std::string prefix = std::string("-") + name + "=";
  if (argument.compare(0, prefix.size(), prefix) != 0) return false;
  *value = std::stoull(argument.substr(prefix.size()));
  return true;
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    uint64_t max_len = 0;
    if (Value(argument, "runs", &options.runs) || Value(argument, "seed", &options.seed) ||
        Value(argument, "max_total_time", &options.seconds)) {
      continue;
    }
    if (Value(argument, "max_len", &max_len)) {
      options.max_len = static_cast<size_t>(max_len);
    } else if (argument[0] != '-') {
      options.paths.push_back(argument);
    }
  }
  return options;
}

Input ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// In the order of names, so that one seed gives one sequence on every machine.
std::vector<Input> ReadCorpus(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    if (fs::is_directory(path)) {
      for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
    } else {
      files.emplace_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const fs::path& file : files) corpus.push_back(ReadFile(file));
  if (corpus.empty()) corpus.emplace_back();
  return corpus;
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, uint64_t seed, size_t max_len)
      : corpus_(corpus), random_(seed), max_len_(max_len) {}

  Input Next() {
    Input input = corpus_[Below(corpus_.size())];
    const size_t changes = 1 + Below(6);
    for (size_t i = 0; i < changes; ++i) Change(&input);
    if (input.size() > max_len_) input.resize(max_len_);
    return input;
  }

 private:
  size_t Below(size_t limit) { return static_cast<size_t>(random_() % limit); }

  void Change(Input* input) {
    if (input->empty()) {
      input->push_back(static_cast<uint8_t>(random_()));
      return;
    }
    const size_t at = Below(input->size());
    const size_t left = input->size() - at;
    const auto place = input->begin() + static_cast<std::ptrdiff_t>(at);
    switch (Below(7)) {
      case 0:
        (*input)[at] = static_cast<uint8_t>((*input)[at] ^ 1 << Below(8));
        break;
      case 1:
        (*input)[at] = static_cast<uint8_t>(random_());
        break;
      case 2:
        input->erase(place, place + static_cast<std::ptrdiff_t>(1 + Below(left)));
        break;
      case 3:
        input->insert(place, 1 + Below(16), static_cast<uint8_t>(random_()));
        break;
      case 4:
        WriteNumber(input, at);
        break;
      case 5: {  // a part of another input
        const Input& other = corpus_[Below(corpus_.size())];
        if (other.empty()) break;
        const size_t from = Below(other.size());
        const size_t size = std::min(1 + Below(64), other.size() - from);
        const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
        input->insert(place, begin, begin + static_cast<std::ptrdiff_t>(size));
        break;
      }
      default: {  // a part of itself over another part
        const size_t from = Below(input->size());
        const size_t size = std::min({1 + Below(32), left, input->size() - from});
        std::memmove(input->data() + at, input->data() + from, size);
      }
    }
  }

  // Sizes and offsets near the limits of their types are where sums overflow.
  void WriteNumber(Input* input, size_t at) {
    static constexpr uint64_t kNumbers[] = {
        0,          1,          7,          0x7f,        0xff,      0xffff,     0x7fffffff,
        0x80000000, 0xffffffff, 0xfffffff8, 0x100000000, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    const uint64_t number =
        Below(3) == 0 ? Below(input->size() + 1) : kNumbers[Below(std::size(kNumbers))];
    const size_t width = size_t{1} << Below(4);
    for (size_t i = 0; i < width && at + i < input->size(); ++i) {
      (*input)[at + i] = static_cast<uint8_t>(number >> (8 * i));
    }
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_;
  size_t max_len_;
};

void Run(const Input& input) {
  current = Input(input.begin(), input.end());  // no spare room: a read past the end is seen
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(&SaveCurrent);
  signal(SIGABRT, &OnSignal);
  const Options options = Parse(argc, argv);
  const std::vector<Input> corpus = ReadCorpus(options.paths);
  uint64_t executed = 0;
  for (const Input& input : corpus) {
    Run(input);
    ++executed;
  }
  Mutator mutator(corpus, options.seed, options.max_len);
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start)
            .count());
  };
  while (executed < options.runs && (executed % 1024 != 0 || passed() < options.seconds)) {
    Run(mutator.Next());
    ++executed;
  }
  std::printf("executed %llu inputs from %zu of the corpus, seed %llu\n",
              static_cast<unsigned long long>(executed), corpus.size(),
              static_cast<unsigned long long>(options.seed));
  return 0;
}
