// S3Client's uploads in parts.

#include "trireme/storage/s3/client.h"
#include "trireme/storage/s3/digest.h"
#include "trireme/storage/s3/xml.h"

namespace trireme::inline v0::storage::s3 {
namespace {

std::string completion_of(const std::vector<std::string>& etags) {
  std::string xml = "<CompleteMultipartUpload>";
  for (std::size_t i = 0; i < etags.size(); ++i)
    xml += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + etags[i] +
           "</ETag></Part>";
  return xml + "</CompleteMultipartUpload>";
}

}  // namespace

Upload S3Client::begin_upload(const std::string& key) {
  const std::string what = "begin to write " + key;
  const Response response = call({.method = "POST", .url = url(key, "uploads=")}, what);
  const std::string id = text_of(response.body, "UploadId");
  if (response.status == kNotFound || id.empty()) refuse(response, what);
  return {key, id};
}

std::string S3Client::put_part(const Upload& upload, int number, std::span<const std::byte> bytes) {
  const std::string what = "write part " + std::to_string(number) + " of " + upload.key;
  const Response response =
      call({.method = "PUT",
            .url = url(upload.key, "partNumber=" + std::to_string(number) +
                                       "&uploadId=" + percent_encoded(upload.id)),
            .body = bytes},
           what);
  if (response.status == kNotFound) refuse(response, what);
  return response.header("etag");
}

void S3Client::complete_upload(const Upload& upload, const std::vector<std::string>& etags) {
  const std::string what = "complete " + upload.key;
  const std::string body = completion_of(etags), wanted = etag_of_parts(etags);
  std::string reason;
  for (int attempt = 1; attempt <= retry_.attempts; ++attempt) {
    if (attempt > 1) pause(attempt - 1);
    const Response response =
        call({.method = "POST",
              .url = url(upload.key, "uploadId=" + percent_encoded(upload.id)),
              .body = std::as_bytes(std::span(body))},
             what);
    reason = text_of(response.body, "Code");  // also in an answer 200, which begins before the work
    if (response.status < 300 && reason.empty()) return;
    // The answer to an earlier request was lost, and the upload is complete.
    const auto object = reason == "NoSuchUpload" ? head(upload.key) : std::nullopt;
    if (object && !wanted.empty() && object->etag == wanted) return;
    if (response.status == kNotFound) refuse(response, what);
  }
  fail(what, ": the storage answers " + reason, "The training tries again.");
}

bool S3Client::abort_upload(const Upload& upload) {
  const Response response =
      call({.method = "DELETE", .url = url(upload.key, "uploadId=" + percent_encoded(upload.id))},
           "give up " + upload.key);
  return response.status != kNotFound;
}

bool S3Client::is_open(const Upload& upload) {
  const Response response =
      call({.url = url(upload.key, "max-parts=1&uploadId=" + percent_encoded(upload.id))},
           "look at the upload of " + upload.key);
  return response.status != kNotFound;
}

std::vector<Upload> S3Client::open_uploads(const std::string& prefix) {
  std::vector<Upload> uploads;
  const std::string own = "prefix=" + percent_encoded(prefix) + "&";
  for_each_page(
      "list uploads of " + prefix + "*", own + "uploads=", [&](const auto& page) -> std::string {
        for (const std::string& one : elements(page, "Upload"))
          uploads.push_back({text_of(one, "Key"), text_of(one, "UploadId")});
        const std::string key = text_of(page, "NextKeyMarker"),
                          id = text_of(page, "NextUploadIdMarker");
        if (key.empty()) return {};
        // A signature needs the parameters in this order.
        return "key-marker=" + percent_encoded(key) + "&" + own +
               (id.empty() ? "" : "upload-id-marker=" + percent_encoded(id) + "&") + "uploads=";
      });
  // Some services ignore the prefix.
  std::erase_if(uploads, [&](const Upload& one) { return !one.key.starts_with(prefix); });
  return uploads;
}

}  // namespace trireme::inline v0::storage::s3
