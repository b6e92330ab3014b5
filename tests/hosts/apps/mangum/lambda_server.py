"""Stands for AWS Lambda behind an API gateway: requests become events for the handler, its results answers."""

import base64
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module

module, _, name = sys.argv[1].partition(":")
handle = getattr(import_module(module), name)


class Gateway(BaseHTTPRequestHandler):
    """Answers POSTs."""

    def do_POST(self) -> None:
        """Give the handler an event of payload version 2.0."""
        body = self.rfile.read(int(self.headers["content-length"]))
        event = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": self.path,
            "rawQueryString": "",
            "headers": {key.lower(): value for key, value in self.headers.items()},
            "requestContext": {
                "http": {"method": "POST", "path": self.path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"},
                "stage": "$default",
            },
            "body": body.decode(),
            "isBase64Encoded": False,
        }
        result = handle(event, None)
        text = result["body"]
        sent = base64.b64decode(text) if result["isBase64Encoded"] else text.encode()
        self.send_response(result["statusCode"])
        for key, value in result["headers"].items():
            if key.lower() != "content-length":
                self.send_header(key, value)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


HTTPServer(("127.0.0.1", int(sys.argv[2])), Gateway).serve_forever()  # one at a time, in the main thread, as there
