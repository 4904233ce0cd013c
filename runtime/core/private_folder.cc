// SPDX-License-Identifier: Apache-2.0
#include "core/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace leapp_policy {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Fail(const std::string& path, int reason) {
  throw Error(LP_LOAD_FAILED,
              "The temporary file '" + path + "' could not be written (" + std::strerror(reason) +
                  "), from which Warp is to load; set TMPDIR to a folder with room that this user "
                  "may write.");
}

// Closes on every way out.
class File {
 public:
  explicit File(const std::string& path)
      : handle_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR)),
        reason_(errno) {}
  ~File() {
    if (handle_ >= 0) close(handle_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Returns 0, or the system's reason.
  int Write(ByteSpan bytes) const {
    if (handle_ < 0) return reason_;
    size_t done = 0;
    while (done < bytes.size) {
      const ssize_t count = write(handle_, bytes.data + done, bytes.size - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno;
      done += static_cast<size_t>(count);
    }
    return 0;
  }

 private:
  int handle_;
  int reason_;
};

}  // namespace

PrivateFolder::PrivateFolder() {
  const char* parent = std::getenv("TMPDIR");
  path_ = parent == nullptr || parent[0] == '\0' ? "/tmp" : parent;
  path_ += "/leapp-policy-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) Fail(path_, errno);
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void PrivateFolder::MakeFolder(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  if (mkdir(path.c_str(), S_IRWXU) != 0) Fail(path, errno);
}

std::string PrivateFolder::Write(const std::string& name, ByteSpan bytes) const {
  std::string path = path_ + "/" + name;
  if (const int reason = File(path).Write(bytes)) Fail(path, reason);
  return path;
}

}  // namespace leapp_policy
