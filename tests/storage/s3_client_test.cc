// The calls on a bucket, against a real service that checks signatures, with faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "s3_service.h"
#include "trireme/storage/s3/digest.h"
#include "trireme/storage/s3/xml.h"

namespace trireme::storage::s3 {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::S3Service;

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

class S3ClientTest : public ::testing::Test {
 protected:
  ~S3ClientTest() override { service_.inject("[]"); }
  S3Service& service_ = S3Service::shared();
  const std::shared_ptr<S3Client> client_ = service_.client();
};

TEST_F(S3ClientTest, KeysOfAnyCharactersAreSignedRight) {
  for (const std::string key : {"a", "a/b c/d+e", "caf\xc3\xa9/100%&=?#", "~-_.!*'();:@,$"}) {
    SCOPED_TRACE(key);
    const std::string etag = client_->put("keys/" + key, bytes("text of " + key));
    const auto found = client_->get("keys/" + key);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->body, "text of " + key);
    EXPECT_EQ(found->etag, etag);
    EXPECT_EQ(client_->head("keys/" + key)->bytes, static_cast<std::int64_t>(found->body.size()));
    EXPECT_THAT(client_->list("keys/" + key), ElementsAre("keys/" + key));
    client_->remove("keys/" + key);
    EXPECT_FALSE(client_->get("keys/" + key));
    client_->remove("keys/" + key);  // there is none: no error
  }
  EXPECT_THAT(client_->list("keys/"), IsEmpty());
}

TEST_F(S3ClientTest, ATemporaryKeyHasItsToken) {
  Service temporary = service_.service();
  temporary.session_token = "token/of+the=test";
  S3Client client(temporary, "models", S3Service::quick());
  client.put("token", bytes("x"));
  EXPECT_EQ(client.get("token")->body, "x");
  client.remove("token");
  temporary.session_token = "another";
  EXPECT_THAT(refusal([&] { S3Client(temporary, "models").get("token"); }),
              HasSubstr("InvalidToken"));
}

TEST_F(S3ClientTest, RefusalsAreFinalAndSayWhatToDo) {
  const auto no_bucket = AllOf(HasSubstr("NoSuchBucket"), HasSubstr("Make the bucket first"));
  EXPECT_THAT(refusal([&] { service_.client("nowhere")->list(""); }), no_bucket);
  EXPECT_THAT(refusal([&] { service_.client("nowhere")->open_uploads(""); }), no_bucket);
  EXPECT_THAT(refusal([&] { service_.client("denied")->put("x", bytes("x")); }),
              AllOf(HasSubstr("cannot write x in the bucket denied"), HasSubstr("403 AccessDenied"),
                    HasSubstr("AWS_SECRET_ACCESS_KEY")));
  Service wrong = service_.service();
  wrong.secret_key = "wrong";
  EXPECT_THAT(refusal([&] { S3Client(wrong, "models").get("x"); }),
              HasSubstr("SignatureDoesNotMatch"));
  wrong.access_key = "nobody";
  EXPECT_THAT(refusal([&] { S3Client(wrong, "models").head("x"); }), HasSubstr("403"));
}

TEST_F(S3ClientTest, EveryRefusalNamesKeyAndBucket) {
  const std::string key = "runs/a/x";
  const std::vector<std::function<void(S3Client&)>> calls = {
      [&](S3Client& client) { client.put(key, bytes("x")); },
      [&](S3Client& client) { client.get(key); },
      [&](S3Client& client) { client.get_range(key, "\"0\"", 0, 2); },
      [&](S3Client& client) { client.list(key); },
      [&](S3Client& client) { client.begin_upload(key); },
      [&](S3Client& client) {
        client.put_part({key, "id"}, 1, bytes("x"));
      },
      [&](S3Client& client) {
        client.complete_upload({key, "id"}, {"\"0\""});
      }};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (const std::string bucket : {"nowhere", "denied"}) {
      SCOPED_TRACE("call " + std::to_string(i) + ", bucket " + bucket);
      const auto client = service_.client(bucket);
      EXPECT_THAT(refusal([&] { calls[i](*client); }),
                  AllOf(HasSubstr(key), HasSubstr(" in the bucket " + bucket + ": the storage")));
    }
  }
}

TEST_F(S3ClientTest, ACallThatTheServiceLacksIsNotTriedAgain) {
  service_.inject(R"([{"kind": "501", "times": 1000}])");
  EXPECT_THAT(refusal([&] { client_->put("x", bytes("x")); }),
              AllOf(HasSubstr("501 NotImplemented"), HasSubstr("The service lacks a call")));
  EXPECT_EQ(service_.injected(), 1);
}

TEST_F(S3ClientTest, AServiceThatIgnoresRangesIsRefusedAtOnce) {
  for (const std::size_t size : {1000, 200'000}) {
    const std::string etag = client_->put("whole", bytes(std::string(size, 'x')));
    service_.inject(R"([{"kind": "whole", "method": "GET", "times": 1000}])");
    EXPECT_THAT(
        refusal([&] { client_->get_range("whole", etag, 5, 10); }),
        AllOf(HasSubstr("cannot read whole in the bucket models: "), HasSubstr("use another one")));
    EXPECT_EQ(service_.injected(), 1);
    service_.inject("[]");
  }
  client_->remove("whole");
}

TEST_F(S3ClientTest, LongListsComeInPages) {
  for (int i = 0; i < 8; ++i) client_->put("many/" + std::to_string(i), bytes("x"));
  service_.inject(R"([{"kind": "page", "method": "GET", "times": 3}])");
  EXPECT_EQ(client_->list("many/").size(), 8u);
  EXPECT_EQ(service_.injected(), 3);
  for (const std::string& key : client_->list("many/")) client_->remove(key);
}

TEST_F(S3ClientTest, AListWhosePagesNeverEndIsRefused) {
  for (int i = 0; i < 4; ++i) client_->put("many/" + std::to_string(i), bytes("x"));
  std::vector<Upload> begun;
  for (int i = 0; i < 4; ++i) begun.push_back(client_->begin_upload("many/" + std::to_string(i)));
  service_.inject(R"([{"kind": "same page", "method": "GET", "times": 1000}])");
  const auto never_ends = HasSubstr("the storage returned the same page of the list twice");
  EXPECT_THAT(refusal([&] { client_->list("many/"); }), never_ends);
  EXPECT_THAT(refusal([&] { client_->open_uploads("many/"); }), never_ends);
  EXPECT_EQ(service_.injected(), 4);
  service_.inject(R"([{"kind": "last page", "method": "GET", "times": 1000}])");
  const auto cut_off = HasSubstr("the storage cut the list off, and names no page after it");
  EXPECT_THAT(refusal([&] { client_->list("many/"); }), cut_off);
  EXPECT_THAT(refusal([&] { client_->open_uploads("many/"); }), cut_off);
  EXPECT_EQ(service_.injected(), 2);
  service_.inject("[]");
  for (const Upload& upload : begun) client_->abort_upload(upload);
  for (const std::string& key : client_->list("many/")) client_->remove(key);
}

TEST_F(S3ClientTest, LongListsOfUploadsComeInPages) {
  std::vector<Upload> begun;  // five of them for one key, over the end of a page
  for (const std::string key : {"many/a b&<c>", "many/b", "many/b", "many/b", "many/b", "many/b",
                                "many/c", "many/d", "other"})
    begun.push_back(client_->begin_upload(key));
  service_.inject(R"([{"kind": "page", "method": "GET", "contains": "uploads", "times": 3}])");
  std::set<std::string> found;
  for (const Upload& upload : client_->open_uploads("many/")) found.insert(upload.id);
  EXPECT_EQ(found.size(), 8u);
  EXPECT_EQ(service_.injected(), 3);
  for (const Upload& upload : begun) client_->abort_upload(upload);
  EXPECT_THAT(client_->open_uploads("many/"), IsEmpty());
}

TEST_F(S3ClientTest, EachCallOutlivesFaultsThatPass) {
  for (const std::string kind : {"503", "500", "reset", "lost"}) {
    for (const std::string method : {"PUT", "GET", "HEAD", "DELETE"}) {
      SCOPED_TRACE(kind + " " + method);
      service_.inject(R"([{"kind": ")" + kind + R"(", "method": ")" + method +
                      R"(", "times": 3}])");
      client_->put("passing", bytes("whole"));
      EXPECT_EQ(client_->get("passing")->body, "whole");
      EXPECT_EQ(client_->head("passing")->bytes, 5);
      client_->remove("passing");
      EXPECT_EQ(service_.injected(), 3);
    }
  }
}

TEST_F(S3ClientTest, AServiceThatStaysAwayIsAResourceErrorThatNamesIt) {
  service_.inject(R"([{"kind": "503", "times": 1000}])");
  EXPECT_THAT(refusal([&] { client_->put("x", bytes("x")); }),
              AllOf(HasSubstr("cannot write x in the bucket models at http://127.0.0.1:"),
                    HasSubstr("after 6 attempts: the storage answers 503 SlowDown"),
                    HasSubstr("TRIREME_S3_ENDPOINT")));
  EXPECT_EQ(service_.injected(), 6);
  Service nobody = service_.service();
  nobody.endpoint = "http://127.0.0.1:1";
  EXPECT_THAT(refusal([&] { S3Client(nobody, "models", S3Service::quick()).get("x"); }),
              AllOf(HasSubstr("http://127.0.0.1:1"), HasSubstr("after 6 attempts")));
}

TEST_F(S3ClientTest, BytesThatChangedOnTheWayAreSentAgain) {
  service_.inject(R"([{"kind": "corrupt", "method": "PUT", "times": 2}])");
  client_->put("flipped", bytes("what was meant"));
  EXPECT_EQ(service_.injected(), 2);
  EXPECT_EQ(client_->get("flipped")->body, "what was meant");
  service_.inject(R"([{"kind": "cut", "method": "GET", "times": 2}])");
  EXPECT_EQ(client_->get("flipped")->body, "what was meant");
  EXPECT_EQ(service_.injected(), 2);
  client_->remove("flipped");
}

TEST_F(S3ClientTest, UploadsInPartsExistWhenTheyAreComplete) {
  const std::string large(5 << 20, 'a'), rest = "the end";
  for (const std::string kind : {"none", "lost", "500", "corrupt"}) {
    SCOPED_TRACE(kind);
    if (kind != "none")
      service_.inject(R"([{"kind": ")" + kind +
                      R"(", "contains": "uploadId", "method": "PUT", "times": 2},
                          {"kind": ")" +
                      kind + R"(", "contains": "uploadId", "method": "POST", "times": 1}])");
    const Upload upload = client_->begin_upload("parts");
    const std::vector<std::string> etags = {client_->put_part(upload, 1, bytes(large)),
                                            client_->put_part(upload, 2, bytes(rest))};
    EXPECT_FALSE(client_->head("parts"));
    ASSERT_EQ(client_->open_uploads("parts").size(), 1u);
    EXPECT_EQ(client_->open_uploads("parts")[0].id, upload.id);
    client_->complete_upload(upload, etags);
    const auto object = client_->head("parts");
    ASSERT_TRUE(object);
    EXPECT_EQ(object->bytes, static_cast<std::int64_t>(large.size() + rest.size()));
    EXPECT_EQ(object->etag, etag_of_parts(etags));
    EXPECT_EQ(client_->get_range("parts", object->etag, object->bytes - 10, object->bytes),
              "aaathe end");
    EXPECT_THAT(client_->open_uploads("parts"), IsEmpty());
    client_->remove("parts");
  }
  client_->abort_upload(client_->begin_upload("parts"));
  EXPECT_THAT(client_->open_uploads("parts"), IsEmpty());
}

TEST_F(S3ClientTest, ConditionsAreKept) {
  const std::string first = client_->put("held", bytes("first"), {.absent = true});
  EXPECT_THROW(client_->put("held", bytes("second"), {.absent = true}), Refusal);
  EXPECT_THROW(client_->put("held", bytes("second"), {.etag = "\"0\""}), Refusal);
  client_->put("held", bytes("second"), {.etag = first});
  EXPECT_EQ(client_->get("held")->body, "second");
  EXPECT_TRUE(client_->copy("held", "copied"));
  EXPECT_EQ(client_->get("copied")->body, "second");
  EXPECT_FALSE(client_->copy("missing", "copied"));
  EXPECT_THROW(client_->get_range("held", first, 0, 2), CheckpointError) << "another version";
  client_->remove("held");
  EXPECT_THROW(client_->get_range("held", first, 0, 2), CheckpointError) << "it is gone";
  client_->remove("copied");
}

}  // namespace
}  // namespace trireme::storage::s3
