"""A server on a thread of the session, which tells what it has received; prints its port."""

import http.server
import json
import threading

stop = False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        global stop
        if self.path == "/ws":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", self.headers["Upgrade"])
            self.end_headers()
            while line := self.rfile.readline():
                self.wfile.write(line)
            self.close_connection = True
            return
        stop = stop or self.path == "/stop"
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        told = {"line": self.requestline, "headers": headers, "length": len(body)}
        content = json.dumps(told).encode()
        self.send_response({"/moved": 302, "/missing": 404}.get(self.path, 200))
        if self.path == "/moved":
            self.send_header("Location", f"http://{self.headers['Host']}/there")
        if self.path == "/page":
            self.send_header("Set-Cookie", "a=b; Path=/")
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Clear-Site-Data", '"*"')
            self.send_header("Content-Security-Policy", "default-src 'self'")
            self.send_header("Connection", "X-Hop")
            self.send_header("X-Hop", "1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port)
