#include "trireme/ps/rows/remote_rows.h"

#include "trireme/base/error.h"

namespace trireme::inline v0::ps {

ParameterClient& RemoteRows::client() {
  if (!client_)
    throw ConfigError("an embedding is used after the training that it belongs to",
                      {.operation = "ServerEmbedding",
                       .advice = "Keep the Strategy or DataParallel as long as its model."});
  return client_();
}

void RemoteRows::fetch(std::uint32_t table, std::span<const std::int64_t> ids, float* rows) {
  client().pull_rows(table, ids, rows);
}

std::vector<SavedTable> RemoteRows::read() {
  if (!started_ || !started_()) return loaded_rows();
  ParameterClient& own = client();
  std::vector<std::vector<SavedTable>> servers;
  for (int server = 0; server < own.servers(); ++server) {
    const Saved saved = own.read(server, /*with_rows=*/true);
    const SavedText text = SavedText::from_text(saved.text);
    std::size_t at = own.settings().model.bytes(server);
    for (const SavedText::Array& array : text.arrays) at += array.bytes();
    servers.push_back(tables_in(text, std::span(saved.memory).subspan(at)));
  }
  return joined_rows(servers);
}

}  // namespace trireme::inline v0::ps
