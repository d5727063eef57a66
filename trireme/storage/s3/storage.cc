// The Storage of a bucket. Paths are addresses, "s3://BUCKET/PREFIX/step-00000500/manifest.json".
//
// An object store renames nothing, so a draft's files have their final keys from the beginning. The
// folder exists when its manifest does, which is completed last and removed first.
//
// A Claim keeps jobs on one prefix apart. A job may hang after it has checked its claim, so the
// service helps: every file is an upload in parts, the manifest's upload begins with its draft, and
// a new draft gives up all other uploads. A job that hung since then can complete none of its own,
// and a draft that was given up removes nothing more. Only a job that hangs between a check and the
// very next request, for as long as a lock lasts, can disturb the files of its successor.
#include <cstdlib>
#include <optional>
#include <set>

#include "trireme/observe/folder_lock.h"
#include "trireme/storage/folder.h"
#include "trireme/storage/s3/files.h"
#include "trireme/storage/s3/lease.h"
#include "trireme/storage/s3/open.h"

namespace trireme::inline v0::storage::s3 {
namespace {

std::string last_part(const std::string& key) { return key.substr(key.rfind('/') + 1); }
// "a/b/" for "a/b/c".
std::string folder_of(const std::string& key) { return key.substr(0, key.rfind('/') + 1); }

class S3Draft final : public Draft {
 public:
  S3Draft(std::shared_ptr<S3Client> client, std::string key, bool joined)
      : client_(std::move(client)),
        key_(std::move(key)),
        scheme_("s3://" + client_->bucket() + "/") {
    if (!joined) manifest_ = client_->begin_upload(key_ + "/" + kManifestFile);
  }
  ~S3Draft() override {
    if (!manifest_) return;  // published, or joined
    try {
      const std::vector<std::string> keys = client_->list(key_ + "/");
      if (is_open().has_value()) {
        remove(keys);
        client_->abort_upload(*manifest_);
      } else if (client_->abort_upload(*manifest_)) {  // neither published nor given up
        for (const std::string& key : keys) client_->remove(key);
      }
    } catch (...) {  // the next draft removes them
    }
  }

  std::unique_ptr<OutputFile> create(const std::string& name) override {
    return std::make_unique<UploadFile>(client_, key_ + "/" + name);
  }
  bool reuse(const std::string& name, const std::string& path) override {
    if (!path.starts_with(scheme_)) return false;
    try {
      return client_->copy(path.substr(scheme_.size()), key_ + "/" + name);
    } catch (const Refusal& refusal) {
      if (refusal.code != "NotImplemented") throw;
      return false;
    } catch (const ResourceError&) {  // a long copy may be silent for too long: the file is written
      return false;
    }
  }
  void publish(const std::string& manifest) override {
    client_->complete_upload(
        *manifest_, {client_->put_part(*manifest_, 1, std::as_bytes(std::span(manifest)))});
    manifest_.reset();
  }
  /// Removes objects one by one, until a newer draft gives this one up.
  void remove(const std::vector<std::string>& keys) const {
    for (const std::string& key : keys) {
      if (is_open() == false) return;
      client_->remove(key);
    }
  }
  bool owns(const Upload& upload) const { return manifest_ && upload.id == manifest_->id; }

 private:
  // Neither published nor given up; nullopt if the bucket's policy does not allow to ask.
  std::optional<bool> is_open() const {
    try {
      return client_->is_open(*manifest_);
    } catch (const Refusal&) {
      return std::nullopt;
    }
  }

  const std::shared_ptr<S3Client> client_;
  const std::string key_, scheme_;
  std::optional<Upload> manifest_;  // null: joined, or published
};

// Whether `key` is PREFIX step-00000500/FILE.
bool is_of_checkpoint(std::string_view key, const std::string& prefix) {
  const std::string_view rest = key.substr(prefix.size());
  const auto slash = rest.find('/');
  return slash != rest.npos && rest.find('/', slash + 1) == rest.npos &&
         step_of_folder(rest.substr(0, slash)).has_value();
}

class S3Storage final : public Storage {
 public:
  S3Storage(std::shared_ptr<S3Client> client, LeaseOptions lease)
      : client_(std::move(client)),
        scheme_("s3://" + client_->bucket() + "/"),
        lease_(std::move(lease)) {}

  std::unique_ptr<Draft> begin(const std::string& path, const std::string&) override {
    const std::string key = key_of(path);
    auto draft = std::make_unique<S3Draft>(client_, key, /*joined=*/false);
    remove_leftovers(folder_of(key), *draft);
    return draft;
  }
  std::unique_ptr<Draft> join(const std::string& path, const std::string&) override {
    return std::make_unique<S3Draft>(client_, key_of(path), /*joined=*/true);
  }

  std::unique_ptr<InputFile> open(const std::string& path) override {
    const std::string key = key_of(path);
    auto object = client_->head(key);
    if (!object)
      throw CheckpointError(
          path + " does not exist",
          {.operation = "checkpoint",
           .advice = "A file of the checkpoint is missing: resume from an older one."});
    return std::make_unique<ObjectFile>(client_, key, std::move(*object));
  }

  void put(const std::string& path, const std::string& text) override {
    client_->put(key_of(path), std::as_bytes(std::span(text)));
  }

  std::vector<std::string> list(const std::string& path) override {
    const std::string folder = path == scheme_ || path + "/" == scheme_ ? "" : key_of(path) + "/";
    std::set<std::string> names;
    for (const std::string& key : client_->list(folder)) {
      const std::string rest = key.substr(folder.size());
      const auto slash = rest.find('/');
      // A manifest in a deeper folder does not make this one complete.
      if (slash == std::string::npos)
        names.insert(rest);
      else if (rest.substr(slash + 1) == kManifestFile)
        names.insert(rest.substr(0, slash));
    }
    return {names.begin(), names.end()};
  }

  void remove(const std::string& path) override {
    const std::string key = key_of(path);
    client_->remove(key + "/" + kManifestFile);
    const std::vector<std::string> files = client_->list(key + "/");
    for (const std::string& one : files) client_->remove(one);
    if (files.empty()) client_->remove(key);  // perhaps a file of put()
  }

  std::shared_ptr<void> lock(const std::string& path) override {
    return take_lease(client_, parse_address(path), lease_);
  }
  bool is_remote() const noexcept override { return true; }

 private:
  std::string key_of(const std::string& path) const {
    if (!path.starts_with(scheme_))
      throw ConfigError(path + " is not in the bucket " + client_->bucket(),
                        {.operation = "checkpoint"});
    return path.substr(scheme_.size());
  }

  // Removes files of checkpoints without a manifest, and uploads for checkpoints that were not
  // completed. Nothing else below `prefix` is ours.
  void remove_leftovers(const std::string& prefix, const S3Draft& draft) {
    for (const Upload& upload : client_->open_uploads(prefix))
      if (is_of_checkpoint(upload.key, prefix) && !draft.owns(upload))
        client_->abort_upload(upload);
    std::vector<std::string> keys = client_->list(prefix);
    std::set<std::string> complete;
    for (const std::string& key : keys)
      if (last_part(key) == kManifestFile) complete.insert(folder_of(key));
    std::erase_if(keys, [&](const std::string& key) {
      return !is_of_checkpoint(key, prefix) || complete.contains(folder_of(key));
    });
    draft.remove(keys);
  }

  const std::shared_ptr<S3Client> client_;
  const std::string scheme_;
  const LeaseOptions lease_;
};

}  // namespace

Location open(const std::string& address, Service service, RetryOptions retry, LeaseOptions lease) {
  const Address parsed = parse_address(address);
  auto client = std::make_shared<S3Client>(std::move(service), parsed.bucket, retry);
  return {std::make_shared<S3Storage>(std::move(client), std::move(lease)), parsed.text()};
}

Location open(const std::string& address) {
  return open(address,
              service_of([](const char* name) -> const char* { return std::getenv(name); }));
}

}  // namespace trireme::inline v0::storage::s3
