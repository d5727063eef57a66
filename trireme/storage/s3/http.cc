#include "trireme/storage/s3/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/sha256.h"

namespace trireme::inline v0::storage::s3 {
namespace {

constexpr long kConnectSeconds = 10;
constexpr long kContinueMilliseconds = 200;  // for "100 Continue", before a large body
constexpr long kSilentSeconds = 30;          // with less than a byte a second

struct Transfer {
  Response response;
  std::span<const std::byte> body, left;  // of the request; what is left to send
  std::size_t most = 0;
};

std::size_t take_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  transfer.response.cut = transfer.response.body.size() + size * count > transfer.most;
  if (transfer.response.cut) return 0;  // an error to curl
  transfer.response.body.append(data, size * count);
  return size * count;
}

std::size_t give_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::size_t given = std::min(size * count, transfer.left.size());
  if (given > 0) std::memcpy(data, transfer.left.data(), given);
  transfer.left = transfer.left.subspan(given);
  return given;
}

// curl starts the body again if a connection that it had kept turns out to be closed.
int rewind_body(void* user, curl_off_t offset, int origin) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (origin != SEEK_SET || offset < 0 || static_cast<std::size_t>(offset) > transfer.body.size())
    return CURL_SEEKFUNC_FAIL;
  transfer.left = transfer.body.subspan(static_cast<std::size_t>(offset));
  return CURL_SEEKFUNC_OK;
}

std::size_t take_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& headers = static_cast<Transfer*>(user)->response.headers;
  std::string line(data, size * count);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
    line.pop_back();
  if (line.starts_with("HTTP/")) headers.clear();  // of an interim answer
  const auto colon = line.find(':');
  if (colon == std::string::npos) return size * count;
  std::string name = line.substr(0, colon);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto value = line.find_first_not_of(' ', colon + 1);
  headers[name] = value == std::string::npos ? "" : line.substr(value);
  return size * count;
}

void set(CURL* curl, CURLoption option, auto value) {
  TRIREME_CHECK(curl_easy_setopt(curl, option, value) == CURLE_OK);
}

void set_request(CURL* curl, const Request& request, Transfer& transfer) {
  set(curl, CURLOPT_URL, request.url.c_str());
  set(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  set(curl, CURLOPT_WRITEFUNCTION, &take_body);
  set(curl, CURLOPT_WRITEDATA, &transfer);
  set(curl, CURLOPT_HEADERFUNCTION, &take_header);
  set(curl, CURLOPT_HEADERDATA, &transfer);
  if (request.method == "HEAD") set(curl, CURLOPT_NOBODY, 1L);
  if (request.method != "PUT" && request.method != "POST") return;
  set(curl, CURLOPT_UPLOAD, 1L);
  set(curl, CURLOPT_READFUNCTION, &give_body);
  set(curl, CURLOPT_READDATA, &transfer);
  set(curl, CURLOPT_SEEKFUNCTION, &rewind_body);
  set(curl, CURLOPT_SEEKDATA, &transfer);
  set(curl, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  // An empty "Expect:" would switch the wait off, but curl 7.88 signs such a header wrongly.
  set(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, kContinueMilliseconds);
}

void set_service(CURL* curl, const Service& service) {
  set(curl, CURLOPT_NOSIGNAL, 1L);
  set(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  set(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(curl, CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  set(curl, CURLOPT_AWS_SIGV4, ("aws:amz:" + service.region + ":s3").c_str());
  set(curl, CURLOPT_USERNAME, service.access_key.c_str());
  set(curl, CURLOPT_PASSWORD, service.secret_key.c_str());
}

class HeaderList {
 public:
  ~HeaderList() { curl_slist_free_all(list_); }
  void add(const std::string& line) {
    curl_slist* longer = curl_slist_append(list_, line.c_str());
    TRIREME_CHECK(longer != nullptr);
    list_ = longer;
  }
  curl_slist* get() const noexcept { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

}  // namespace

HttpClient::HttpClient(Service service, Duration longest_call)
    : service_(std::move(service)), longest_call_(longest_call) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  TRIREME_CHECK(started == CURLE_OK);
}

HttpClient::Handle HttpClient::take() {
  const std::lock_guard lock(mutex_);
  Handle handle(nullptr, curl_easy_cleanup);
  if (idle_.empty()) {
    handle.reset(curl_easy_init());
    TRIREME_CHECK(handle != nullptr);
  } else {
    handle = std::move(idle_.back());
    idle_.pop_back();
  }
  return handle;
}

Response HttpClient::send(const Request& request) {
  Handle handle = take();
  CURL* const curl = handle.get();
  curl_easy_reset(curl);  // keeps the connections
  Transfer transfer{
      .response = {}, .body = request.body, .left = request.body, .most = request.most};
  HeaderList headers;
  for (const std::string& line : request.headers) headers.add(line);
  headers.add("x-amz-content-sha256: " + sha256_hex(request.body));
  if (!service_.session_token.empty())
    headers.add("x-amz-security-token: " + service_.session_token);
  set(curl, CURLOPT_HTTPHEADER, headers.get());
  set_request(curl, request, transfer);
  set_service(curl, service_);
  set(curl, CURLOPT_TIMEOUT_MS,
      static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(longest_call_).count()));
  char reason[CURL_ERROR_SIZE] = "";
  set(curl, CURLOPT_ERRORBUFFER, &reason[0]);
  const CURLcode code = curl_easy_perform(curl);
  set(curl, CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  transfer.response.status = static_cast<int>(status);
  if (transfer.response.cut) return std::move(transfer.response);  // drops the connection, too
  if (code != CURLE_OK)  // the handle is dropped with its connection
    throw NoAnswer(reason[0] != '\0' ? reason : curl_easy_strerror(code));
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(handle));
  return std::move(transfer.response);
}

}  // namespace trireme::inline v0::storage::s3
