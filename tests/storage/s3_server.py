#!/usr/bin/env python3
"""An S3 service for tests: moto's server behind a front that checks requests and injects faults.

  s3_server.py        prints "ENDPOINT ACCESS_KEY SECRET_KEY", serves until its standard input ends

The front checks what S3 checks and moto does not: the signature (by botocore's own signer), the hash
of the body, Content-MD5. It gives long lists of uploads in pages, as S3 does. The bucket "denied"
refuses every call. Faults are posted to /_faults as a JSON list of {"method", "contains", "header",
"skip", "times", "kind"}; a request that fits (its path contains, it has the header) uses one up:

  503, 500, 501    the status, with S3's words
  412              a condition of the request does not hold
  removed          the object is removed before the request is forwarded
  given up         all uploads to the bucket are given up before the request is forwarded
  silent           no answer, until the client closes the connection
  reset            the connection is closed before the request is forwarded
  lost             the request is forwarded, and the connection closed instead of the answer
  cut              half of the answer's body, then the end of the connection
  corrupt          one byte of the request's body is changed before it is stored
  deny             403 AccessDenied
  whole            a range is ignored: the answer is the whole object
  page             a list gives at most three keys, or uploads, at once
  same page        as page, and always the first three
  last page        as page, and the answer does not say how to get the next one

GET /_faults gives the number of faults that have been injected; DELETE forgets those that are left.
"""
import base64
import hashlib
import http.client
import http.server
import json
import logging
import re
import socket
import sys
import threading
import urllib.parse
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.server import ThreadedMotoServer

ACCESS_KEY, SECRET_KEY, TOKEN = "AKIATRIREMETEST", "secret/of+the=test", "token/of+the=test"
STATUS = {"503": (503, "SlowDown"), "500": (500, "InternalError"), "deny": (403, "AccessDenied"),
          "501": (501, "NotImplemented"), "412": (412, "PreconditionFailed")}


class Faults:
    def __init__(self):
        self.lock, self.left, self.injected = threading.Lock(), [], 0

    def take(self, method, path, headers):
        with self.lock:
            for fault in self.left:
                if fault.get("method", method) != method or fault.get("contains", "") not in path:
                    continue
                if "header" in fault and fault["header"] not in headers:
                    continue
                if fault.get("skip", 0) > 0:
                    fault["skip"] -= 1
                    continue
                if fault["times"] == 0:
                    continue
                fault["times"] -= 1
                self.injected += 1
                return fault["kind"]
        return None


FAULTS = Faults()


def wrong_signature(method, path, headers):
    """What S3 would refuse the request for, or None."""
    authorization = headers.get("Authorization", "")
    if not authorization.startswith("AWS4-HMAC-SHA256 "):
        return "AccessDenied"
    fields = dict(part.strip().split("=", 1) for part in authorization.split(" ", 1)[1].split(","))
    access, date, region, service, _ = fields["Credential"].split("/")
    if access != ACCESS_KEY:
        return "InvalidAccessKeyId"
    signed = fields["SignedHeaders"].split(";")
    # S3 demands that these are signed.
    for name in headers:
        if (name.lower().startswith("x-amz-") or name.lower() == "host") and name.lower() not in signed:
            return "AccessDenied"
    split = urllib.parse.urlsplit(path)
    request = AWSRequest(method=method, url="http://" + headers["Host"] + split.path,
                         params=urllib.parse.parse_qsl(split.query, keep_blank_values=True),
                         headers={name: value for name, value in headers.items() if name.lower() in signed})
    request.params = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
    request.context["timestamp"] = headers["X-Amz-Date"]
    token = headers.get("X-Amz-Security-Token")
    if token not in (None, TOKEN):
        return "InvalidToken"
    signer = S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY, token), service, region)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return None if signer.signature(text, request) == fields["Signature"] else "SignatureDoesNotMatch"


def page_of_uploads(path, xml, most):
    """What S3 answers to the request `path`; moto's answer `xml` has all uploads at once."""
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query, keep_blank_values=True))
    key_marker, id_marker = query.get("key-marker", ""), query.get("upload-id-marker")
    uploads = sorted((one.findtext("{*}Key"), one.findtext("{*}UploadId"))
                     for one in ElementTree.fromstring(xml).iter() if one.tag.endswith("}Upload"))
    if id_marker is None:
        left = [one for one in uploads if one[0] > key_marker]
    else:
        left = [one for one in uploads if one > (key_marker, id_marker)]
    text = "".join(f"<Upload><Key>{escape(key)}</Key><UploadId>{escape(id)}</UploadId></Upload>"
                   for key, id in left[:most])
    if len(left) > most:
        key, id = left[most - 1]
        text = (f"<NextKeyMarker>{escape(key)}</NextKeyMarker>"
                f"<NextUploadIdMarker>{escape(id)}</NextUploadIdMarker>" + text)
    truncated = "true" if len(left) > most else "false"
    return (f"<?xml version='1.0'?><ListMultipartUploadsResult><IsTruncated>{truncated}</IsTruncated>"
            f"{text}</ListMultipartUploadsResult>").encode()


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    moto = None

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self, status, headers, body, cut=False):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        length = dict((name.lower(), value) for name, value in headers).get("content-length")
        self.send_header("Content-Length", length if self.command == "HEAD" and length else len(body))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True

    def error(self, status, code):
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>for a test</Message></Error>"
        self.answer(status, [("Content-Type", "application/xml")], body.encode())

    def faults(self):
        if self.command == "POST":
            with FAULTS.lock:
                FAULTS.left = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                FAULTS.injected = 0
        elif self.command == "DELETE":
            with FAULTS.lock:
                FAULTS.left = []
        self.answer(200, [], str(FAULTS.injected).encode())

    def refusal(self, body):
        code = wrong_signature(self.command, self.path, self.headers)
        if code:
            return 403, code
        if self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            return 400, "XAmzContentSHA256Mismatch"
        md5 = self.headers.get("Content-MD5")
        if md5 and md5 != base64.b64encode(hashlib.md5(body).digest()).decode():
            return 400, "BadDigest"
        if self.path.split("/")[1].split("?")[0] == "denied":
            return 403, "AccessDenied"
        return None

    def serve(self):
        if self.path == "/_faults":
            return self.faults()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = FAULTS.take(self.command, self.path, self.headers)
        if fault == "silent":
            self.connection.recv(1)
        if fault in ("reset", "silent"):
            self.close_connection = True
            return None
        refused = self.refusal(body)
        if refused:
            return self.error(*refused)
        if fault in STATUS:
            return self.error(*STATUS[fault])
        if fault == "corrupt" and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        if fault == "removed":
            ask_moto("DELETE", self.path, {"Authorization": self.headers["Authorization"]})
        if fault == "given up":
            give_up(self.path.split("/")[1], {"Authorization": self.headers["Authorization"]})
        pages = fault in ("page", "same page", "last page")
        if pages:
            self.path += "&max-keys=3"
        if fault == "same page":
            self.path = re.sub("(key-marker|upload-id-marker|continuation-token)=[^&]*&", "", self.path)
        left_out = ("Content-MD5", "Range") if fault == "whole" else ("Content-MD5",)
        headers = {name: value for name, value in self.headers.items() if name not in left_out}
        moto = http.client.HTTPConnection(*Front.moto)
        moto.request(self.command, self.path, body, headers)
        response = moto.getresponse()
        content = response.read()
        moto.close()
        if fault == "lost":
            self.close_connection = True
            return None
        if self.command == "GET" and "uploads=" in self.path and response.status == 200:
            content = page_of_uploads(self.path, content, 3 if pages else 1000)
        if fault == "last page":
            content = re.sub(b"<(Next[A-Za-z]*)>.*?</\\1>", b"", content)
        return self.answer(response.status, response.getheaders(), content, cut=fault == "cut")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve


def ask_moto(method, path, headers={}):
    moto = http.client.HTTPConnection(*Front.moto)
    moto.request(method, path, headers=headers)
    response = moto.getresponse()
    content = response.read()
    assert response.status < 300
    moto.close()
    return content


def give_up(bucket, headers):
    uploads = ElementTree.fromstring(ask_moto("GET", f"/{bucket}?uploads=", headers)).iter()
    for key, upload in [(one.findtext("{*}Key"), one.findtext("{*}UploadId"))
                        for one in uploads if one.tag.endswith("}Upload")]:
        ask_moto("DELETE", f"/{bucket}/{key}?uploadId={upload}", headers)


def start():
    """Serves on ports of the system's choice; returns the endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    Front.moto = moto.get_host_and_port()
    for name in ("models", "denied"):
        ask_moto("PUT", "/" + name)
    front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
    front.daemon_threads = True
    threading.Thread(target=front.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{front.server_address[1]}"


def main():
    print(start(), ACCESS_KEY, SECRET_KEY, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
