"""An index with one package on loopback, for the benchmark. Prints its port and serves until it is killed."""

import hashlib
import http.server
import io
import sys
import zipfile

NAME, VERSION, MODULES = "woma_bench_package", "1.0", 40


def wheel() -> bytes:
    info = f"{NAME}-{VERSION}.dist-info"
    files = {f"{NAME}/__init__.py": "VERSION = '1.0'\n"}
    for number in range(MODULES):
        files[f"{NAME}/module_{number}.py"] = f"def function_{number}():\n    return {number}\n" * 20
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in [*files.items(), (f"{info}/RECORD", record)]:
            archive.writestr(path, text)
    return packed.getvalue()


CONTENT = wheel()
FILE = f"{NAME}-{VERSION}-py3-none-any.whl"
PAGE = f'<!DOCTYPE html><a href="/files/{FILE}#sha256={hashlib.sha256(CONTENT).hexdigest()}">{FILE}</a>'


class Index(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == f"/files/{FILE}":
            kind, body = "application/octet-stream", CONTENT
        elif self.path.strip("/") == f"simple/{NAME.replace('_', '-')}":
            kind, body = "text/html", PAGE.encode()
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
print(server.server_address[1], flush=True)
sys.stdout.close()
server.serve_forever()
